package egress

import (
	"cmp"
	"errors"
	"io"
	"maps"
	"math"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
)

// maxInterim is how many answers of the kind 1xx may come before the real one.
const maxInterim = 100

// A reply is what a server says to one request.
type reply struct {
	status   int
	line     string  // the status line from its status on
	fields   []field // as they were sent
	length   int64   // of the body; -1 if only its end will show it
	chunked  bool
	close    bool // the connection is of no use afterwards
	encoding string
	kind     string // Content-Type
	upgrade  string
	body     io.Reader   // nil if there is none
	plain    bool        // body lies in the buffer as it is: nothing is held back behind it
	trailer  []field     // known when the body has ended
	odd      http.Header // net/http's trailers, then
	unzipped bool
}

// readReply reads an answer's head; its body can be read then. What is not in
// the usual form is left to net/http, which knows what servers get away with.
func (u *upstream) readReply(method string) (*reply, error) {
	u.left = maxResponseHead
	data, err := u.peekHead()
	if err != nil {
		return nil, err
	}
	if data != nil {
		if a, ok := parseReply(string(data), method, u.room); ok {
			u.room = a.fields
			_, err := u.in.Discard(len(data))
			u.left = math.MaxInt64
			a.read(u, method)
			return a, err
		}
	}
	return u.readOddReply(method)
}

// peekHead returns the head of an answer, which stays in the buffer. It is nil
// if the head does not fit, or has lines that do not end in CR LF.
func (u *upstream) peekHead() ([]byte, error) {
	var f framer
	for need := 1; ; need = u.in.Buffered() + 1 {
		if need > u.in.Size() {
			return nil, nil
		}
		if _, err := u.in.Peek(need); err != nil {
			return nil, err
		}
		data, err := u.in.Peek(u.in.Buffered())
		if err != nil {
			return nil, err
		}
		end, odd := f.end(data, crlf+crlf, len(data)+1, nil)
		if odd != nil {
			return nil, nil
		}
		if end > 0 {
			return data[:end], nil
		}
	}
}

// parseReply reads a head that is in order. It takes less than net/http does
// and reads what it takes the same way.
func parseReply(text, method string, room []field) (*reply, bool) {
	a := &reply{length: -1, fields: room[:0]}
	line, rest, _ := strings.Cut(text, crlf)
	version, status, ok := strings.Cut(line, " ")
	if !ok || version != "HTTP/1.1" && version != "HTTP/1.0" || !a.statusLine(status) {
		return nil, false
	}
	var lengths, codings int
	var connection []string
	for rest != crlf && rest != "" {
		line, rest, _ = strings.Cut(rest, crlf)
		one, why := parseField(line)
		if why != nil {
			return nil, false
		}
		switch one.key {
		case "Content-Length":
			lengths++
			a.length, ok = decimal(one.value)
		case "Transfer-Encoding":
			codings++
			a.chunked, ok = true, one.value == "chunked"
		case "Connection":
			connection = append(connection, one.value)
		case "Content-Encoding":
			a.encoding += one.value + "," // several lines are one list
		case "Content-Type":
			a.kind = cmp.Or(a.kind, one.value)
		case "Upgrade":
			a.upgrade = one.value
		}
		if !ok || lengths+codings > 1 {
			return nil, false
		}
		a.fields = append(a.fields, one)
	}
	if version == "HTTP/1.0" {
		a.close = true
		return a, codings == 0
	}
	a.close = hasToken(connection, "close")
	return a, true
}

// statusLine reads a status and its reason.
func (a *reply) statusLine(s string) bool {
	if len(s) < 3 || len(s) > 3 && s[3] != ' ' || s[0] < '1' || !isPlain(s) {
		return false
	}
	n, ok := decimal(s[:3])
	a.status, a.line = int(n), s
	return ok
}

// bodiless reports whether an answer has none, whatever its fields say.
func bodiless(method string, status int) bool {
	return method == http.MethodHead || status < 200 || status == http.StatusNoContent || status == http.StatusNotModified
}

// read makes the body readable.
func (a *reply) read(u *upstream, method string) {
	switch {
	case bodiless(method, a.status):
		a.length = max(a.length, 0)
		return
	case a.chunked:
		a.body = &chunks{a: a, u: u, from: httputil.NewChunkedReader(u.in)}
	case a.length > 0:
		u.counted = counted{u: u, left: a.length}
		a.body = &u.counted
	case a.length < 0:
		a.body, a.close = u.in, true
	}
	a.plain = true
}

// counted is a body of known length. Its end comes with its last bytes.
type counted struct {
	u    *upstream
	left int64
}

func (c *counted) Read(p []byte) (int, error) {
	if c.left == 0 {
		return 0, io.EOF
	}
	n, err := c.u.in.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	if c.left == 0 {
		return n, io.EOF
	}
	return n, cutShort(err)
}

// chunks is a chunked body. Its end comes with its last bytes if it is there.
type chunks struct {
	a     *reply
	u     *upstream
	from  io.Reader
	ended bool
}

func (c *chunks) Read(p []byte) (int, error) {
	n, err := 0, error(io.EOF)
	if !c.ended {
		n, err = c.from.Read(p)
	}
	if err != io.EOF {
		return n, err
	}
	c.ended = true
	if next, _ := c.u.in.Peek(min(2, c.u.in.Buffered())); n > 0 && string(next) != crlf {
		return n, nil
	}
	return n, c.readTrailer()
}

var errTrailer = errors.New("the host's trailers are not in order")

// readTrailer reads up to and with the empty line, and ends the body.
func (c *chunks) readTrailer() error {
	for left := maxHeadBytes; ; {
		line, err := c.u.in.ReadSlice('\n')
		if err != nil {
			return cutShort(err)
		}
		if left -= len(line); left < 0 {
			return errTrailer
		}
		text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
		if text == "" {
			return io.EOF
		}
		one, why := parseField(text)
		if why != nil {
			return errTrailer
		}
		c.a.trailer = append(c.a.trailer, one)
	}
}

var errStatusLine = errors.New("the host's status line holds a control character")

// readOddReply reads an answer as net/http does.
func (u *upstream) readOddReply(method string) (*reply, error) {
	res, err := http.ReadResponse(u.in, &http.Request{Method: method})
	if err != nil {
		return nil, cutShort(err)
	}
	if !isPlain(res.Status) { // the one thing that net/http passes on unlooked at
		return nil, errStatusLine
	}
	u.left = math.MaxInt64
	a := &reply{
		status: res.StatusCode, line: res.Status, length: res.ContentLength, close: true,
		chunked: len(res.TransferEncoding) > 0, encoding: strings.Join(res.Header["Content-Encoding"], ","), kind: res.Header.Get("Content-Type"), upgrade: res.Header.Get("Upgrade"), odd: res.Trailer,
	}
	for _, key := range slices.Sorted(maps.Keys(res.Header)) {
		for _, v := range res.Header[key] {
			a.fields = append(a.fields, field{key, key, v})
		}
	}
	if !bodiless(method, a.status) {
		a.body = res.Body
	}
	return a, nil
}
