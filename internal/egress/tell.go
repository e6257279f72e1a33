package egress

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// check refuses an answer that cannot be passed on.
func (e *http1) check(x *exchange, r *http.Request, a *reply) error {
	if a.status == http.StatusSwitchingProtocols {
		if !x.upgrade || !strings.EqualFold(a.upgrade, r.Header.Get("Upgrade")) {
			return errSwitched
		}
		return nil
	}
	follow := x.listing.follows(a.status, a.kind)
	if a.body == nil || x.mask == nil && !follow {
		return nil
	}
	zipped, err := zippedOnly(a.encoding)
	if zipped {
		a.body, a.length, a.plain, a.unzipped = &unzipped{from: a.body}, -1, false, true
	}
	if follow {
		a.body, a.plain = &followed{ReadCloser: io.NopCloser(a.body), listing: x.listing}, false
	}
	return err
}

// tell passes the answer on and reports whether it came to its end.
func (e *http1) tell(x *exchange, a *reply) bool {
	chunked := a.body != nil && a.length < 0 && e.head.minor == '1'
	if a.body != nil && a.length < 0 && !chunked {
		e.keep = false
	}
	out := e.appendFields(startLine(borrow(), x, a), x, a, chunked)
	if !e.keep {
		out = appendField(out, "Connection", "close")
	}
	out = append(out, crlf+crlf...)
	if a.body == nil || !e.ready(a) || len(out) > copyBuffer/4 {
		_, err := e.c.Write(out)
		give(out)
		if err != nil || a.body == nil {
			return err == nil
		}
		out = borrow()
	}
	t := telling{e: e, a: a, mask: x.mask, chunked: chunked, out: out}
	defer func() { give(t.out) }()
	return t.run()
}

// ready reports whether the first piece of the body is there, so that it goes
// out together with the head. A head must not wait for its body.
func (e *http1) ready(a *reply) bool {
	in := e.up.in
	if !a.plain {
		return false
	}
	if !a.chunked {
		return in.Buffered() > 0
	}
	data, _ := in.Peek(in.Buffered())
	end := bytes.IndexByte(data, '\n')
	return end >= 0 && end < len(data)-1
}

// startLine appends the first line of an answer that is passed on, masked: its
// reason may be any words of the server's.
func startLine(out []byte, x *exchange, a *reply) []byte {
	out = append(append(out, "HTTP/1.1 "...), a.line...)
	x.mask.Mask(out[len(out)-len(a.line):])
	return out
}

// appendFields appends the fields of an answer, masked. How its body is framed
// is said by us.
func (e *http1) appendFields(out []byte, x *exchange, a *reply, chunked bool) []byte {
	counted := a.status >= 200 && a.status != http.StatusNoContent && a.length >= 0
	for _, f := range a.fields {
		switch {
		case f.key == "Content-Length" && !counted, f.key == "Content-Encoding" && a.unzipped, f.key == "Trailer" && !chunked:
			continue
		case f.key == "Alt-Svc": // the client would try to reach it past this proxy
			continue
		case f.key == "Upgrade", hopByHop(f.key), named(a.fields, f.name) && f.key != "Content-Length":
			continue
		}
		out = appendMasked(out, f, x.mask)
	}
	if chunked {
		out = appendField(out, "Transfer-Encoding", "chunked")
	}
	return out
}

func appendMasked(out []byte, f field, mask *secrets.Masker) []byte {
	at := len(out)
	out = appendField(out, f.name, f.value)
	mask.Mask(out[at:])
	return out
}

// A telling carries the body of an answer. What comes is given on at once, but
// for an end that may be the beginning of a key.
type telling struct {
	e       *http1
	a       *reply
	mask    *secrets.Masker
	chunked bool
	out     []byte // goes out before the next piece: the head, or nothing
	held    []byte // of the body: may be the beginning of a key
}

const (
	copyBuffer = 64 << 10
	chunkHead  = len("ffff" + crlf)
	chunkRoom  = len(crlf+"0"+crlf) + len(crlf) // behind a piece
)

func (t *telling) run() bool {
	for {
		if len(t.out)+len(t.held) == 0 && t.a.plain && t.e.up.in.Buffered() == 0 {
			// Nothing is borrowed while nothing comes.
			give(t.out)
			_, _ = t.e.up.in.Peek(1) // an error is met again below
			t.out = borrow()
		}
		at := len(t.out)
		if t.chunked {
			at += chunkHead
		}
		buf := t.out[:cap(t.out)]
		have := copy(buf[at:], t.held)
		n, err := t.a.body.Read(buf[at+have : len(buf)-chunkRoom])
		piece := t.masked(buf[at:at+have+n], err != nil)
		if err != nil && err != io.EOF {
			t.write(buf, at, piece, false)
			return false
		}
		if !t.write(buf, at, piece, err == io.EOF) {
			return false
		}
		if err == io.EOF {
			return true
		}
	}
}

// masked masks a piece and returns what of it can be given on.
func (t *telling) masked(piece []byte, last bool) []byte {
	t.held = t.held[:0]
	switch {
	case t.mask == nil:
	case last:
		t.mask.Mask(piece)
	default:
		hold := t.mask.Part(piece)
		t.held = append(t.held, piece[len(piece)-hold:]...)
		piece = piece[:len(piece)-hold]
	}
	return piece
}

// write writes what stands in front of the piece, the piece with its framing,
// and the end, as one. The piece lies in buf, at.
func (t *telling) write(buf []byte, at int, piece []byte, last bool) bool {
	from, end := at-len(t.out), at+len(piece)
	if t.chunked {
		from -= chunkHead
	}
	if t.chunked && len(piece) > 0 {
		var digits [chunkHead]byte
		head := append(strconv.AppendInt(digits[:0], int64(len(piece)), 16), crlf...)
		copy(buf[at-len(head):], head)
		skip := chunkHead - len(head)
		copy(buf[from+skip:], t.out)
		from += skip
		end += copy(buf[end:], crlf)
	} else if t.chunked {
		// No chunk: a size of 0 would be the end.
		end = at - chunkHead
	}
	out := buf[from:end]
	if t.chunked && last {
		out = append(out, "0"...)
		for _, f := range t.trailers() {
			out = appendMasked(out, f, t.mask)
		}
		out = append(out, crlf+crlf...)
	}
	t.out = buf[:0]
	if len(out) == 0 {
		return true
	}
	_, err := t.e.c.Write(out)
	return err == nil
}

// trailers are what may follow a body.
func (t *telling) trailers() (out []field) {
	for key, values := range t.a.odd {
		for _, v := range values {
			out = append(out, field{key, key, v})
		}
	}
	for _, f := range t.a.trailer {
		if f.key != "Content-Length" && f.key != "Transfer-Encoding" && f.key != "Trailer" && f.key != "Host" {
			out = append(out, f)
		}
	}
	return out
}

// settle ends an exchange whose answer was given, and keeps what can be used
// again.
func (e *http1) settle(a *reply) {
	sent := true
	if e.upload != nil {
		select {
		case sent = <-e.upload:
			e.upload = nil
		case <-time.After(e.serving.proxy.limits.linger):
			// The host has answered and does not want the rest.
			e.stopUpload()
			sent = false
		}
	}
	e.c.dismiss()
	up := e.up
	gone := !e.hold(nil, nil)
	e.keep = e.keep && sent && !gone && e.c.whole()
	e.c.early = !e.c.whole()
	if gone || !sent || a.close || up.in.Buffered() > 0 {
		_ = up.Close()
		return
	}
	up.uses++
	e.serving.pool.put(up)
}

// drop ends an exchange that came to nothing.
func (e *http1) drop() {
	if e.up != nil {
		_ = e.up.Close()
	}
	if e.upload != nil {
		e.stopUpload()
	}
	e.c.dismiss()
	e.c.early = !e.c.whole()
}

// stopUpload waits until nobody reads from the client any more.
func (e *http1) stopUpload() {
	_ = e.up.Close()
	_ = e.c.SetReadDeadline(time.Unix(1, 0))
	<-e.upload
	_ = e.c.SetReadDeadline(time.Time{})
	e.upload = nil
}

// switched makes both connections one: after an upgrade their bytes are no
// HTTP. What of a WebSocket comes in is masked.
func (e *http1) switched(x *exchange, a *reply) {
	e.c.dismiss()
	e.holdKeys()
	out := startLine(borrow(), x, a)
	for _, f := range a.fields {
		if f.key != "Alt-Svc" && f.key != "Content-Length" && f.key != "Transfer-Encoding" {
			out = appendMasked(out, f, x.mask)
		}
	}
	out = append(out, crlf+crlf...)
	_, err := e.c.Write(out)
	give(out)
	if err != nil || e.hasGone() {
		e.drop()
		return
	}
	host := &switchedHost{upstream: e.up, from: e.up.in}
	if x.mask != nil {
		host.from = &frames{mask: x.mask, from: e.up.in}
	}
	tun := &tunnel{inside: e.c, outside: host, wait: e.serving.proxy.limits.halfOpen}
	tun.run()
}

// A switchedHost is the host's side of a connection that was upgraded.
type switchedHost struct {
	*upstream
	from io.Reader
}

func (h *switchedHost) Read(p []byte) (int, error) { return h.from.Read(p) }

// CloseWrite ends one direction.
func (h *switchedHost) CloseWrite() error { return closeWrite(h.Conn) }

// Close says goodbye too.
func (h *switchedHost) Close() error {
	h.retire()
	return nil
}
