package egress

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// script leads a port to a server that says exactly what is given, once per
// request head, and closes where it is told nothing more; behind TLS on port
// 443. It returns how many connections were made and what was asked on them.
func (w *world) script(port uint16, answers ...string) (conns *atomic.Int32, asked chan string) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	conns, asked = new(atomic.Int32), make(chan string, 100)
	next := make(chan string, len(answers))
	for _, a := range answers {
		next <- a
	}
	close(next)
	if port == 443 {
		ln = tls.NewListener(ln, &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return testAuthority().Leaf(orHost(h.ServerName))
		}})
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			conns.Add(1)
			go answerScript(c, next, asked)
		}
	}()
	w.t.Cleanup(func() { ln.Close() })
	w.route(port, ln.Addr().String())
	return conns, asked
}

const thenClose = "\x00" // ends an answer after which the server closes

func answerScript(c net.Conn, next <-chan string, asked chan<- string) {
	defer c.Close()
	for in := bufio.NewReader(c); ; {
		var head strings.Builder
		for !strings.HasSuffix(head.String(), crlf+crlf) {
			line, err := in.ReadString('\n')
			if err != nil {
				return
			}
			head.WriteString(line)
		}
		asked <- head.String()
		answer, ok := <-next
		if text, end := strings.CutSuffix(answer, thenClose); end || !ok {
			io.WriteString(c, text)
			return
		}
		io.WriteString(c, answer)
	}
}

const askPlain = "GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n"

// What servers get away with elsewhere they get away with here; what comes out
// is in order, framed once.
func TestAnswersPassHoweverTheyAreSpelled(t *testing.T) {
	for name, tt := range map[string]struct {
		answer, body string
		status       int
	}{
		"counted":           {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"chunked":           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\n\r\n", "hello", 200},
		"padded chunk":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5  \r\nhello\r\n0\r\n\r\n", "hello", 200},
		"until the end":     {"HTTP/1.1 200 OK\r\n\r\nhello" + thenClose, "hello", 200},
		"HTTP/1.0":          {"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello" + thenClose, "hello", 200},
		"bare LF":           {"HTTP/1.1 200 OK\nContent-Length: 5\n\nhello", "hello", 200},
		"folded":            {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"length twice":      {"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"length and chunks": {"HTTP/1.1 200 OK\r\nContent-Length: 99\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", "hello", 200},
		"no reason":         {"HTTP/1.1 200\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"long head":         {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 100<<10) + "\r\nContent-Length: 5\r\n\r\nhello", "hello", 200},
		"empty":             {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 200},
		"empty chunks":      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", 200},
		"none":              {"HTTP/1.1 204 No Content\r\n\r\n", "", 204},
		"not modified":      {"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "", 304},
		"no HTTP":           {"220 ready\r\n\r\n" + thenClose, "", 502},
		"nothing":           {thenClose, "", 502},
		"head too long":     {"HTTP/1.1 200 OK\r\nX: " + strings.Repeat("a", 2<<20) + "\r\n\r\n" + thenClose, "", 502},
	} {
		w := newWorld(t, only("api.x.example", 80))
		w.script(80, tt.answer)
		c := w.raw()
		io.WriteString(c, askPlain)
		in := bufio.NewReader(c)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		body, err := io.ReadAll(res.Body)
		if res.StatusCode != tt.status || err != nil || tt.status != 502 && string(body) != tt.body {
			t.Errorf("%s: %d %q %v", name, res.StatusCode, body, err)
		}
		if tt.status == 502 {
			continue
		}
		// Another request on the same connection shows that its end was found.
		io.WriteString(c, strings.Replace(askPlain, "api.", "evil.", 2))
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 403 {
			t.Errorf("%s: then %v %v", name, res, err)
		}
	}
}

// An answer that is cut must not look whole.
func TestCutAnswersAreCut(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello" + thenClose,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n" + thenClose,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n50\r\nhello" + thenClose,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\nX" + thenClose,
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nhello\r\n0\r\n\r\n",
	} {
		w := newWorld(t, only("api.x.example", 80))
		w.script(80, answer)
		c := w.raw()
		io.WriteString(c, askPlain)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			continue // cut as well
		}
		if body, err := io.ReadAll(res.Body); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%q: %q %v", answer, body, err)
		}
	}
}

// A server that looks for no body where a request has one reads that as its next
// request, which nobody has judged. It must be told not to.
func TestBodiesAreNoRequests(t *testing.T) {
	hidden := "DELETE /v1/a HTTP/1.1\r\nHost: api.x.example\r\n\r\n"
	for _, h2 := range []bool{false, true} {
		for _, method := range []string{"GET", "HEAD", "OPTIONS", "TRACE", "DELETE"} {
			for _, chunked := range []bool{false, true} {
				w := newWorld(t, inspecting("api.x.example"))
				ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
				conns, asked := w.script(443, ok, ok, ok, ok)
				c := w.client(h2)
				for _, body := range []io.Reader{strings.NewReader(hidden), nil} {
					if chunked && body != nil {
						body = io.MultiReader(body)
					}
					req, err := http.NewRequest(method, "https://api.x.example/v1/a", body)
					if err != nil {
						t.Fatal(err)
					}
					res, err := c.Do(req)
					if err != nil || res.StatusCode != 200 {
						t.Fatalf("%s: %v %v", method, res, err)
					}
					res.Body.Close()
				}
				if head := <-asked; !strings.Contains(head, "\r\nConnection: close\r\n") || conns.Load() != 2 {
					t.Errorf("h2 %t, %s, chunked %t: %q, %d connections", h2, method, chunked, head, conns.Load())
				}
			}
		}
	}
}

// A status line is given on with the words that a server chose for it: no other
// reader may find a second line in them.
func TestStatusLinesAreOneLine(t *testing.T) {
	for _, answer := range []string{
		"HTTP/1.1 200 OK\rContent-Length: 0\r\r\nContent-Length: 5\r\n\r\nhello",
		"HTTP/1.1 200 OK\rContent-Length: 0\nContent-Length: 5\n\nhello",
		"HTTP/1.1 200 OK\x00\nContent-Length: 5\n\nhello",
		"HTTP/1.1 103 Early\rX: y\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
	} {
		w := newWorld(t, only("api.x.example", 80))
		w.script(80, answer)
		c := w.raw()
		io.WriteString(c, askPlain)
		if all, err := io.ReadAll(c); !bytes.HasPrefix(all, []byte("HTTP/1.1 502 Bad Gateway\r\n")) || err != nil {
			t.Errorf("%q: %q %v", answer, all, err)
		}
	}
}

// Requests keep the order and spelling of their fields, and their connection.
func TestRequestsAreSentAsTheyCame(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	conns, asked := w.script(80, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "HTTP/1.1 200 OK\r\nx-ODD: 1\r\nContent-Length: 3\r\n\r\n", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
	c := w.raw()
	in := bufio.NewReader(c)
	for i, tt := range []struct{ send, want string }{
		{"POST http://api.x.example?q HTTP/1.1\r\nx-b: 1\r\nhOST: API.x.example:80\r\nX-A: 2\r\nx-b: 3\r\ncontent-length: 2\r\n\r\nhi", "POST /?q HTTP/1.1\r\nx-b: 1\r\nhOST: api.x.example\r\nX-A: 2\r\nx-b: 3\r\ncontent-length: 2\r\n\r\n"},
		{"HEAD http://api.x.example/a HTTP/1.1\r\nHost: api.x.example\r\nKeep-Alive: 5\r\nConnection: x-gone\r\nX-Gone: 1\r\n\r\n", "hiHEAD /a HTTP/1.1\r\nHost: api.x.example\r\n\r\n"},
		{"GET http://api.x.example/? HTTP/1.0\r\nUser-Agent: old\r\n\r\n", "GET /? HTTP/1.1\r\nUser-Agent: old\r\nHost: api.x.example\r\n\r\n"},
	} {
		io.WriteString(c, tt.send)
		res, err := http.ReadResponse(in, &http.Request{Method: tt.send[:4]})
		if err != nil {
			t.Fatal(err)
		}
		if got := <-asked; !strings.EqualFold(got, tt.want) || strings.ReplaceAll(got, "content-length", "Content-Length") != strings.ReplaceAll(tt.want, "content-length", "Content-Length") {
			t.Errorf("the host got %q, want %q", got, tt.want)
		}
		if i == 1 && res.ContentLength != 3 {
			t.Errorf("HEAD: %v", res)
		}
		if res.Close != (i == 2) {
			t.Errorf("request %d: close %t", i, res.Close)
		}
	}
	if n := conns.Load(); n != 1 {
		t.Errorf("%d connections for requests one after the other", n)
	}
}

// A connection that its server gave up while it was kept is not tripped over.
func TestConnectionsThatServersGaveUpAreReplaced(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	ok := "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
	conns, _ := w.script(80, ok, ok+thenClose, ok, ok)
	c := w.raw()
	in := bufio.NewReader(c)
	for i := range 4 {
		io.WriteString(c, askPlain)
		if res, err := http.ReadResponse(in, nil); err != nil || res.StatusCode != 200 {
			t.Fatalf("request %d: %v %v", i, res, err)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// What a server says beyond its answer is not the answer to the next request.
func TestSurplusBytesAreNobodysAnswer(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	conns, _ := w.script(80,
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\noneHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil",
		"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\ntwo")
	c := w.raw()
	in := bufio.NewReader(c)
	for _, want := range []string{"one", "two"} {
		io.WriteString(c, askPlain)
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); string(body) != want {
			t.Errorf("got %q, want %q", body, want)
		}
	}
	if n := conns.Load(); n != 2 {
		t.Errorf("%d connections", n)
	}
}

// What is said before the answer is passed on, but to who could not read it.
func TestInterimAnswersPass(t *testing.T) {
	hints := "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\nAlt-Svc: h3\r\n\r\n"
	w := newWorld(t, only("api.x.example", 80))
	w.script(80, hints+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", hints+"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok", strings.Repeat("HTTP/1.1 102 Processing\r\n\r\n", maxInterim))
	for _, tt := range []struct{ send, want string }{
		{strings.Replace(askPlain, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1), "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
		{strings.Replace(askPlain, "1.1\r", "1.0\r", 1), "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nok"},
	} {
		c := w.raw()
		io.WriteString(c, tt.send)
		if all, err := io.ReadAll(c); string(all) != tt.want || err != nil {
			t.Errorf("got %q %v, want %q", all, err, tt.want)
		}
	}
	c := w.raw()
	io.WriteString(c, strings.Replace(askPlain, "\r\n\r\n", "\r\nConnection: close\r\n\r\n", 1))
	if all, err := io.ReadAll(c); !bytes.Contains(all, []byte("HTTP/1.1 502 ")) || err != nil {
		t.Errorf("endless: %.50q… %v", all, err)
	}
}

// Who goes away while a host thinks is not thought for any longer, whether the
// request had a body or not.
func TestWhoLeavesIsNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "Content-Length: 5\r\n\r\nhello", "Transfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"} {
		for _, begun := range []bool{false, true} {
			w := newWorld(t, inspecting("api.x.example"))
			entered, left := make(chan bool, 1), make(chan bool, 1)
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				if begun {
					http.NewResponseController(rw).Flush()
				}
				entered <- true
				<-r.Context().Done()
				left <- true
			})
			c := w.inside("api.x.example:443", "http/1.1")
			head, rest, _ := strings.Cut(body, "\r\n\r\n")
			if head != "" {
				head += "\r\n"
			}
			fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: api.x.example\r\n%s\r\n", head)
			io.WriteString(c, rest)
			<-entered
			c.Close()
			select {
			case <-left:
			case <-time.After(2 * time.Minute):
				w.stop()
				t.Fatalf("%q, begun %t: the host was not left", body, begun)
			}
		}
	}
}

// A program may ask the next question before it has the answer to the first;
// the watch for its leaving reads it and does not lose it.
func TestQuestionsAskedAheadAreAnswered(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	next := make(chan bool)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/0" {
			<-next
		}
		fmt.Fprint(rw, r.URL.Path)
	})
	c := w.inside("api.x.example:443", "http/1.1")
	for i := range 3 {
		fmt.Fprintf(c, "GET /%d HTTP/1.1\r\nHost: api.x.example\r\n\r\n", i)
	}
	// Long enough for the watch to have looked; nothing depends on that.
	<-time.After(2 * watchAfter)
	close(next)
	in := bufio.NewReader(c)
	for i := range 3 {
		res, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if body, _ := io.ReadAll(res.Body); string(body) != fmt.Sprintf("/%d", i) {
			t.Errorf("answer %d is %q", i, body)
		}
	}
}

// FuzzReplyHead holds the quick reader of answers against net/http: what it
// takes, net/http reads the same way.
func FuzzReplyHead(f *testing.F) {
	for _, seed := range []string{
		"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 200\r\n\r\n", "HTTP/1.0 404 Not found \r\nA: b\r\nA: c\r\n\r\n",
		"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: x, close\r\n\r\n", "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: Upgrade\r\n\r\n",
		"HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n", "HTTP/1.1 2000 OK\r\n\r\n", "HTTP/1.1 200OK\r\n\r\n", "HTTP/1.1  200 OK\r\n\r\n",
	} {
		for _, method := range []string{"GET", "HEAD"} {
			f.Add(seed, method)
		}
	}
	f.Fuzz(func(t *testing.T, text, method string) {
		if method != "HEAD" {
			method = "GET"
		}
		var lines framer
		if end, odd := lines.end([]byte(text), crlf+crlf, len(text)+1, nil); odd != nil || end != len(text) || end == 0 {
			return
		}
		ours, ok := parseReply(text, method, nil)
		if !ok {
			return
		}
		theirs, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: method})
		if err != nil {
			t.Fatalf("net/http refuses %q: %v", text, err)
		}
		if ours.status != theirs.StatusCode || strings.TrimSpace(ours.line) != strings.TrimSpace(theirs.Status) || theirs.Close && !ours.close && (ours.length >= 0 || ours.chunked) {
			t.Fatalf("we read %+v, net/http %+v", ours, theirs)
		}
		chunked := len(theirs.TransferEncoding) > 0
		if !bodiless(method, ours.status) && (ours.chunked != chunked || ours.length != theirs.ContentLength) {
			t.Fatalf("we read %+v, net/http %+v", ours, theirs)
		}
		header := http.Header{}
		for _, f := range ours.fields {
			header[f.key] = append(header[f.key], f.value)
		}
		for _, key := range []string{"Transfer-Encoding", "Trailer", "Connection"} {
			delete(header, key)
			theirs.Header.Del(key)
		}
		if diff := cmp.Diff(theirs.Header, header); diff != "" {
			t.Fatal(diff)
		}
	})
}

// A body in which a key could stand and that is too long for it passes whole,
// as it is; the length of a short one is said anew.
func TestBodiesThatWereReadIntoPassWhole(t *testing.T) {
	b := bindAPI
	b.Body, b.Paths = []string{"client_secret"}, []string{"/**"}
	w, standIn := keyWorld(t, all, b)
	var got heard
	w.serve(443, true, got.ServeHTTP)
	for _, size := range []int{0, 1000, secrets.MaxBody, 1 << 20} {
		body := `{"pad":"` + strings.Repeat("x", size) + `","client_secret":"` + standIn + `"}`
		want := body
		if len(body) <= secrets.MaxBody {
			want = strings.Replace(body, standIn, realKey, 1)
		}
		for _, known := range []bool{true, false} {
			req, _ := http.NewRequest("POST", "https://api.x.example/", io.MultiReader(strings.NewReader(body)))
			req.Header.Set("Content-Type", "application/json")
			if known {
				req.ContentLength = int64(len(body))
			}
			res, err := w.client(false).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			if _, arrived := got.last(); arrived != want || res.StatusCode != 200 {
				t.Errorf("%d bytes, known %t: %d, %d bytes arrived", len(body), known, res.StatusCode, len(arrived))
			}
		}
	}
}
