package egress

import (
	"context"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// An http1 answers the requests of one connection from inside, each before it
// looks at the next. It is also the [http.ResponseWriter] of answers of our
// own.
type http1 struct {
	serving *serving
	ctx     context.Context
	c       *client
	left    func()    // leave
	long    func()    // holdKeys
	x       *exchange // that goes on, while its keys may have to be held
	unhold  func()    // ends what holdKeys has begun, nil where it has not
	outlet  outlet    // of the request before
	opened  []netip.Prefix

	head      *head
	req       http.Request
	blank     *http.Request // what all requests have in common
	values    []string      // room for those of the request's header
	keep      bool          // another request may follow
	read      bool          // the body was asked for without its framing
	continued bool          // and the client was told to send it
	decoded   io.Reader
	upload    chan bool // gets whether the body was sent; nil if nobody sends it

	// An answer of our own.
	own    http.Header
	status int
	text   []byte
	passed bool // it is a server's answer, and on its way

	// mu guards what follows: the watch of the client uses it.
	mu     sync.Mutex
	gone   bool
	up     *upstream
	cancel context.CancelFunc // of dialling
}

// serveHTTP1 answers the request that begins with h, or says why it is none,
// and all that follow on its connection.
func (s *serving) serveHTTP1(ctx context.Context, c *client, h *head, err error) {
	defer c.Close()
	e := &http1{serving: s, ctx: ctx, c: c, own: http.Header{}}
	e.left, e.long = e.leave, e.holdKeys
	c.watch.long = e.long
	for {
		var why *refusal
		switch {
		case errors.As(err, &why):
			e.refuse(why)
			return
		case err != nil:
			s.cutOff(ctx, c)
			return
		case !e.answer(h):
			return
		}
		h, err = c.next(s.proxy.limits.idle)
	}
}

// serveFrom answers the requests on a connection that has just begun.
func (s *serving) serveFrom(ctx context.Context, c *client) {
	h, err := c.next(s.proxy.limits.idle)
	s.serveHTTP1(ctx, c, h, err)
}

// answer answers one request and reports whether another may follow.
func (e *http1) answer(h *head) bool {
	e.begin(h)
	// What follows an upgrade is no HTTP. If the host does not switch, the
	// connection ends, so that it is never read as HTTP either.
	e.keep = !h.close && !h.upgrade
	e.serving.handle(e, e.request(h), e.c.link)
	if !e.passed {
		e.say(h.method)
	}
	return e.keep && !e.hasGone()
}

// refuse answers what is no request.
func (e *http1) refuse(why *refusal) {
	e.begin(nil)
	v := e.serving.begin(e.c.link)
	v.about(e.c.link.inner.host, e.c.link.inner.port, why.method, "")
	e.serving.refuse(e, v, why)
	e.say("")
}

func (e *http1) begin(h *head) {
	clear(e.own)
	e.head, e.status, e.text, e.passed, e.keep = h, 0, e.text[:0], false, false
	e.read, e.continued, e.decoded, e.upload = false, false, nil, nil
	e.c.frame.look, e.c.frame.aside = nil, nil
}

// request is the request as the rest of the proxy sees it. It lives until the
// next one.
func (e *http1) request(h *head) *http.Request {
	header := e.req.Header
	if header == nil {
		header = make(http.Header, len(h.fields))
	}
	clear(header)
	e.values = slices.Grow(e.values[:0], len(h.fields))
	for _, f := range h.fields {
		if f.key == "Host" {
			continue // as net/http has it
		}
		if before, ok := header[f.key]; ok {
			header[f.key] = append(before, f.value)
			continue
		}
		at := len(e.values)
		e.values = append(e.values, f.value)
		header[f.key] = e.values[at : at+1 : at+1]
	}
	if e.blank == nil {
		e.blank = (&http.Request{Proto: "HTTP/1.1", ProtoMajor: 1}).WithContext(e.ctx)
	}
	r := &e.req
	*r = *e.blank
	r.Method, r.RequestURI, r.Host, r.Header = h.method, h.target, h.host, header
	r.ProtoMinor, r.ContentLength, r.Body = int(h.minor-'0'), h.length, (*requestBody)(e)
	return r
}

// Header implements [http.ResponseWriter].
func (e *http1) Header() http.Header { return e.own }

// WriteHeader implements [http.ResponseWriter].
func (e *http1) WriteHeader(status int) { e.status = status }

// Write implements [http.ResponseWriter].
func (e *http1) Write(p []byte) (int, error) {
	e.text = append(e.text, p...)
	return len(p), nil
}

// say sends an answer of our own.
func (e *http1) say(method string) {
	if e.own.Get("Connection") == "close" || !e.c.whole() {
		e.keep = false
	}
	out := append(make([]byte, 0, 1<<10), "HTTP/1.1 "...)
	out = strconv.AppendInt(out, int64(e.status), 10)
	out = append(append(out, ' '), http.StatusText(e.status)...)
	delete(e.own, "Connection")
	for _, key := range slices.Sorted(maps.Keys(e.own)) {
		out = appendField(out, key, strings.Join(e.own[key], ", "))
	}
	if e.status != http.StatusNoContent {
		out = appendField(out, "Content-Length", strconv.Itoa(len(e.text)))
	}
	if !e.keep {
		out = appendField(out, "Connection", "close")
		e.c.early = !e.c.whole()
	}
	out = append(out, crlf+crlf...)
	if method != http.MethodHead {
		out = append(out, e.text...)
	}
	if _, err := e.c.Write(out); err != nil {
		e.keep = false
	}
}

// appendField begins a new line: what ends the head is appended behind.
func appendField(out []byte, name, value string) []byte {
	out = append(append(out, crlf...), name...)
	return append(append(out, ": "...), value...)
}

// holdKeys has the exchange cut off when a key of it is withdrawn. Most exchanges
// are over before it is worth that: see [watch].
func (e *http1) holdKeys() {
	if e.x != nil && e.unhold == nil {
		e.unhold = e.serving.hold(e.x, e.leave)
	}
}

// over ends an exchange, of which nobody watches anything any more.
func (e *http1) over() {
	e.x = nil
	if e.unhold != nil {
		e.unhold()
		e.unhold = nil
	}
}

// leave ends what is done for a client that went away.
func (e *http1) leave() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.gone = true
	if e.cancel != nil {
		e.cancel()
	}
	if e.up != nil {
		_ = e.up.Close()
	}
}

// hold notes what has to end when the client goes away. It reports false if it
// has gone already.
func (e *http1) hold(up *upstream, cancel context.CancelFunc) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.up, e.cancel = up, cancel
	return !e.gone
}

func (e *http1) hasGone() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.gone
}
