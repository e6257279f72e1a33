package egress

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const proxied = "POST http://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\r\n"

// smuggled are heads and bodies that two servers may read in two ways.
var smuggled = map[string]string{
	"CL 5 and 6":              proxied + "Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
	"CL twice equal":          proxied + "Content-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
	"CL list":                 proxied + "Content-Length: 5, 5\r\n\r\nhello",
	"CL plus":                 proxied + "Content-Length: +5\r\n\r\nhello",
	"CL minus":                proxied + "Content-Length: -5\r\n\r\nhello",
	"CL hex":                  proxied + "Content-Length: 0x5\r\n\r\nhello",
	"CL empty":                proxied + "Content-Length:\r\n\r\nhello",
	"CL too long":             proxied + "Content-Length: 99999999999999999999\r\n\r\nhello",
	"CL, TE":                  proxied + "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE, CL":                  proxied + "Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
	"TE chunked, identity":    proxied + "Transfer-Encoding: chunked, identity\r\n\r\n0\r\n\r\n",
	"TE identity":             proxied + "Transfer-Encoding: identity\r\n\r\n",
	"TE gzip, chunked":        proxied + "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
	"TE twice":                proxied + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"TE space before colon":   proxied + "Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n",
	"TE vertical tab":         proxied + "Transfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n",
	"TE Chunked":              proxied + "Transfer-Encoding: Chunked\r\n\r\n0\r\n\r\n",
	"TE empty":                proxied + "Transfer-Encoding:\r\n\r\n",
	"TE in HTTP/1.0":          strings.Replace(proxied, "/1.1", "/1.0", 1) + "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"chunk 0x5":               proxied + "Transfer-Encoding: chunked\r\n\r\n0x5\r\nhello\r\n0\r\n\r\n",
	"chunk +5":                proxied + "Transfer-Encoding: chunked\r\n\r\n+5\r\nhello\r\n0\r\n\r\n",
	"chunk blank":             proxied + "Transfer-Encoding: chunked\r\n\r\n5 \r\nhello\r\n0\r\n\r\n",
	"chunk extension with LF": proxied + "Transfer-Encoding: chunked\r\n\r\n5;ext=\"a\nb\"\r\nhello\r\n0\r\n\r\n",
	"chunk bare LF":           proxied + "Transfer-Encoding: chunked\r\n\r\n5\nhello\r\n0\r\n\r\n",
	"chunk of 17 digits":      proxied + "Transfer-Encoding: chunked\r\n\r\n00000000000000005\r\nhello\r\n0\r\n\r\n",
	"chunk too short":         proxied + "Transfer-Encoding: chunked\r\n\r\n4\r\nhello\r\n0\r\n\r\n",
	"chunk without size":      proxied + "Transfer-Encoding: chunked\r\n\r\n\r\nhello\r\n0\r\n\r\n",
	"chunk line endless":      proxied + "Transfer-Encoding: chunked\r\n\r\n5;" + strings.Repeat("a", 300) + "\r\nhello\r\n0\r\n\r\n",
	"trailer with CL":         proxied + "Transfer-Encoding: chunked\r\n\r\n0\r\nContent-Length: 5\r\n\r\n",
	"too many trailers":       proxied + "Transfer-Encoding: chunked\r\n\r\n0\r\n" + strings.Repeat("A: b\r\n", 101) + "\r\n",
	"trailer folded":          proxied + "Transfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n c\r\n\r\n",
	"bare LF head":            strings.ReplaceAll(proxied, "\r\n", "\n") + "\n",
	"bare LF in one line":     "POST http://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\nX: y\r\n\r\n",
	"bare CR":                 proxied + "X: a\rb\r\n\r\n",
	"fold":                    proxied + "X: a\r\n b\r\n\r\n",
	"fold of first field":     "POST http://api.x.example/v1 HTTP/1.1\r\n Host: api.x.example\r\n\r\n",
	"NUL in value":            proxied + "X: a\x00b\r\n\r\n",
	"NUL in name":             proxied + "X\x00: b\r\n\r\n",
	"blank in name":           proxied + "X Y: b\r\n\r\n",
	"no colon":                proxied + "XY\r\n\r\n",
	"no name":                 proxied + ": b\r\n\r\n",
	"two Hosts":               proxied + "Host: api.x.example\r\n\r\n",
	"no Host":                 "POST http://api.x.example/v1 HTTP/1.1\r\nX: y\r\n\r\n",
	"two blanks":              "POST  http://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"tab in line":             "POST\thttp://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"HTTP/0.9":                "GET http://api.x.example/v1\r\n\r\n",
	"HTTP/1.2":                "GET http://api.x.example/v1 HTTP/1.2\r\nHost: api.x.example\r\n\r\n",
	"HTTP/2.0":                "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	"http/1.1":                "GET http://api.x.example/v1 http/1.1\r\nHost: api.x.example\r\n\r\n",
	"method not a token":      "G@T http://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"fragment":                "GET http://api.x.example/v1#x HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"empty line first":        "\r\n" + proxied + "\r\n",
	"Expect of another kind":  proxied + "Expect: 200-maybe\r\nContent-Length: 5\r\n\r\nhello",
	"not ASCII":               "GET http://api.x.example/\xff HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"broken escape":           "GET http://api.x.example/%zz HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
	"CONNECT with body":       "CONNECT api.x.example:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello",
	"TLS to the proxy":        "\x16\x03\x01\x00\xa5\x01\x00\x00\xa1\x03\x03\r\n\r\n",
}

func TestB24_AmbiguousRequestsAreRefused(t *testing.T) {
	if len(smuggled) < 50 {
		t.Fatalf("only %d requests", len(smuggled))
	}
	for name, raw := range smuggled {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, only("api.x.example", 80))
			var admin atomic.Bool
			w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/admin" {
					admin.Store(true)
				}
				_, _ = io.Copy(io.Discard, r.Body)
			})
			c := w.raw()
			io.WriteString(c, raw+"GET http://api.x.example/admin HTTP/1.1\r\nHost: api.x.example\r\n\r\n")
			br := bufio.NewReader(c)
			res, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(res.Body)
			if res.StatusCode != 400 || err != nil {
				t.Errorf("got %d %q %v, want 400", res.StatusCode, body, err)
			}
			if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
				t.Errorf("after the refusal came %q, %v, want the end", rest, err)
			}
			if admin.Load() {
				t.Error("the server has seen /admin")
			}
			refused := w.wait("the refusal", func(v Verdict) bool { return !v.Allowed })
			if !strings.Contains(string(body), refused.ID) {
				t.Errorf("the answer %q lacks the id %s", body, refused.ID)
			}
		})
	}
}

// A head of bare LFs never ends for a reader of CR LF; it is not waited for.
func TestB24_BareLFIsRefusedAtOnce(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	if res, _ := w.send(smuggled["bare LF head"]); res.StatusCode != 400 {
		t.Errorf("got %d", res.StatusCode)
	}
}

// After a refusal the client may go on sending for a while: a reset could take
// the answer from it.
func TestRefusedClientMayFinish(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80), func(_ *Options, l *limits) { l.linger = 10 * time.Second })
	c := w.raw()
	io.WriteString(c, smuggled["two Hosts"])
	if all, err := io.ReadAll(c); err != nil || !strings.HasPrefix(string(all), "HTTP/1.1 400 ") {
		t.Fatalf("%q %v", all, err)
	}
	for range 3 {
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			t.Fatal(err)
		}
	}
	c.Close()
}

// In a body, the reader gets an error and not a single byte of ours.
func TestRefusalInABodyIsAnError(t *testing.T) {
	inside, outside := net.Pipe()
	defer inside.Close()
	go func() {
		defer outside.Close()
		io.WriteString(outside, proxied+"Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n+1\r\nx\r\n0\r\n\r\n")
	}()
	p, err := New(Options{})
	if err != nil {
		t.Fatal(err)
	}
	var recorded []Verdict
	s := newServing(t.Context(), p, Session{ID: "s", Record: func(v Verdict) { recorded = append(recorded, v) }})
	c := newClient(inside, &link{serving: s})
	if _, err := c.next(time.Minute); err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(c)
	var why *refusal
	if !errors.As(err, &why) || !strings.HasSuffix(string(all), "5\r\nhello\r\n") {
		t.Errorf("%q, %v", all, err)
	}
	if len(recorded) != 1 || recorded[0].Reason != why.reason {
		t.Errorf("recorded %+v", recorded)
	}
}

// A refusal on a kept connection comes after the answers before it.
func TestB24_RefusalKeepsTheOrderOfAnswers(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) { io.WriteString(rw, r.URL.Path) })
	c := w.raw()
	good := "GET http://api.x.example/one HTTP/1.1\r\nHost: api.x.example\r\n\r\n"
	io.WriteString(c, good+strings.Replace(good, "one", "two", 1)+smuggled["CL, TE"]+good)
	br := bufio.NewReader(c)
	for _, want := range []string{"/one", "/two", "mojoup-node did not accept"} {
		res, err := http.ReadResponse(br, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); !strings.HasPrefix(string(body), want) {
			t.Errorf("got %q, want %q", body, want)
		}
	}
	if rest, err := io.ReadAll(br); len(rest) > 0 || err != nil {
		t.Errorf("then %q, %v", rest, err)
	}
}

func TestB24_OneFramingIsForwarded(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		io.WriteString(rw, strconv.FormatInt(r.ContentLength, 10)+" "+string(body)+" "+r.Trailer.Get("X-Sum"))
	})
	for raw, want := range map[string]string{
		proxied + "Content-Length:  5 \r\n\r\nhello":                               "5 hello ",
		proxied + "Content-Length: 0\r\n\r\n":                                      "0  ",
		proxied + "\r\n":                                                           "0  ",
		proxied + "tRANSFER-ENCODING:\tchunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n":     "-1 hello ",
		proxied + "Transfer-Encoding: chunked\r\n\r\n5;a=b\r\nhello\r\n00\r\n\r\n": "-1 hello ",
		proxied + "Transfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n3\r\nhel\r\nA\r\nlo, world.\r\n0\r\nX-Sum: 1\r\n\r\n":    "-1 hello, world. 1",
		"GET http://api.x.example/v1 HTTP/1.1\r\nHost: api.x.example\r\nContent-Length: 5\r\nExpect: 100-Continue\r\n\r\nhello": "5 hello ",
	} {
		c := w.raw()
		io.WriteString(c, raw)
		br := bufio.NewReader(c)
		res, err := http.ReadResponse(br, nil)
		for err == nil && res.StatusCode == 100 {
			res, err = http.ReadResponse(br, nil)
		}
		if err != nil {
			t.Fatalf("%q: %v", raw, err)
		}
		if body, _ := io.ReadAll(res.Body); string(body) != want || res.StatusCode != 200 {
			t.Errorf("%q: %d %q, want %q", raw, res.StatusCode, body, want)
		}
	}
}

func TestB30_OversizedHeads(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) {})
	line := "GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n"
	for name, tt := range map[string]struct {
		raw  string
		want int
	}{
		"16 KiB":        {line + "X: " + strings.Repeat("a", 16<<10) + "\r\n\r\n", 200},
		"just below":    {line + "X: " + strings.Repeat("a", 63<<10) + "\r\n\r\n", 200},
		"64 KiB":        {line + "X: " + strings.Repeat("a", 64<<10) + "\r\n\r\n", 431},
		"1 MiB":         {line + "X: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", 431},
		"100 fields":    {line + strings.Repeat("X: y\r\n", 99) + "\r\n", 200},
		"101 fields":    {line + strings.Repeat("X: y\r\n", 100) + "\r\n", 431},
		"10 000 fields": {line + strings.Repeat("X: y\r\n", 10000) + "\r\n", 431},
	} {
		res, _ := w.send(tt.raw)
		if res.StatusCode != tt.want || res.Close != (tt.want != 200) {
			t.Errorf("%s: %d, close %t, want %d", name, res.StatusCode, res.Close, tt.want)
		}
	}
}

// pass runs a stream through a framer in pieces and returns what it lets by,
// and whether that ends with the end of a request.
func pass(data []byte, piece int) (out []byte, heads int, whole bool, why *refusal) {
	var f framer
	var buf []byte
	for len(data) > 0 {
		n := min(piece, len(data))
		buf, data = append(buf, data[:n]...), data[n:]
		for {
			before := f.part
			n, refused := f.feed(buf)
			if refused != nil {
				return out, heads, f.part == inHead, refused
			}
			if n == 0 {
				break
			}
			if before == inHead {
				heads++
			}
			out, buf = append(out, buf[:n]...), buf[n:]
		}
		if len(buf) > maxBuffer {
			panic("BUG: a framer holds more than its buffer")
		}
	}
	return out, heads, f.part == inHead, nil
}

// FuzzRequestHead holds the framer against net/http: what is let through,
// net/http reads too, as the same requests with the same bodies, however the
// bytes were cut; and cutting changes no answer.
func FuzzRequestHead(f *testing.F) {
	for _, raw := range smuggled {
		f.Add([]byte(raw))
	}
	seeds, err := filepath.Glob("testdata/requests/*.http")
	if err != nil || len(seeds) < 5 {
		f.Fatalf("%d seeds, %v", len(seeds), err)
	}
	for _, name := range seeds {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(bytes.ReplaceAll(data, []byte("\n"), []byte("\r\n")))
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		out, heads, whole, why := pass(data, math.MaxInt32)
		for _, piece := range []int{1, 7} {
			out2, heads2, _, why2 := pass(data, piece)
			if !bytes.Equal(out, out2) || heads != heads2 || (why == nil) != (why2 == nil) {
				t.Fatalf("in pieces of %d: %d bytes, %d heads, %v; at once: %d, %d, %v", piece, len(out2), heads2, why2, len(out), heads, why)
			}
		}
		if !bytes.HasPrefix(data, out) {
			t.Fatal("the framer changes bytes")
		}
		asNetHTTP(t, out, heads, whole)
	})
}

// asNetHTTP reads out with net/http, which must find the same number of
// requests, and compares each with what parseHead says.
func asNetHTTP(t *testing.T, out []byte, heads int, whole bool) {
	br := bufio.NewReader(bytes.NewReader(out))
	rest := out
	for i := range heads {
		end := bytes.Index(rest, []byte("\r\n\r\n"))
		if end < 0 {
			t.Fatal("a head without its end was let through")
		}
		h, why := parseHead(rest[:end+4], nil)
		if why != nil {
			t.Fatalf("head %d was let through and is refused: %v", i, why)
		}
		r, err := http.ReadRequest(br)
		if err != nil {
			if h.method == "CONNECT" {
				return // net/http has no part in it
			}
			t.Fatalf("net/http refuses head %d: %v\n%q", i, err, rest[:end+4])
		}
		chunked := len(r.TransferEncoding) == 1 && r.TransferEncoding[0] == "chunked"
		if r.Method != h.method || r.RequestURI != h.target || chunked != (h.length < 0) || h.length > 0 && r.ContentLength != h.length || h.length == 0 && r.ContentLength != 0 {
			t.Fatalf("net/http reads %s %s, length %d, chunked %t; we read %+v", r.Method, r.RequestURI, r.ContentLength, chunked, h)
		}
		if r.URL.Host == "" && h.method != "CONNECT" && r.Host != h.host {
			t.Fatalf("net/http reads Host %q, we %q", r.Host, h.host)
		}
		if upgrading(r) != h.upgrade {
			t.Fatalf("upgrade: net/http's request %t, ours %t", upgrading(r), h.upgrade)
		}
		if r.Close && !h.close {
			t.Fatal("net/http would close the connection, we not")
		}
		sameHeader(t, r, &h)
		if h.method == "CONNECT" || h.upgrade {
			return
		}
		_, err = io.Copy(io.Discard, r.Body)
		if err != nil && (i < heads-1 || whole) {
			t.Fatalf("net/http cannot read the body of request %d of %d: %v", i, heads, err)
		}
		rest = out[len(out)-br.Buffered():]
		if br.Buffered() == 0 && i < heads-1 {
			t.Skip("longer than net/http's buffer: positions are not comparable")
		}
	}
}

// sameHeader compares the fields that the rest of the proxy sees, and those
// that are sent on, with what net/http found.
func sameHeader(t *testing.T, r *http.Request, h *head) {
	t.Helper()
	e := &http1{ctx: context.Background()}
	ours := e.request(h).Header.Clone()
	for _, key := range []string{"Transfer-Encoding", "Trailer"} {
		if r.Header[key] == nil {
			delete(ours, key) // net/http has them elsewhere
		}
	}
	if h.close && !r.Close || r.Close {
		r.Header.Del("Connection")
		delete(ours, "Connection")
	}
	if diff := cmp.Diff(r.Header, ours); diff != "" {
		t.Fatalf("net/http's header, and ours:\n%s", diff)
	}
	e.head = h
	sent := http.Header{}
	for i, f := range h.fields {
		if v, ok := e.value(e.req.Header, i); ok {
			sent[f.key] = append(sent[f.key], v)
		}
	}
	if diff := cmp.Diff(e.req.Header, sent); diff != "" {
		t.Fatalf("the header, and what would be sent on:\n%s", diff)
	}
}
