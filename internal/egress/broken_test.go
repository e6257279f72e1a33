package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// h2 is a client that may say anything.
type h2 struct {
	*tls.Conn
	*http2.Framer
	block bytes.Buffer
	enc   *hpack.Encoder
}

func (w *world) h2(target string) *h2 {
	w.t.Helper()
	c := &h2{Conn: w.inside(target, "h2")}
	c.Framer, c.enc = http2.NewFramer(c.Conn, c.Conn), hpack.NewEncoder(&c.block)
	c.AllowIllegalWrites = true
	c.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	return c
}

func (c *h2) begin() {
	io.WriteString(c, http2.ClientPreface)
	c.WriteSettings()
}

// ask sends a head: an ordinary one, with further fields.
func (c *h2) ask(id uint32, method string, end bool, more ...string) {
	c.fields(id, end, append([]string{":method", method, ":scheme", "https", ":authority", "api.x.example", ":path", "/"}, more...)...)
}

func (c *h2) fields(id uint32, end bool, fields ...string) {
	c.block.Reset()
	for pair := range slices.Chunk(fields, 2) {
		c.enc.WriteField(hpack.HeaderField{Name: pair[0], Value: pair[1]})
	}
	const most = 16 << 10
	all := c.block.Bytes()
	part := all[:min(len(all), most)]
	all = all[len(part):]
	c.WriteHeaders(http2.HeadersFrameParam{StreamID: id, BlockFragment: part, EndStream: end, EndHeaders: len(all) == 0})
	for len(all) > 0 {
		part, all = all[:min(len(all), most)], all[min(len(all), most):]
		c.WriteContinuation(id, len(all) == 0, part)
	}
}

// long are n fields of 8 KiB, shorter than which they cannot be sent.
func long(n int) (fields []string) {
	for range n {
		fields = append(fields, "x-y", strings.Repeat("!", 8<<10))
	}
	return fields
}

// answers reads until so many requests were answered or refused, or the
// connection ends.
func (c *h2) answers(n int) (statuses []string) {
	for n > 0 {
		frame, err := c.ReadFrame()
		if err != nil {
			return append(statuses, "end")
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			if s := f.PseudoValue("status"); s != "" {
				statuses = append(statuses, s)
				n--
			}
		case *http2.RSTStreamFrame:
			if f.ErrCode != http2.ErrCodeNo {
				statuses = append(statuses, f.ErrCode.String())
				n--
			}
		}
	}
	return statuses
}

// TestT1_BrokenHTTP2IsRecorded: net/http refuses it by itself, and the record
// says so, whatever it was.
func TestT1_BrokenHTTP2IsRecorded(t *testing.T) {
	const order = "the request is not in order by the rules of HTTP/2"
	const ended = "what was sent is not in order by the rules of HTTP/2, and nothing more is read"
	for _, tt := range []struct {
		name string
		send func(*h2)
		want string
	}{
		{"a field's name in capitals", func(c *h2) { c.begin(); c.ask(1, "GET", true, "X-Y", "z") }, order},
		{"a field that ends a line", func(c *h2) { c.begin(); c.ask(1, "GET", true, "x-y", "z\r\nevil: 1") }, order},
		{"two paths", func(c *h2) { c.begin(); c.ask(1, "GET", true, ":path", "/b") }, order},
		{"no method", func(c *h2) { c.begin(); c.fields(1, true, ":scheme", "https", ":path", "/") }, order},
		{"a field of the connection", func(c *h2) { c.begin(); c.ask(1, "GET", true, "connection", "close") }, "the request has a field that HTTP/2 has no use for, as Connection"},
		{"CONNECT", func(c *h2) { c.begin(); c.ask(1, "CONNECT", true) }, order},
		{"a body that is too long", func(c *h2) {
			c.begin()
			c.ask(1, "POST", false, "content-length", "1")
			c.WriteData(1, true, []byte("more"))
		}, order},
		{"a long head", func(c *h2) { c.begin(); c.ask(1, "GET", true, long(9)...) }, "the request head is longer than 64 KiB"},
		{"an endless head", func(c *h2) { c.begin(); c.ask(1, "GET", true, long(50)...) }, ended},
		{"no end of a head", func(c *h2) {
			c.begin()
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			c.WriteData(1, true, []byte("x"))
		}, ended},
		{"a head that breaks off", func(c *h2) {
			c.begin()
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0x82}})
			c.CloseWrite()
		}, "the request head did not come to its end"},
		{"a frame that breaks off", func(c *h2) { c.begin(); io.WriteString(c, "\x00\x00"); c.CloseWrite() }, "the request head did not come to its end"},
		{"fields that cannot be read", func(c *h2) {
			c.begin()
			c.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: []byte{0xff, 0xff, 0xff}, EndHeaders: true, EndStream: true})
		}, "the fields of a request cannot be read, and nothing more is read"},
		{"a body before its head", func(c *h2) { c.begin(); c.WriteData(1, true, []byte("x")) }, ended},
		{"a frame of a wrong length", func(c *h2) { c.begin(); c.WriteRawFrame(http2.FramePing, 0, 0, []byte("short")) }, "a frame is not as long as it must be, and nothing more is read"},
		{"another protocol", func(c *h2) { io.WriteString(c, "GET / HTTP/1.1\r\nHost: api.x.example\r\n\r\n") }, "what came is not HTTP/2, which had been agreed on"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, inspecting("api.x.example"))
			w.serve(443, true, func(_ http.ResponseWriter, r *http.Request) { io.Copy(io.Discard, r.Body) })
			c := w.h2("api.x.example:443")
			tt.send(c)
			w.wait("the refusal", func(v Verdict) bool {
				return !v.Allowed && v.Reason == tt.want && v.Host == "api.x.example" && v.Port == 443
			})
			c.Close()
			w.stop()
			if n := w.count(false); n != 1 {
				t.Errorf("%d denials: %+v", n, w.recorded())
			}
		})
	}
}

// What is in order has the one verdict of its own, whatever comes of it.
func TestT1_HTTP2InOrderIsRecordedOnce(t *testing.T) {
	judge := judgeFunc(func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: r.Method != "PUT", Inspect: r.TLS && r.Method == ""}
	})
	w := newWorld(t, judge)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		status, _ := strconv.Atoi(r.Header.Get("X-Status"))
		rw.WriteHeader(status)
	})
	c := w.h2("api.x.example:443")
	c.begin()
	var want []string
	for i, status := range []string{"200", "431", "400", "404"} {
		c.ask(uint32(2*i+1), "GET", true, "x-status", status)
		want = append(want, c.answers(1)...)
	}
	if got := strings.Join(want, " "); got != "200 431 400 404" {
		t.Errorf("answered %s", got)
	}
	// A denial comes before the body has, and the rest of it is nobody's fault.
	c.ask(9, "PUT", false)
	if got := c.answers(1); got[0] != "403" {
		t.Errorf("answered %s", got)
	}
	for range 3 {
		c.WriteData(9, false, []byte("late"))
	}
	c.ask(11, "GET", true, "x-status", "200")
	for got := ""; got != "200"; {
		got = c.answers(1)[0]
		if got == "end" {
			t.Fatal("the connection ended")
		}
	}
	// A head of its own length after those: what is counted is counted off.
	c.ask(13, "GET", true, long(9)...)
	w.wait("the long head", func(v Verdict) bool { return v.Reason == errHeadTooLarge.reason })
	c.WriteRSTStream(13, http2.ErrCodeCancel)
	c.Close()
	w.stop()
	if allowed, denied := w.count(true), w.count(false); allowed != 6 || denied != 2 { // CONNECT and five; PUT and the long head
		t.Errorf("%d allows, %d denials: %+v", allowed, denied, w.recorded())
	}
}

// TestT1_BrokenHTTP1IsRecorded also where nothing was answered, or the answer
// had begun.
func TestT1_BrokenHTTP1IsRecorded(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).EnableFullDuplex()
		io.WriteString(rw, "begun")
		http.NewResponseController(rw).Flush()
		io.Copy(io.Discard, r.Body)
	})
	for name, tt := range map[string]struct{ first, then, want, method string }{
		"a head that breaks off":     {"", "GET / HTTP/1.1\r\nHost: api.x", "the request head did not come to its end", ""},
		"a second one that does":     {"GET / HTTP/1.1\r\nHost: api.x.example\r\n\r\n", "GET /second", "the request head did not come to its end", ""},
		"a line that is none":        {"", "GET / HTTP/1.1\r\nHost api.x.example\r\n\r\n", "a header field's name is not a token followed by a colon", ""},
		"a chunk behind the answer":  {"POST / HTTP/1.1\r\nHost: api.x.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "zz\r\n", "a chunk's size is not a plain hexadecimal number", "POST"},
		"a trailer about the length": {"POST / HTTP/1.1\r\nHost: api.x.example\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n", "0\r\nContent-Length: 1\r\n\r\n", "a trailer speaks about framing or routing", "POST"},
	} {
		before := w.count(false)
		c := w.inside("api.x.example:443", "http/1.1")
		io.WriteString(c, tt.first)
		if tt.first != "" {
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(name, err)
			}
			if _, err := io.ReadFull(res.Body, make([]byte, len("begun"))); err != nil {
				t.Fatal(name, err)
			}
		}
		io.WriteString(c, tt.then)
		c.CloseWrite()
		w.wait(name, func(v Verdict) bool {
			return !v.Allowed && v.Reason == tt.want && v.Host == "api.x.example" && v.Method == tt.method && w.count(false) > before
		})
		io.Copy(io.Discard, c)
		c.Close()
		if n := w.count(false) - before; n != 1 {
			t.Errorf("%s: %d denials: %s", name, n, fmt.Sprint(w.recorded()))
		}
	}
}
