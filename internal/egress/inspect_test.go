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
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

func TestInspectJudgesEveryRequest(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w := newWorld(t, reading("api.x.example", 443))
			var seen []string
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				seen = append(seen, r.Method+" "+r.RequestURI+" "+r.Host+" "+r.Proto)
				rw.Header().Set("Alt-Svc", `h3=":443"`)
				fmt.Fprint(rw, "ok")
			})
			c := w.client(h2)
			for _, tt := range []struct {
				path   string
				status int
			}{{"/v1/a?x=%2F&y", 200}, {"/v2/a", 403}, {"/v1/../v2", 403}, {"/v1//./b%7e", 200}, {"/v1/%2e%2e/x", 403}} {
				status, body, res := w.get(c, "https://api.x.example"+tt.path)
				if status != tt.status {
					t.Errorf("%s: %d %q, want %d", tt.path, status, body, tt.status)
				}
				if res.Header.Get("Alt-Svc") != "" {
					t.Error("Alt-Svc is passed on")
				}
			}
			proto := "HTTP/1.1"
			if h2 {
				proto = "HTTP/2.0"
			}
			want := []string{"GET /v1/a?x=%2F&y api.x.example " + proto, "GET /v1/b~ api.x.example " + proto}
			if diff := cmp.Diff(want, seen); diff != "" {
				t.Error(diff)
			}
			for _, v := range w.recorded() {
				if v.Method == "GET" && v.Allowed && v.Address.String() != publicAddr && !v.Address.IsLoopback() {
					t.Errorf("recorded %+v", v)
				}
				if strings.Contains(v.Path, "?") {
					t.Errorf("the query is recorded: %q", v.Path)
				}
			}
			if got := w.count(true); got != 3 { // CONNECT and two requests
				t.Errorf("%d allows are recorded", got)
			}
		})
	}
}

// inside opens a tunnel and TLS under the session's authority.
func (w *world) inside(target, protocol string) *tls.Conn {
	w.t.Helper()
	c, line := w.connect(target)
	if !strings.HasPrefix(line, "200") {
		w.t.Fatalf("CONNECT %s: %s", target, line)
	}
	host, _, _ := net.SplitHostPort(target)
	conn := tls.Client(c, &tls.Config{ServerName: host, RootCAs: w.caPool, NextProtos: []string{protocol}})
	if err := conn.Handshake(); err != nil {
		w.t.Fatal(err)
	}
	return conn
}

func TestInspectRefusesWhatIsNotForItsHost(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	var reached atomic.Int32
	w.serve(443, true, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for raw, want := range map[string]int{
		"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                                              421,
		"GET / HTTP/1.1\r\nHost: api.x.example:8443\r\n\r\n":                                                        421,
		"GET https://evil.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                         421,
		"GET https://api.x.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                         421,
		"GET https://api.x.example:8443/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                   421,
		"GET https:///api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                       421,
		"GET https://u@api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                      421,
		"GET https://api.x.example HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                         400,
		"GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                         400,
		"GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n":                                           400,
		"CONNECT evil.example:443 HTTP/1.1\r\nHost: evil.example:443\r\n\r\n":                                       400,
		"GET /healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n":                                               421,
		"GET /%5c HTTP/1.1\r\nHost: api.x.example\r\n\r\n":                                                          400,
		"GET / HTTP/1.1\r\nHost: api.x.example\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx":                  400,
		"GET / HTTP/1.1\r\nHost: api.x.example\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
	} {
		c := w.inside("api.x.example:443", "http/1.1")
		io.WriteString(c, raw)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != want {
			t.Errorf("%.60q: %v %v, want %d", raw, res, err, want)
		}
		c.Close()
	}
	if reached.Load() > 0 {
		t.Error("something reached the host")
	}
	if n := w.count(false); n != 15 {
		t.Errorf("%d denials are recorded", n)
	}
	c := w.inside("api.x.example:443", "http/1.1")
	io.WriteString(c, "GET / HTTP/1.1\r\nHost: API.x.example.:443\r\n\r\n")
	if res, err := http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 200 {
		t.Errorf("the same host in other letters: %v %v", res, err)
	}
}

// With HTTP/2 the heads are net/http's; what they say is checked all the same.
func TestInspectHTTP2Authority(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	var reached atomic.Int32
	w.serve(443, true, func(http.ResponseWriter, *http.Request) { reached.Add(1) })
	for _, tt := range []struct {
		host, path string
		want       int
	}{
		{"evil.example", "/", 421},
		{"api.x.example:8443", "/", 421},
		{"api.x.example", "/a b", 400},
		{"api.x.example", "/a?b /admin HTTP/1.1", 400},
		{"api.x.example", "/%00", 400},
		{"api.x.example", "/..", 400},
		{"api.x.example", "*", 400},
	} {
		if got := w.rawHTTP2(tt.host, tt.path); got != tt.want {
			t.Errorf("%s %q: %d, want %d", tt.host, tt.path, got, tt.want)
		}
	}
	if reached.Load() > 0 {
		t.Error("something reached the host")
	}
	if got := w.rawHTTP2("api.x.example", "/a?b"); got != 200 || reached.Load() != 1 {
		t.Errorf("an ordinary request: %d", got)
	}
}

// rawHTTP2 sends one GET with the pseudo-fields as they are given.
func (w *world) rawHTTP2(authority, path string) int {
	w.t.Helper()
	c := w.inside("api.x.example:443", "h2")
	defer c.Close()
	io.WriteString(c, http2.ClientPreface)
	framer := http2.NewFramer(c, c)
	framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, f := range [][2]string{{":method", "GET"}, {":scheme", "https"}, {":authority", authority}, {":path", path}} {
		enc.WriteField(hpack.HeaderField{Name: f[0], Value: f[1]})
	}
	framer.WriteSettings()
	framer.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: block.Bytes(), EndStream: true, EndHeaders: true})
	for {
		frame, err := framer.ReadFrame()
		if err != nil {
			w.t.Fatalf("%s %q: %v", authority, path, err)
		}
		switch f := frame.(type) {
		case *http2.MetaHeadersFrame:
			status, _ := strconv.Atoi(f.PseudoValue("status"))
			return status
		case *http2.RSTStreamFrame:
			return 400 // refused by net/http itself
		case *http2.SettingsFrame:
			if v, ok := f.Value(http2.SettingEnableConnectProtocol); ok && v != 0 {
				w.t.Error("extended CONNECT is offered")
			}
		}
	}
}

func TestInspectNeedsTheNameInTheGreeting(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	w.serve(443, true, func(http.ResponseWriter, *http.Request) {})
	c, _ := w.connect("api.x.example:443")
	err := tls.Client(c, &tls.Config{ServerName: "evil.example", InsecureSkipVerify: true}).Handshake()
	if err == nil {
		t.Error("the handshake went through")
	}
	v := w.wait("the denial", func(v Verdict) bool { return !v.Allowed })
	if !strings.Contains(v.Reason, "names evil.example") {
		t.Errorf("recorded %+v", v)
	}
}

func TestClientThatDoesNotTrustTheSessionIsRecorded(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	c, _ := w.connect("api.x.example:443")
	if err := tls.Client(c, &tls.Config{ServerName: "api.x.example", RootCAs: testRoots()}).Handshake(); err == nil {
		t.Fatal("the handshake went through")
	}
	v := w.wait("the denial", func(v Verdict) bool { return !v.Allowed })
	if !strings.Contains(v.Reason, "session's authority") {
		t.Errorf("recorded %+v", v)
	}
	// A probe that connects and leaves has done nothing.
	before := len(w.recorded())
	c, _ = w.connect("api.x.example:443")
	c.Close()
	w.get(w.client(false), "https://denied.example/")
	for _, v := range w.recorded()[before:] {
		if !v.Allowed && v.Host == "api.x.example" {
			t.Errorf("recorded %+v", v)
		}
	}
}

func TestUpstreamFailuresAreNoDenials(t *testing.T) {
	w := newWorld(t, inspecting("api.x.example"))
	status, body, _ := w.get(w.client(false), "https://api.x.example/")
	if status != 502 || !strings.Contains(body, "api.x.example failed") {
		t.Errorf("got %d %q", status, body)
	}
	w.route(443, "127.0.0.1:1")
	if status, body, _ = w.get(w.client(true), "https://api.x.example/"); status != 502 || !strings.Contains(body, "refused the connection") {
		t.Errorf("got %d %q", status, body)
	}
	w.serve(443, false, func(http.ResponseWriter, *http.Request) {})
	if status, body, _ = w.get(w.client(false), "https://api.x.example/"); status != 502 || !strings.Contains(body, "does not speak TLS") {
		t.Errorf("got %d %q", status, body)
	}
	w.setPolicy(inspecting("gone.example"))
	if status, body, _ = w.get(w.client(false), "https://gone.example/"); status != 502 || !strings.Contains(body, "no such name") {
		t.Errorf("got %d %q", status, body)
	}
	if n := w.count(false); n > 0 {
		t.Errorf("%d denials are recorded", n)
	}
}

func TestB31_HopByHopFieldsEndHere(t *testing.T) {
	const canary = "c2Vzc2lvbjpjYW5hcnk="
	w := newWorld(t, only("api.x.example", 80))
	var seen http.Header
	var host string
	w.serve(80, false, func(_ http.ResponseWriter, r *http.Request) { seen, host = r.Header.Clone(), r.Host })
	res, _ := w.send("GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\nProxy-Authorization: Basic " + canary + "\r\n" +
		"Connection: keep-alive, X-A, Authorization, Host\r\nX-A: 1\r\nAuthorization: Bearer stand-in\r\nTE: trailers\r\n" +
		"Proxy-Connection: keep-alive\r\nKeep-Alive: 5\r\nX-Forwarded-For: 192.0.2.1\r\nX-B: 2\r\n\r\n")
	want := http.Header{"Authorization": {"Bearer stand-in"}, "X-Forwarded-For": {"192.0.2.1"}, "X-B": {"2"}}
	if diff := cmp.Diff(want, seen); diff != "" || host != "api.x.example" || res.StatusCode != 200 {
		t.Errorf("%d, Host %q\n%s", res.StatusCode, host, diff)
	}
	w.send("CONNECT api.x.example:443 HTTP/1.1\r\nProxy-Authorization: Basic " + canary + "\r\n\r\n")
	w.send("GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nProxy-Authorization: Basic " + canary + "\r\n\r\n")
	if strings.Contains(w.logs.text()+fmt.Sprintf("%+v", w.recorded()), canary) {
		t.Error("the proxy's credential is logged or recorded")
	}
}

func TestTrailersAndCompressionPassUntouched(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, inspecting("api.x.example"))
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			rw.Header().Set("Trailer", "X-Sum")
			fmt.Fprintf(rw, "%s %s [%s]", body, r.Trailer.Get("X-Up"), r.Header.Get("Accept-Encoding"))
			rw.Header().Set("X-Sum", "42")
			rw.Header().Set(http.TrailerPrefix+"X-Late", "43")
		})
		req, _ := http.NewRequest("POST", "https://api.x.example/", io.MultiReader(strings.NewReader("up")))
		req.Trailer = http.Header{"X-Up": {"7"}}
		req.Header.Set("Accept-Encoding", "zstd")
		res, err := w.client(h2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if string(body) != "up 7 [zstd]" || res.Trailer.Get("X-Sum") != "42" || res.Trailer.Get("X-Late") != "43" {
			t.Errorf("h2 %t: %q, trailers %v", h2, body, res.Trailer)
		}
	}
}

// Connections that a rule opened to a private address are not used for
// requests whose rule does not.
func TestKeptConnectionsAreNotSharedAcrossRules(t *testing.T) {
	private := netip.MustParsePrefix("10.0.0.0/8")
	judge := judgeFunc(func(r policy.Request) policy.Decision {
		d := policy.Decision{Allowed: true, Inspect: r.TLS && r.Method == ""}
		if r.Path == "/open" {
			d.Addresses = []netip.Prefix{private}
		}
		return d
	})
	w := newWorld(t, judge, func(o *Options, _ *limits) { o.Private = []netip.Prefix{private} })
	w.serve(443, true, func(http.ResponseWriter, *http.Request) {})
	w.resolver.set("api.x.example", "10.1.2.3")
	c := w.client(false)
	for _, tt := range []struct {
		path string
		want int
	}{{"/open", 200}, {"/other", 403}, {"/open", 200}} {
		if got, body, _ := w.get(c, "https://api.x.example"+tt.path); got != tt.want {
			t.Errorf("%s: %d %q", tt.path, got, body)
		}
	}
}

func TestWebSocketPassesAfterJudging(t *testing.T) {
	for _, secure := range []bool{true, false} {
		port, handshake := uint16(80), "GET http://api.x.example/v1/ws HTTP/1.1\r\n"
		if secure {
			port, handshake = 443, "GET /v1/ws HTTP/1.1\r\n"
		}
		w := newWorld(t, reading("api.x.example", port))
		w.serve(port, secure, func(rw http.ResponseWriter, r *http.Request) {
			if r.URL.Query().Get("no") != "" {
				rw.WriteHeader(http.StatusUpgradeRequired)
				return
			}
			rw.Header().Set("Connection", "Upgrade")
			rw.Header().Set("Upgrade", r.Header.Get("Upgrade"))
			rw.WriteHeader(http.StatusSwitchingProtocols)
			c, brw, err := http.NewResponseController(rw).Hijack()
			if err != nil {
				return
			}
			defer c.Close()
			io.Copy(c, brw)
		})
		open := func() net.Conn {
			if secure {
				return w.inside("api.x.example:443", "http/1.1")
			}
			return w.raw()
		}
		fields := "Host: api.x.example\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
		c := open()
		io.WriteString(c, handshake+fields)
		br := bufio.NewReader(c)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 101 {
			t.Fatalf("secure %t: %v %v", secure, res, err)
		}
		// What follows is no HTTP, whatever it looks like.
		frames := "\x81\x05hello GET /v2/x HTTP/1.1\nHost: x\n\n"
		io.WriteString(c, frames)
		back := make([]byte, len(frames))
		if _, err := io.ReadFull(br, back); err != nil || string(back) != frames {
			t.Errorf("secure %t: %q %v", secure, back, err)
		}
		c.Close()

		// Refused by the host: what follows is not read as a request.
		c = open()
		io.WriteString(c, strings.Replace(handshake, "/ws", "/ws?no=1", 1)+fields+strings.Replace(handshake, "/ws", "/after", 1)+"Host: api.x.example\r\n\r\n")
		br = bufio.NewReader(c)
		res, err = http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != 426 || !res.Close {
			t.Fatalf("secure %t: %v %v", secure, res, err)
		}
		if rest, _ := io.ReadAll(br); len(rest) > 0 {
			t.Errorf("secure %t: %q", secure, rest)
		}

		// Refused by policy.
		c = open()
		io.WriteString(c, strings.Replace(handshake, "/v1/", "/v2/", 1)+fields)
		if res, err = http.ReadResponse(bufio.NewReader(c), nil); err != nil || res.StatusCode != 403 {
			t.Errorf("secure %t: %v %v", secure, res, err)
		}
		for _, v := range w.recorded() {
			if v.Path == "/v1/after" {
				t.Error("bytes after an upgrade were read as a request")
			}
		}
	}
}

// A host that switches protocols unasked would get the connection's later
// bytes unjudged.
func TestUnaskedSwitchOfProtocolsIsRefused(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.route(80, ln.Addr().String())
	got := make(chan string, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		http.ReadRequest(bufio.NewReader(c))
		io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n\r\n")
		all, _ := io.ReadAll(c)
		got <- string(all)
	}()
	res, body := w.send("GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\nGET http://evil.example/secret HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if res.StatusCode != 502 {
		t.Errorf("got %d %q", res.StatusCode, body)
	}
	if later := <-got; later != "" {
		t.Errorf("the host got %q", later)
	}
}

func TestB29_EventsPassAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		for _, kind := range []string{"text/event-stream", ""} {
			w := newWorld(t, inspecting("api.x.example"))
			next := make(chan bool)
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				io.Copy(io.Discard, r.Body)
				rw.Header()["Content-Type"] = nil
				if kind != "" {
					rw.Header().Set("Content-Type", kind)
				}
				for range 3 {
					fmt.Fprint(rw, "data: thirty bytes of event..\n\n")
					http.NewResponseController(rw).Flush()
					<-next
				}
			})
			res, err := w.client(h2).Post("https://api.x.example/", "text/plain", bytes.NewReader(make([]byte, 1<<20)))
			if err != nil {
				t.Fatal(err)
			}
			if got, ok := res.Header["Content-Type"]; ok != (kind != "") {
				t.Errorf("h2 %t: Content-Type %q, the server sent %q", h2, got, kind)
			}
			for range 3 {
				// The server says nothing more until this event was read.
				if _, err := io.ReadFull(res.Body, make([]byte, 31)); err != nil {
					t.Fatal(err)
				}
				next <- true
			}
			res.Body.Close()
		}
	}
}

// A conversation: each side waits for the other's word within one request.
func TestB29_BothDirectionsAtOnce(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, inspecting("api.x.example"))
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
			rc := http.NewResponseController(rw)
			rc.EnableFullDuplex()
			rw.WriteHeader(200)
			rc.Flush()
			buf := make([]byte, 4)
			for {
				if _, err := io.ReadFull(r.Body, buf); err != nil {
					return
				}
				rw.Write(buf)
				rc.Flush()
			}
		})
		words, talk := io.Pipe()
		req, _ := http.NewRequest("POST", "https://api.x.example/", words)
		res, err := w.client(h2).Do(req)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			io.WriteString(talk, "word")
			if _, err := io.ReadFull(res.Body, make([]byte, 4)); err != nil {
				t.Fatalf("h2 %t: %v", h2, err)
			}
		}
		talk.Close()
		if rest, err := io.ReadAll(res.Body); len(rest) > 0 || err != nil {
			t.Errorf("h2 %t: %q %v", h2, rest, err)
		}
		res.Body.Close()
	}
}

func TestB30_DeniedUploadIsAnsweredBeforeItsBody(t *testing.T) {
	w := newWorld(t, reading("api.x.example", 443))
	for _, fields := range []string{"Content-Length: 209715200\r\nExpect: 100-continue\r\n", "Content-Length: 100\r\n", "Transfer-Encoding: chunked\r\n"} {
		c := w.inside("api.x.example:443", "http/1.1")
		io.WriteString(c, "POST /v1/up HTTP/1.1\r\nHost: api.x.example\r\n"+fields+"\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 403 || !res.Close {
			t.Errorf("%q: %v %v", fields, res, err)
		}
	}
	if len(w.dials()) > 0 {
		t.Error("a denied upload was dialled for")
	}
}

func TestB30_UploadsArriveWhole(t *testing.T) {
	t.Parallel()
	const size = 64 << 20
	for _, h2 := range []bool{false, true} {
		for _, known := range []bool{true, false} {
			w := newWorld(t, inspecting("api.x.example"))
			var got atomic.Int64
			w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
				n, _ := io.Copy(io.Discard, r.Body)
				got.Store(n)
				fmt.Fprint(rw, r.ContentLength)
			})
			body := io.Reader(io.LimitReader(zeros{}, size))
			req, _ := http.NewRequest("POST", "https://api.x.example/", body)
			req.Header.Set("Expect", "100-continue")
			want := "-1"
			if known {
				req.ContentLength, want = size, fmt.Sprint(size)
			}
			res, err := w.client(h2).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			text, _ := io.ReadAll(res.Body)
			res.Body.Close()
			if got.Load() != size || string(text) != want {
				t.Errorf("h2 %t, known %t: %d bytes, length %s", h2, known, got.Load(), text)
			}
		}
	}
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

func TestB30_EarlyAnswerReachesTheClient(t *testing.T) {
	t.Parallel()
	for _, expect := range []string{"", "Expect: 100-continue\r\n"} {
		w := newWorld(t, inspecting("api.x.example"))
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") == "" {
				io.CopyN(io.Discard, r.Body, 1<<20)
			}
			rw.WriteHeader(http.StatusRequestEntityTooLarge)
		})
		c := w.inside("api.x.example:443", "http/1.1")
		fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: api.x.example\r\n%sContent-Length: 209715200\r\n\r\n", expect)
		sent := make(chan error, 1)
		if expect == "" {
			go func() {
				_, err := io.CopyN(c, zeros{}, 209715200)
				sent <- err
			}()
		}
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != 413 {
			t.Errorf("expect %q: %v %v", expect, res, err)
		}
		c.Close()
		if expect == "" {
			<-sent
		}
	}
}

func TestTunnelHalfClose(t *testing.T) {
	judge := judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true, Raw: true} })
	w := newWorld(t, judge)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.route(9000, ln.Addr().String())
	served := make(chan string, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		all, _ := io.ReadAll(c) // ends only if the end is passed on
		io.WriteString(c, "got "+string(all))
		served <- string(all)
	}()
	c, _ := w.connect("api.x.example:9000")
	io.WriteString(c, "everything")
	if err := c.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	back, err := io.ReadAll(c)
	if string(back) != "got everything" || err != nil || <-served != "everything" {
		t.Errorf("%q %v", back, err)
	}
	c.Close()
	w.stop() // waits for the tunnel
	all := w.recorded()
	if len(all) != 1 || len(w.ended) != 1 {
		t.Fatalf("recorded %+v, ended %+v", all, w.ended)
	}
	if v := w.ended[0]; v.BytesUp != 10 || v.BytesDown != 14 || !v.Allowed || v.ID != all[0].ID || all[0].BytesUp != 0 {
		t.Errorf("recorded %+v, ended %+v", all[0], v)
	}
}

func TestTunnelResetIsPassedOn(t *testing.T) {
	judge := judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true, Raw: true} })
	w := newWorld(t, judge)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.route(9000, ln.Addr().String())
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		io.ReadFull(c, make([]byte, 1))
		io.WriteString(c, "half an answer")
		reset(c)
	}()
	c, _ := w.connect("api.x.example:9000")
	io.WriteString(c, "xy")
	if _, err := io.ReadAll(c); err == nil {
		t.Error("a cut answer ended like a whole one")
	}
}

func TestTunnelWithOneSideGoneEnds(t *testing.T) {
	judge := judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true, Raw: true} })
	w := newWorld(t, judge, func(_ *Options, l *limits) { l.halfOpen = 100 * time.Millisecond })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	w.route(9000, ln.Addr().String())
	c, _ := w.connect("api.x.example:9000")
	up, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	c.(*net.TCPConn).CloseWrite()
	if _, err := io.ReadAll(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("got %v, want a reset", err)
	}
}

// The end of a session cuts every connection, in every state.
func TestEndOfSessionCutsEverything(t *testing.T) {
	judge := judgeFunc(func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: r.Host == "api.x.example", Raw: r.Port == 9000, Inspect: r.Port == 443 && r.Method == ""}
	})
	w := newWorld(t, judge)
	w.echo(9000)
	entered := make(chan bool, 2)
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) {
		http.NewResponseController(rw).Flush()
		entered <- true
		<-r.Context().Done()
	})
	tunnel, _ := w.connect("api.x.example:9000")
	idle := w.raw()
	waiting, _ := w.connect("api.x.example:443")
	for _, h2 := range []bool{false, true} {
		res, err := w.client(h2).Get("https://api.x.example/")
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		<-entered
	}
	denied := w.inside("evil.example:443", "h2")
	w.stop() // fails if Serve does not return
	for _, c := range []net.Conn{tunnel, idle, waiting, denied} {
		if _, err := io.ReadAll(c); errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection outlives its session")
		}
	}
}
