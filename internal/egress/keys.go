package egress

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// bound makes the proxy read what goes to a host that a key of the session is
// bound to: its stand-in is swapped in requests, and the key masked in
// answers. Bytes that nobody reads could hold neither.
func (s *serving) bound(r policy.Request, d policy.Decision) policy.Decision {
	if d.Allowed && r.Method == "" && r.TLS && (s.session.Keys.Bound(r.Host, r.Port) || s.answered(r.Host, r.Port)) {
		d.Inspect, d.Raw = true, false
	}
	return d
}

// keys finds the stand-ins in a request that the policy allows. A misuse is a
// denial of the node's own.
func (s *serving) keys(x *exchange, r *http.Request) (policy.Decision, bool) {
	ring := s.session.Keys
	if ring == nil {
		return policy.Decision{}, true
	}
	swap, misuse := ring.Look(lookOf(x, r))
	if s.session.Keeper != nil && len(swap.Names()) > 0 && s.session.Keeper.Fresh(r.Context(), swap.Names()) {
		swap, misuse = ring.Look(lookOf(x, r))
	}
	if misuse != nil {
		x.v.misused(misuse)
		return ofSecret(misuse), false
	}
	x.swap = swap
	if !x.link.tls || !ring.Bound(x.to.host, x.to.port) {
		return policy.Decision{}, true
	}
	x.mask = ring.Masker()
	if x.upgrade && !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") {
		return policy.Decision{Layer: policy.LayerNode, Reason: "a key is bound to this host, and what follows an upgrade to anything but WebSocket cannot be read"}, false
	}
	return policy.Decision{}, true
}

// ofSecret is the denial of a request with a misused stand-in.
func ofSecret(m *secrets.Misuse) policy.Decision {
	return policy.Decision{Rule: "secret " + m.Secret, Layer: policy.LayerNode, Reason: m.Reason}
}

// lookBehind has the fields looked at that come behind the body, and what stands
// beside the sizes of its chunks: no key goes there, and a stand-in in one ends the
// request before the host has all of it.
func (s *serving) lookBehind(x *exchange, r *http.Request) {
	ring := s.session.Keys
	if ring == nil {
		return
	}
	to := secrets.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Path: x.path}
	look := func(h http.Header, names ...string) *refusal {
		behind := to
		behind.Header, behind.Names = h, names
		return refuseMisuse(ring.Trailer(behind))
	}
	e, isHTTP1 := x.w.(*http1)
	switch {
	case isHTTP1 && r.ContentLength < 0: // only what is in chunks has any
		e.c.frame.aside = func(extension string) *refusal { return refuseMisuse(ring.Extension(to, extension)) }
		came := http.Header{}
		e.c.frame.look = func(f field) *refusal {
			came[f.key] = append(came[f.key], f.value)
			return look(http.Header{f.key: came[f.key]}, f.name)
		}
	case !isHTTP1 && len(r.Trailer) > 0: // their names are in the head
		r.Body = &trailed{r.Body, func() *refusal {
			var names []string
			for name := range r.Trailer {
				names = append(names, strings.ToLower(name)) // as they are sent on
			}
			if why := look(r.Trailer, names...); why != nil {
				return x.link.refuseBody(why, asked{x.to, r.Method, x.path})
			}
			return nil
		}}
	}
}

func refuseMisuse(m *secrets.Misuse) *refusal {
	if m == nil {
		return nil
	}
	return &refusal{status: http.StatusForbidden, reason: m.Reason, misuse: m}
}

// trailed is a body of HTTP/2 whose trailers are looked at when they have come.
type trailed struct {
	io.ReadCloser
	look func() *refusal
}

func (t *trailed) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	if err == io.EOF {
		if why := t.look(); why != nil {
			t.look = func() *refusal { return why }
			return n, why
		}
	}
	return n, err
}

// A Keeper knows keys that somebody else renews while the session runs. Its
// methods are asked from many goroutines.
type Keeper interface {
	// Fresh is asked before these keys are put into a request, and reports whether
	// one of them is another by now. It returns at once where they are good.
	Fresh(ctx context.Context, names []string) (changed bool)
	// Rejected is asked where a host has answered 401 to a request in which
	// these keys stood. It reports whether one of them is another by now.
	Rejected(ctx context.Context, names []string, host, path string) bool
}

// errRejected says that a host did not take a key of which there is another by
// now. Programs that know nothing of the one that they have give up at a 401,
// and try again where a host is not available.
var errRejected = errors.New("the host did not take a token that has been renewed since")

// rejected reports whether an answer is such a 401.
func (s *serving) rejected(ctx context.Context, x *exchange, status int) bool {
	return status == http.StatusUnauthorized && s.session.Keeper != nil && len(x.swap.Names()) > 0 &&
		s.session.Keeper.Rejected(ctx, x.swap.Names(), x.to.host, x.path)
}

// hold cuts an exchange off when a key that it takes along is withdrawn, or bound
// elsewhere, or the session's own token of a host: a stream or a WebSocket could go
// on for hours. ended is called when the exchange is over.
func (s *serving) hold(x *exchange, off func()) (ended func()) {
	release := s.session.Keys.Hold(x.use(), func() {
		x.taken.Store(true)
		off()
	})
	return func() {
		release()
		if x.taken.Load() {
			x.v.fail(s.session.Keys.Withdrawn(x.use()))
		}
	}
}

// use is what of the session's keys it goes on with.
func (x *exchange) use() secrets.Use {
	names := x.names
	if own := x.swap.Own(); len(own) > 0 {
		names = slices.Concat(names, own)
	}
	return secrets.Use{Names: names, Host: x.to.host, Port: x.to.port, Seen: x.turn}
}

func lookOf(x *exchange, r *http.Request) secrets.Request {
	return secrets.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: r.Method, Path: x.path, Header: r.Header, Query: x.query, Names: x.oddNames(r)}
}

// longName is how long the name of a field must be to be looked at.
const longName = 12

// oddNames are names of fields in which a stand-in could stand: as they are sent on,
// which is not how net/http keeps them.
func (x *exchange) oddNames(r *http.Request) (names []string) {
	if e, ok := x.w.(*http1); ok {
		for _, f := range e.head.fields {
			if f.name != f.key && len(f.name) >= longName {
				names = append(names, f.name)
			}
		}
		return names
	}
	for name := range r.Header {
		if len(name) >= longName {
			names = append(names, strings.ToLower(name))
		}
	}
	return names
}

// withKeys says in the reason of an allow which keys the request takes along.
func withKeys(d policy.Decision, names []string) policy.Decision {
	if len(names) > 0 {
		d.Reason += "; with the key of " + strings.Join(names, ", ")
	}
	return d
}

// swapBody puts keys into the fields of the body that a binding names. Where it
// is too long for that and asks for one, that is said instead of sending it on
// in vain. A compressed one passes as it is.
func (s *serving) swapBody(x *exchange, r *http.Request) (names []string, refused string, err error) {
	ring := s.session.Keys
	if !x.link.tls || r.ContentLength == 0 || r.Header.Get("Content-Encoding") != "" || !ring.InBody(x.to.host, x.to.port, x.path) {
		return nil, "", nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, secrets.MaxBody+1))
	if err != nil {
		return nil, "", fmt.Errorf("reading the body that a key is bound to: %w", err)
	}
	if misuse := ring.WithdrawnInBody(x.to.host, x.to.port, x.path, r.Header.Get("Content-Type"), body); misuse != nil {
		x.v.misused(misuse)
		return nil, misuse.Reason, nil
	}
	if len(body) > secrets.MaxBody {
		if names := ring.Unswapped(x.to.host, x.to.port, x.path, r.Header.Get("Content-Type"), body); len(names) > 0 {
			return nil, fmt.Sprintf("the body is longer than %d KiB, so the key of %s cannot be put in it", secrets.MaxBody>>10, strings.Join(names, ", ")), nil
		}
		r.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(body), r.Body), r.Body}
		return nil, "", nil
	}
	body, names = ring.SwapBody(x.to.host, x.to.port, x.path, r.Header.Get("Content-Type"), body)
	r.Body, r.ContentLength, r.TransferEncoding = io.NopCloser(bytes.NewReader(body)), int64(len(body)), nil
	return names, "", nil
}

var identityOnly = []string{"identity"}

// readable asks the host for an answer in which a key could be found.
func (x *exchange) readable(h http.Header) {
	if x.mask == nil {
		return
	}
	h["Accept-Encoding"] = identityOnly
	if h.Get("Grpc-Accept-Encoding") != "" {
		h.Set("Grpc-Accept-Encoding", "identity")
	}
	h.Del("Sec-Websocket-Extensions") // or messages may be compressed
}

// An encodingError says that a host answered in a way in which a key could not
// be found.
type encodingError struct{ encoding string }

func (e *encodingError) Error() string {
	return fmt.Sprintf("answered in the encoding %q, in which its key could not be masked, although it was asked for none.", printable(e.encoding, 40))
}

// masked makes an answer over HTTP/2 one in which no key stands.
func (x *exchange) masked(res *http.Response) error {
	if x.mask == nil {
		return nil
	}
	if err := decode(res); err != nil {
		return err
	}
	x.mask.MaskHeader(res.Header)
	x.mask.MaskHeader(res.Trailer) // whose names are told ahead
	if res.Body != nil && res.Body != http.NoBody {
		res.Body = &maskedBody{Closer: res.Body, from: x.mask.Reader(res.Body), mask: x.mask, res: res}
	}
	return nil
}

// decode undoes what a server compressed unasked.
func decode(res *http.Response) error {
	if bodiless(res.Request.Method, res.StatusCode) {
		return nil
	}
	zipped, err := zippedOnly(strings.Join(res.Header["Content-Encoding"], ","))
	if zipped {
		res.Header.Del("Content-Encoding")
		res.Header.Del("Content-Length")
		res.ContentLength = -1
		res.Body = &unzipped{Closer: res.Body, from: res.Body}
	}
	return err
}

// zippedOnly reports whether a body is in the one encoding that servers use
// unasked, which is undone. In any other but none no key could be found.
func zippedOnly(encoding string) (bool, error) {
	zipped := false
	for one := range strings.SplitSeq(encoding, ",") {
		switch strings.ToLower(strings.TrimSpace(one)) {
		case "", "identity":
			continue
		case "gzip", "x-gzip":
			if !zipped {
				zipped = true
				continue
			}
		}
		return false, &encodingError{strings.Trim(encoding, ", ")}
	}
	return zipped, nil
}

// unzipped begins to read when it is read: an answer's head must not wait for
// its body.
type unzipped struct {
	io.Closer
	from io.Reader
	zip  *gzip.Reader
}

func (u *unzipped) Read(p []byte) (n int, err error) {
	if u.zip == nil {
		if u.zip, err = gzip.NewReader(u.from); err != nil {
			return 0, err
		}
	}
	return u.zip.Read(p)
}

// maskedBody masks an answer's body, and its trailers when they have come.
type maskedBody struct {
	io.Closer
	from io.Reader
	mask *secrets.Masker
	res  *http.Response
}

func (b *maskedBody) Read(p []byte) (int, error) {
	n, err := b.from.Read(p)
	if err == io.EOF {
		b.mask.MaskHeader(b.res.Trailer)
	}
	return n, err
}
