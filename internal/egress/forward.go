package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"net/http/httputil"
	"net/netip"
	"net/textproto"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// An exchange is one request that was allowed, on its way.
type exchange struct {
	link    *link
	v       *pending
	to      target
	path    string // in normal form, as it was judged
	query   string
	asked   bool // the path was followed by a question mark
	opened  []netip.Prefix
	upgrade bool
	w       http.ResponseWriter
	swap    *secrets.Swap
	mask    *secrets.Masker // of what the host says, or nil
	listing *listing        // what a host says that it has, where a push is to follow
	turn    secrets.Turn    // of the keys, when they were looked for
	names   []string        // of the keys that it takes along
	taken   atomic.Bool     // one of them was withdrawn meanwhile
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

// ServeHTTP answers requests that come over HTTP/2. Those of HTTP/1 are not
// net/http's: see [http1].
func (s *serving) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l, _ := r.Context().Value(linkKey{}).(*link)
	if l == nil {
		http.Error(w, "BUG: a request on no connection", http.StatusInternalServerError)
		return
	}
	s.work.Add(1)
	defer s.work.Done()
	// Without this a denial would wait for the body that it is meant to spare.
	_ = http.NewResponseController(w).EnableFullDuplex()
	s.handle(&judged{w, l}, r, l)
}

// handle answers every request that is read: plain ones to the proxy, and
// those in a tunnel whose TLS is ended.
func (s *serving) handle(w http.ResponseWriter, r *http.Request, l *link) {
	v := s.begin(l)
	defer v.settle()
	switch {
	case len(r.Method) > maxMethod: // HTTP/2 comes past the framer
		v.about(l.inner.host, l.inner.port, r.Method, "")
		s.refuse(w, v, longMethod(r.Method))
	case l.denied != nil:
		v.drop()
		s.explain(w, r, l)
	case l.inner.host == "" && isHealth(r):
		v.drop()
		w.WriteHeader(http.StatusNoContent)
	default:
		s.pass(w, r, l, v)
	}
}

// refuse answers what is no request, and ends the connection.
func (s *serving) refuse(w http.ResponseWriter, v *pending, why *refusal) {
	w.Header().Set("Connection", "close")
	answer(w, why.status, refusedText(v.deny(why.reason)))
}

// explain answers on a connection that leads nowhere. The first request
// completes the verdict of its CONNECT.
func (s *serving) explain(w http.ResponseWriter, r *http.Request, l *link) {
	asked, _ := l.path(r.RequestURI) // whatever it is, it gets nowhere
	path, query, _ := strings.Cut(asked, "?")
	if normal, err := policy.NormalPath(path); err == nil {
		path = normal
	}
	if _, misuse := s.session.Keys.Look(secrets.Request{Host: l.inner.host, Port: l.inner.port, TLS: true, Method: r.Method, Path: path, Header: r.Header, Query: query}); misuse != nil {
		l.denied.misuse(misuse)
	}
	verdict := l.denied.asked(r.Method, path)
	lastOf(w, r)
	answer(w, l.status, denialText(verdict))
}

// What is read of a body that goes nowhere, and for how long.
const (
	mostUnwanted = 16 << 20
	longUnwanted = 2 * time.Second
)

// lastOf makes an answer of our own the last one of its connection. Over HTTP/2
// curl drops it where that is announced while it still sends: so the body is
// read first, unless the client waits to be asked for it.
func lastOf(w http.ResponseWriter, r *http.Request) {
	if r.ProtoMajor >= 2 && r.Header.Get("Expect") == "" && http.NewResponseController(w).SetReadDeadline(time.Now().Add(longUnwanted)) == nil {
		_, _ = io.CopyN(io.Discard, r.Body, mostUnwanted)
	}
	w.Header().Set("Connection", "close")
}

// isHealth reports whether a request is for the proxy itself.
func isHealth(r *http.Request) bool {
	host, path := r.Host, r.RequestURI
	if after, ok := cutScheme(path); ok {
		host = authorityOf(after)
		path = after[len(host):]
	}
	host, _, _ = strings.Cut(host, ":")
	return host == ownHost && path == healthPath && (r.Method == http.MethodGet || r.Method == http.MethodHead)
}

// pass judges a request and sends it on.
func (s *serving) pass(w http.ResponseWriter, r *http.Request, l *link, v *pending) {
	x, why := s.exchange(r, l)
	v.about(x.to.host, x.to.port, r.Method, x.path)
	if why != nil {
		s.refuse(w, v, why)
		return
	}
	if s.answer(w, r, x, v) {
		return
	}
	d, loaded := s.judge(policy.Request{Host: x.to.host, Port: x.to.port, TLS: l.tls, Method: r.Method, Path: x.path})
	v.decide(d)
	x.v, x.w, x.opened, x.turn = v, w, d.Addresses, s.session.Keys.Turn()
	if _, ok := w.(*http1); ok {
		l.asked = asked{x.to, r.Method, x.path}
	}
	switch {
	case !loaded:
		s.deny(w, r, v.settle(), http.StatusServiceUnavailable)
		return
	case !d.Allowed:
		if _, misuse := s.session.Keys.Look(lookOf(x, r)); misuse != nil {
			v.misuse(misuse)
		}
		s.deny(w, r, v.settle(), http.StatusForbidden)
		return
	}
	refused, ok := s.overridden(x, r)
	if ok {
		refused, ok = s.keys(x, r)
	}
	if !ok {
		v.decide(refused)
		s.deny(w, r, v.settle(), http.StatusForbidden)
		return
	}
	s.lookBehind(x, r)
	if d, ok = s.push(x, r, d); ok {
		s.sendOn(x, r, d)
	}
}

// sendOn has a request that may go to its host go there, with the keys in its body.
func (s *serving) sendOn(x *exchange, r *http.Request, d policy.Decision) {
	names, long, err := s.swapBody(x, r)
	switch {
	case err != nil:
		s.failed(x.w, r, x, err, false)
		return
	case long != "":
		x.v.decide(policy.Decision{Layer: policy.LayerNode, Reason: long})
		s.deny(x.w, r, x.v.settle(), http.StatusForbidden)
		return
	}
	x.names = append(names, x.swap.Names()...)
	x.v.decide(withKeys(d, x.names))
	if e, ok := x.w.(*http1); ok {
		e.x = x
		defer e.over()
		e.send(x, r)
		return
	}
	ctx, off := context.WithCancel(context.WithValue(r.Context(), exchangeKey{}, x))
	defer off()
	defer s.hold(x, off)()
	s.forward.ServeHTTP(x.w, r.WithContext(ctx))
}

// deny says with a status why a request goes no further. One with a body ends
// its connection: the body is never read. Over HTTP/2 it ends its stream, and others go on.
func (s *serving) deny(w http.ResponseWriter, r *http.Request, v Verdict, status int) {
	if r.ProtoMajor < 2 && (r.ContentLength != 0 || upgrading(r)) {
		w.Header().Set("Connection", "close")
	}
	answer(w, status, denialText(v))
}

// exchange reads where a request wants to go. What it could find out is
// returned with a refusal too, for the record.
func (s *serving) exchange(r *http.Request, l *link) (*exchange, *refusal) {
	x := &exchange{link: l, upgrade: upgrading(r)}
	rest, why := x.target(r, l)
	if why != nil {
		return x, why
	}
	if !visible(rest) { // HTTP/2 comes past the framer
		return x, malformed("the request target holds a byte that no target has")
	}
	path, query, asked := strings.Cut(rest, "?")
	normal, err := policy.NormalPath(path)
	if err != nil {
		return x, malformed(err.Error())
	}
	x.path, x.query, x.asked = normal, query, asked
	if normal == "*" && r.Method != http.MethodOptions {
		return x, malformed("the target * belongs to OPTIONS")
	}
	return x, nil
}

// upgrading is [upgrades] for a request that net/http has read.
func upgrading(r *http.Request) bool {
	return r.ProtoMajor == 1 && r.ProtoMinor == 1 &&
		upgrades(r.Header["Connection"], r.Header["Upgrade"], r.ContentLength != 0)
}

// newForward sends requests on. It is one for the session: what differs is in
// the exchange that the request's context holds.
func (s *serving) newForward() *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:        rewrite,
		Transport:      roundTrip(s.roundTrip),
		FlushInterval:  -1, // an event that waits is an event lost
		BufferPool:     bufferPool{},
		ModifyResponse: s.modifyResponse,
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			s.failed(w, r, exchangeOf(r.Context()), err, r.Context().Err() != nil)
		},
	}
}

// endToEnd are fields that a client cannot have removed by naming them in
// Connection: they say who asks and for what.
var endToEnd = []string{"Authorization", "Cookie", "Content-Type", "Content-Encoding", "X-Api-Key"}

// authority is the name of the host as it stands in Host.
func (x *exchange) authority() string {
	if x.link.tls && x.to.port == portHTTPS || !x.link.tls && x.to.port == portHTTP {
		return bracket(x.to.host)
	}
	return x.to.String()
}

// requestURI is what stands in the request line.
func (x *exchange) requestURI() string {
	if !x.asked {
		return x.path
	}
	return x.path + "?" + x.swap.Query(x.query)
}

func rewrite(pr *httputil.ProxyRequest) {
	x := exchangeOf(pr.In.Context())
	in, out := pr.In, pr.Out
	scheme := "http"
	if x.link.tls {
		scheme = "https"
	}
	out.Host = x.authority()
	out.URL = &url.URL{Scheme: scheme, Host: x.to.String(), RawQuery: x.swap.Query(x.query), ForceQuery: x.asked && x.query == ""}
	if x.path == "*" {
		out.URL.Opaque = "*"
	} else {
		out.URL.RawPath = x.path
		out.URL.Path, _ = url.PathUnescape(x.path)
	}
	// The reverse proxy took these for a server's business; to us they are the
	// client's words to the host.
	for _, name := range []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto"} {
		if v, ok := in.Header[name]; ok {
			out.Header[name] = v
		}
	}
	for _, name := range endToEnd {
		if v, ok := in.Header[name]; ok {
			out.Header[name] = v
		}
	}
	out.Header.Del("Http2-Settings")
	out.Header.Del("Upgrade")
	out.Header.Del("Connection")
	out.Close = mayOverlook(in)
	x.swap.Header(out.Header)
	x.readable(out.Header)
	x.listing.ask(out.Header)
	if out.Trailer = in.Trailer; len(in.Trailer) > 0 && out.Body == nil {
		// An empty body of which that was said: what follows it comes by it, and it
		// goes out as one whose length nobody knows.
		out.Body, out.ContentLength = in.Body, -1
		out.Close = mayOverlook(out)
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip makes a function a transport.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var errPathChanged = errors.New("BUG: the path that was judged is not the path that would be sent")

// roundTrip sends a request that was allowed, and records that as soon as it
// is known where it goes: before its first byte.
func (s *serving) roundTrip(r *http.Request) (*http.Response, error) {
	x := exchangeOf(r.Context())
	if x == nil || r.URL.EscapedPath() != x.path && x.path != "*" {
		return nil, errPathChanged
	}
	trace := &httptrace.ClientTrace{GotConn: func(info httptrace.GotConnInfo) {
		if a, ok := addrOf(info.Conn); ok {
			x.v.reached(a)
		}
	}, Got1xxResponse: func(_ int, h textproto.MIMEHeader) error { // the reverse proxy passes it on next
		delete(h, "Alt-Svc")
		x.mask.MaskHeader(http.Header(h))
		return nil
	}}
	return s.transport(x.opened).RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
}

func (s *serving) modifyResponse(res *http.Response) error {
	// The client would try to reach the alternative past this proxy.
	res.Header.Del("Alt-Svc")
	x := exchangeOf(res.Request.Context())
	if x == nil || res.StatusCode == http.StatusSwitchingProtocols {
		return errSwitched
	}
	if s.rejected(res.Request.Context(), x, res.StatusCode) {
		return errRejected
	}
	if _, ok := res.Header["Content-Type"]; !ok {
		x.w.Header()["Content-Type"] = nil // or net/http would guess one
	}
	if err := x.listing.follow(res); err != nil {
		return err
	}
	return x.masked(res)
}

// failed answers what was allowed and could not be done.
func (s *serving) failed(w http.ResponseWriter, r *http.Request, x *exchange, err error, gone bool) {
	if x == nil {
		answer(w, http.StatusInternalServerError, "BUG: a request without a verdict\n")
		return
	}
	if reason, blocked := blockedReason(err); blocked {
		s.deny(w, r, x.v.deny(reason), http.StatusForbidden)
		return
	}
	if r.ProtoMajor < 2 {
		w.Header().Set("Connection", "close") // over HTTP/2 it ends its stream, see deny
	}
	if x.taken.Load() {
		answer(w, http.StatusForbidden, "mojoup-node: "+s.session.Keys.Withdrawn(x.use())+"\n"+
			"Trying again is refused. The person you work for can look at `mojoup-node secret list` and `mojoup-node signin status`, and give it again.\n")
		return
	}
	if errors.Is(err, errRejected) {
		w.Header().Set("Retry-After", "1")
		answer(w, http.StatusServiceUnavailable, "mojoup-node: "+err.Error()+": try again\n")
		return
	}
	if e, ok := w.(*http1); ok {
		if why := e.c.refused.Load(); why != nil {
			answer(w, why.status, why.text())
			return
		}
	}
	var why *refusal
	if errors.As(err, &why) && why.misuse != nil {
		answer(w, why.status, why.text())
		return
	}
	sentence := Unreachable(x.to.host, err)
	if !gone {
		s.log.Info("reaching a host", "host", x.to.host, "port", x.to.port, "err", err)
		x.v.fail(sentence)
	}
	answer(w, http.StatusBadGateway, "mojoup-node: "+sentence+"\n")
}

// copyBuffers are borrowed for as long as there is something to carry: who
// waits holds none.
var copyBuffers = sync.Pool{New: func() any { return new([copyBuffer]byte) }}

// borrow returns an empty buffer that may grow.
func borrow() []byte { return copyBuffers.Get().(*[copyBuffer]byte)[:0] }

// give takes a buffer back, unless it has grown.
func give(b []byte) {
	if cap(b) == copyBuffer {
		copyBuffers.Put((*[copyBuffer]byte)(b[:copyBuffer]))
	}
}

type bufferPool struct{}

func (bufferPool) Get() []byte { return borrow()[:copyBuffer] }

func (bufferPool) Put(b []byte) { give(b) }
