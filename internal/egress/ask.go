package egress

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httputil"
	"slices"
	"strconv"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

var (
	errGone     = errors.New("the program went away")
	errInterim  = errors.New("the host never came to its answer")
	errLength   = errors.New("BUG: a body is not as long as was said")
	errSwitched = errors.New("the host switched protocols without being asked")
)

// send sends an allowed request on, and its answer back.
func (e *http1) send(x *exchange, r *http.Request) {
	x.swap.Header(r.Header)
	x.readable(r.Header)
	x.listing.ask(r.Header)
	a, err := e.ask(x, r)
	if err == nil {
		err = e.check(x, r, a)
	}
	if err == nil && e.serving.rejected(e.ctx, x, a.status) {
		err = errRejected
	}
	switch {
	case err != nil:
		e.drop()
		e.serving.failed(e, r, x, err, e.hasGone())
		return
	case a.status == http.StatusSwitchingProtocols:
		e.passed, e.keep = true, false
		e.switched(x, a)
		return
	}
	e.passed = true
	if !e.tell(x, a) {
		e.drop()
		e.keep = false
		e.c.abort()
		return
	}
	e.settle(a)
}

// ask sends the request and returns what the host answers. A connection that
// was kept may be closed by its server in the same moment; then another one is
// tried if nothing can have been done.
func (e *http1) ask(x *exchange, r *http.Request) (*reply, error) {
	for {
		out, err := e.appendRequest(borrow(), x, r)
		if err != nil {
			give(out)
			return nil, err
		}
		more := e.more(x, r)
		if more {
			e.holdKeys() // whoever uploads may do so for long, and is not watched
		}
		if !more && !e.c.watch.armed {
			e.c.attend(e.left)
		}
		up, err := e.put(x, out)
		give(out)
		if up == nil {
			return nil, err
		}
		if more && err == nil {
			e.startUpload(up, r)
		}
		a, unheard := e.hear(x, r, up)
		switch {
		case unheard == nil:
			a.close = a.close || err != nil || mayOverlook(r)
			return a, nil
		case err != nil:
			return nil, err
		case up.uses == 0 || r.ContentLength != 0 || !safe(r.Method) || e.hasGone():
			return nil, unheard
		}
		_ = up.Close()
	}
}

// safe reports whether a method may be tried again without harm.
func safe(method string) bool {
	return method == http.MethodGet || method == http.MethodHead || method == http.MethodOptions || method == http.MethodTrace
}

// mayOverlook reports whether a server might not look for a body where this
// request has one. What it reads of that as its next request would have been
// judged by nobody, so it is to read no other on that connection.
func mayOverlook(r *http.Request) bool {
	return r.ContentLength != 0 && (safe(r.Method) || r.Method == http.MethodDelete)
}

// verbatim reports whether the body is sent on as it came, framing and all.
// Else somebody has read into it, and left another reader in its place.
func (e *http1) verbatim(r *http.Request) bool { return r.Body == io.ReadCloser((*requestBody)(e)) }

// more reports whether there is more of the request than what has come.
func (e *http1) more(x *exchange, r *http.Request) bool {
	if !e.verbatim(r) {
		return r.ContentLength < 0 || r.ContentLength > secrets.MaxBody
	}
	return !x.upgrade && !e.c.whole()
}

// put writes to a connection. If that fails with one that was kept, and none
// of it was taken, the next one is tried. An error with a connection means
// that there may be an answer all the same.
func (e *http1) put(x *exchange, out []byte) (*upstream, error) {
	for {
		up, err := e.connection(x)
		if err != nil {
			return nil, err
		}
		x.v.reached(up.addr)
		n, err := up.Write(out)
		if err == nil {
			return up, nil
		}
		if n > 0 || up.uses == 0 || e.hasGone() {
			return up, errors.Join(err, up.SetReadDeadline(time.Now().Add(e.serving.proxy.limits.linger)))
		}
		_ = up.Close()
	}
}

func (e *http1) connection(x *exchange) (*upstream, error) {
	s := e.serving
	o := e.outletOf(x)
	if up := s.pool.take(o); up != nil {
		if !e.hold(up, nil) {
			return nil, errGone
		}
		return up, nil
	}
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	if !e.hold(nil, cancel) {
		return nil, errGone
	}
	up, err := s.reach(ctx, o, x.opened)
	if err != nil {
		return nil, err
	}
	if !e.hold(up, nil) {
		return nil, errGone
	}
	return up, nil
}

// outletOf names where the request goes out, which is mostly where the one
// before it did.
func (e *http1) outletOf(x *exchange) outlet {
	if !slices.Equal(x.opened, e.opened) {
		e.opened, e.outlet.opened = x.opened, rangesKey(x.opened)
	}
	e.outlet.to, e.outlet.tls = x.to, x.link.tls
	return e.outlet
}

// hear returns the answer, and passes on what is said before it.
func (e *http1) hear(x *exchange, r *http.Request, up *upstream) (*reply, error) {
	for range maxInterim {
		a, err := up.readReply(r.Method)
		if err != nil || a.status >= 200 || a.status == http.StatusSwitchingProtocols {
			return a, err
		}
		if e.head.minor == '0' || a.status == http.StatusContinue && e.continued {
			continue
		}
		out := append(e.appendFields(startLine(borrow(), x, a), x, a, false), crlf+crlf...)
		_, err = e.c.Write(out)
		give(out)
		if err != nil {
			return nil, errGone
		}
	}
	return nil, errInterim
}

// appendRequest appends the request as it is sent on, and what of its body has
// come. Its fields keep their order and spelling.
func (e *http1) appendRequest(out []byte, x *exchange, r *http.Request) ([]byte, error) {
	out = append(append(out, r.Method...), ' ')
	out = append(append(out, x.requestURI()...), " HTTP/1.1"...)
	hosted, framed := false, false
	for i, f := range e.head.fields {
		switch {
		case f.key == "Host":
			out, hosted = appendField(out, f.name, x.authority()), true
		case f.key == "Content-Length" || f.key == "Transfer-Encoding":
			out, framed = appendFraming(out, r.ContentLength), true
		case f.key == "Connection" && x.upgrade:
			out = appendField(out, f.name, "Upgrade")
		case e.endsHere(f, x):
		default:
			if v, ok := e.value(r.Header, i); ok {
				out = appendField(out, f.name, v)
			}
		}
	}
	if !hosted {
		out = appendField(out, "Host", x.authority())
	}
	if !framed && r.ContentLength != 0 {
		out = appendFraming(out, r.ContentLength)
	}
	if mayOverlook(r) {
		out = appendField(out, "Connection", "close")
	}
	if v := r.Header["Accept-Encoding"]; len(v) > 0 && !slices.ContainsFunc(e.head.fields, func(f field) bool { return f.key == "Accept-Encoding" }) {
		out = appendField(out, "Accept-Encoding", v[0])
	}
	out = append(out, crlf+crlf...)
	if !e.verbatim(r) {
		if e.more(x, r) {
			return out, nil
		}
		body, err := io.ReadAll(r.Body)
		if err == nil && int64(len(body)) != r.ContentLength {
			err = errLength
		}
		return append(out, body...), err
	}
	out, why := e.c.takeBody(out)
	if why != nil {
		return out, why
	}
	return out, nil
}

func appendFraming(out []byte, length int64) []byte {
	if length < 0 {
		return appendField(out, "Transfer-Encoding", "chunked")
	}
	return strconv.AppendInt(appendField(out, "Content-Length", ""), length, 10)
}

// value is what field i of the request is sent on with, if it is.
func (e *http1) value(header http.Header, i int) (string, bool) {
	key, at := e.head.fields[i].key, 0
	values := header[key]
	if len(values) > 1 {
		for _, f := range e.head.fields[:i] {
			if f.key == key {
				at++
			}
		}
	}
	if at >= len(values) {
		return "", false
	}
	return values[at], true
}

// endsHere reports whether a field is between the client and us (RFC 9110,
// section 7.6.1).
func (e *http1) endsHere(f field, x *exchange) bool {
	switch f.key {
	case "Upgrade":
		return !x.upgrade
	case "Trailer":
		return e.head.length >= 0 || e.read
	case "Expect":
		return e.read
	case "Te", "Http2-Settings":
		return true
	}
	return hopByHop(f.key) || !slices.Contains(endToEnd, f.key) && named(e.head.fields, f.name)
}

func hopByHop(key string) bool {
	switch key {
	case "Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization", "Transfer-Encoding":
		return true
	}
	return false
}

// named reports whether Connection names a field.
func named(fields []field, name string) bool {
	for _, f := range fields {
		if f.key == "Connection" && f.value != "keep-alive" && hasToken([]string{f.value}, name) {
			return true
		}
	}
	return false
}

// requestBody is the body of the request, without its framing. Who waits to be
// told to send it is told so.
type requestBody http1

func (b *requestBody) Read(p []byte) (int, error) {
	e := (*http1)(b)
	if !e.read {
		e.read, e.decoded = true, io.Reader(e.c)
		if e.head.length < 0 {
			e.decoded = httputil.NewChunkedReader(e.c)
		}
		if len(e.req.Header["Expect"]) > 0 && e.head.minor == '1' && len(e.c.buffered()) == 0 {
			e.continued = true
			if _, err := io.WriteString(e.c, "HTTP/1.1 100 Continue\r\n\r\n"); err != nil {
				return 0, err
			}
		}
	}
	n, err := e.decoded.Read(p)
	if err == io.EOF {
		if _, err := io.Copy(io.Discard, e.c); err != nil { // trailers
			return n, err
		}
	}
	return n, err
}

func (b *requestBody) Close() error { return nil }

// startUpload sends what is not there yet, beside the answer: a host may answer
// before it has read all, or word by word.
func (e *http1) startUpload(up *upstream, r *http.Request) {
	e.upload = make(chan bool, 1)
	verbatim := e.verbatim(r)
	go func() {
		var err error
		switch {
		case verbatim:
			err = e.copyBody(up, e.c, -1)
		case r.ContentLength >= 0:
			err = e.copyBody(up, r.Body, r.ContentLength)
		default:
			w := httputil.NewChunkedWriter(up)
			if err = e.copyBody(w, r.Body, -1); err == nil {
				err = errors.Join(w.Close(), writeCRLF(up))
			}
		}
		if err == nil {
			e.c.attend(e.left)
		}
		e.upload <- err == nil
	}()
}

func writeCRLF(w io.Writer) error {
	_, err := io.WriteString(w, crlf)
	return err
}

// copyBody returns when the body has ended. If the client is at fault, the
// host must not take what it got for all, and is left at once. It must be of
// that length, unless that is -1.
func (e *http1) copyBody(w io.Writer, from io.Reader, length int64) error {
	buf := borrow()
	defer give(buf)
	buf = buf[:cap(buf)]
	for {
		n, err := from.Read(buf)
		if length >= 0 {
			if length -= int64(n); length < 0 || length > 0 && err == io.EOF {
				e.leave()
				return errLength
			}
		}
		if n > 0 {
			if _, err := w.Write(buf[:n]); err != nil {
				return err
			}
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			e.leave()
			return err
		}
	}
}
