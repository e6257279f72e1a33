package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

func TestServeNeedsWholeSession(t *testing.T) {
	w := newWorld(t, only("api.x.example", 443))
	for name, change := range map[string]func(*Session){
		"id":     func(s *Session) { s.ID = "" },
		"judge":  func(s *Session) { s.Judge = nil },
		"ca":     func(s *Session) { s.CA = nil },
		"record": func(s *Session) { s.Record = nil },
	} {
		s := w.session
		change(&s)
		if err := w.proxy.Serve(context.Background(), nil, s); err == nil {
			t.Errorf("a session without %s is served", name)
		}
	}
}

func TestTunnelCarriesTLSToTheHost(t *testing.T) {
	w := newWorld(t, only("api.x.example", 443))
	w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "hello from ", r.Host) })
	status, body, _ := w.get(w.client(false), "https://api.x.example/")
	if status != 200 || body != "hello from api.x.example" {
		t.Errorf("got %d %q", status, body)
	}
	v := w.recorded()[0]
	if !v.Allowed || v.Host != "api.x.example" || v.Port != 443 || v.Method != "CONNECT" || v.Rule != "rule 1" || v.Address.String() != publicAddr || v.Session != "s-1" || len(v.ID) != 8 {
		t.Errorf("recorded %+v", v)
	}
}

func TestDenialInsideTLS(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		t.Run(fmt.Sprintf("h2=%t", h2), func(t *testing.T) {
			w := newWorld(t, only("api.x.example", 443))
			status, body, res := w.get(w.client(h2), "https://evil.example/a/../b?token=hunter2")
			if status != 403 || res.ProtoMajor != 1+b2i(h2) || !strings.HasPrefix(res.Header.Get("Content-Type"), "text/plain") {
				t.Fatalf("got %d over %s, %v", status, res.Proto, res.Header)
			}
			all := w.recorded()
			v := all[0]
			if len(all) != 1 || v.Allowed || v.Host != "evil.example" || v.Method != "GET" || v.Path != "/b" {
				t.Errorf("recorded %+v", all)
			}
			for _, want := range []string{v.ID, "evil.example:443", "no rule allows it", "policy", "work around", "mojoup-node policy explain https://evil.example/b", ".mojoup/policy.json"} {
				if !strings.Contains(body, want) {
					t.Errorf("the text lacks %q:\n%s", want, body)
				}
			}
			if strings.Contains(fmt.Sprint(w.recorded())+w.logs.text()+body, "hunter2") {
				t.Error("the query is recorded, logged or shown")
			}
			if asked, dialled := w.resolver.names(), w.dials(); len(asked)+len(dialled) > 0 {
				t.Errorf("a denial resolved %v and dialled %v", asked, dialled)
			}
		})
	}
}

// A denial is recorded also if nothing that could read the text is speaking:
// when it has waited long enough, or when it goes.
func TestDenialIsRecordedWithoutARequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, only("api.x.example", 443), func(_ *Options, l *limits) { l.hello = 200 * time.Millisecond })
	for name, act := range map[string]func(net.Conn){
		"silent.example": func(net.Conn) {},
		"gone.example":   func(c net.Conn) { c.Close() },
		"ssh.example":    func(c net.Conn) { io.WriteString(c, "SSH-2.0-x\r\n") },
		"pinned.example": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{ServerName: "pinned.example", RootCAs: testRoots()}).Handshake()
		},
		"idle.example": func(c net.Conn) {
			_ = tls.Client(c, &tls.Config{ServerName: "idle.example", RootCAs: w.caPool}).Handshake()
		},
	} {
		c, line := w.connect(name + ":443")
		if !strings.HasPrefix(line, "200 ") {
			t.Fatalf("%s: %s", name, line)
		}
		act(c)
		v := w.wait(name, func(v Verdict) bool { return v.Host == name })
		if v.Allowed || v.Method != "CONNECT" || v.Reason != "no rule allows it" {
			t.Errorf("%s: recorded %+v", name, v)
		}
	}
	if n := len(w.recorded()); n != 5 {
		t.Errorf("%d verdicts", n)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

func TestDenialOnOtherPorts(t *testing.T) {
	w := newWorld(t, only("api.x.example", 443))
	_, line := w.connect("db.x.example:5432")
	v := w.recorded()[0]
	if !strings.HasPrefix(line, "403 ") || !strings.Contains(line, v.ID) {
		t.Errorf("got %q, want 403 with %s", line, v.ID)
	}
	res, body := w.send("GET http://evil.example/x HTTP/1.1\r\nHost: evil.example\r\n\r\n")
	if v := w.recorded()[1]; res.StatusCode != 403 || !strings.Contains(body, v.ID) || v.Host != "evil.example" || v.Port != 80 || v.Path != "/x" {
		t.Errorf("got %d %q, recorded %+v", res.StatusCode, body, v)
	}
	if len(w.resolver.names())+len(w.dials()) > 0 {
		t.Error("a denial resolved or dialled")
	}
}

func TestNoPolicyIsClosed(t *testing.T) {
	w := newWorld(t, nil)
	if status, body, _ := w.get(w.client(false), "https://api.x.example/"); status != 503 || !strings.Contains(body, "no policy is loaded") {
		t.Errorf("got %d %q", status, body)
	}
	if res, _ := w.send("GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n"); res.StatusCode != 503 {
		t.Errorf("got %d", res.StatusCode)
	}
	if _, line := w.connect("api.x.example:8443"); !strings.HasPrefix(line, "503 ") {
		t.Errorf("got %q", line)
	}
	for _, v := range w.recorded() {
		if v.Allowed {
			t.Errorf("recorded %+v", v)
		}
	}
}

func TestB34_HealthAnswersTheSelfCheck(t *testing.T) {
	w := newWorld(t, only("api.x.example", 443))
	for _, raw := range []string{
		"GET http://node.mojoup.internal/healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n",
		"GET /healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n",
	} {
		if res, _ := w.send(raw); res.StatusCode != 204 {
			t.Errorf("%.40q: %d", raw, res.StatusCode)
		}
	}
	if got := w.recorded(); len(got) > 0 {
		t.Errorf("the self-check is recorded: %+v", got)
	}
	for _, raw := range []string{
		"GET /other HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: api.x.example\r\n\r\n",
		"POST /healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\nContent-Length: 0\r\n\r\n",
	} {
		if res, _ := w.send(raw); res.StatusCode != 400 {
			t.Errorf("%.40q: %d", raw, res.StatusCode)
		}
	}
	if got := w.recorded(); len(got) != 3 || got[0].Allowed {
		t.Errorf("recorded %+v", got)
	}
}

// An answer is there for the very first request, because the listener exists
// before anything inside does: connections made before Serve wait.
func TestB34_ConnectionsBeforeServeAreAnswered(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	io.WriteString(c, "GET http://node.mojoup.internal/healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n")
	w := newWorld(t, only("api.x.example", 443))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- w.proxy.Serve(ctx, ln, w.session) }()
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil || res.StatusCode != 204 {
		t.Errorf("got %v %v", res, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// T1, and what the tunnel may begin with.
func TestTunnelMustOpenWithTLSForItsHost(t *testing.T) {
	t.Parallel()
	short := func(_ *Options, l *limits) { l.hello = 300 * time.Millisecond }
	raw := func(r policy.Request) policy.Decision { return policy.Decision{Allowed: true, Raw: true} }
	tunnel := func(r policy.Request) policy.Decision { return policy.Decision{Allowed: true} }
	for _, tt := range []struct {
		name   string
		judge  judgeFunc
		port   uint16
		send   []byte
		passes bool
		reason string
	}{
		{"sni", tunnel, 443, hello(t, "api.x.example"), true, ""},
		{"sni in capitals", tunnel, 443, hello(t, "API.x.example"), true, ""},
		{"sni on another port", tunnel, 8443, hello(t, "api.x.example"), true, ""},
		{"sni of another host", tunnel, 443, hello(t, "evil.example"), false, "names evil.example"},
		{"no sni", tunnel, 443, hello(t, ""), false, "names no server"},
		{"ssh", tunnel, 443, []byte("SSH-2.0-OpenSSH_9.2\r\n"), false, "TLS greeting"},
		{"http", tunnel, 8443, []byte("GET / HTTP/1.1\r\n\r\n"), false, "TLS greeting"},
		{"silence", tunnel, 443, nil, false, "protocol tcp"},
		{"raw", raw, 443, []byte("SSH-2.0-OpenSSH_9.2\r\n"), true, ""},
		{"raw on 80", raw, 80, []byte("SSH-2.0-OpenSSH_9.2\r\n"), true, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, tt.judge, short)
			got := w.echo(tt.port)
			c, line := w.connect(fmt.Sprintf("api.x.example:%d", tt.port))
			if !strings.HasPrefix(line, "200 ") {
				t.Fatalf("CONNECT: %s", line)
			}
			// In two pieces: a greeting may come in several segments.
			c.Write(tt.send[:len(tt.send)/2])
			c.Write(tt.send[len(tt.send)/2:])
			if tt.passes {
				back := make([]byte, len(tt.send))
				if _, err := io.ReadFull(c, back); err != nil || string(back) != string(tt.send) {
					t.Fatalf("the bytes did not pass untouched: %v", err)
				}
				return
			}
			if n, err := c.Read(make([]byte, 1)); err == nil {
				t.Errorf("%d bytes came back", n)
			}
			v := w.wait("the closed tunnel", func(v Verdict) bool { return !v.Allowed })
			if !strings.Contains(v.Reason, tt.reason) || v.Host != "api.x.example" {
				t.Errorf("recorded %+v", v)
			}
			if n := got(); n > 0 {
				t.Errorf("%d bytes reached the host", n)
			}
		})
	}
}

// echo leads a port to a server that sends everything back, and returns how
// much it has got.
func (w *world) echo(port uint16) func() int64 {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	total := make(chan int64, 64)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				n, _ := io.Copy(c, c)
				c.Close()
				total <- n
			}()
		}
	}()
	w.t.Cleanup(func() { ln.Close() })
	w.route(port, ln.Addr().String())
	return func() int64 { return <-total }
}

// hello returns a real ClientHello.
func hello(t testing.TB, name string) []byte {
	t.Helper()
	client, server := net.Pipe()
	defer server.Close()
	go func() {
		defer client.Close()
		_ = tls.Client(client, &tls.Config{ServerName: name, InsecureSkipVerify: true}).Handshake()
	}()
	buf := make([]byte, 64<<10)
	n, err := server.Read(buf)
	if err != nil {
		t.Fatal(err)
	}
	return buf[:n]
}

func TestCONNECTOnPort80MayCarryPlainHTTP(t *testing.T) {
	w := newWorld(t, reading("api.x.example", 80))
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "plain ", r.URL.Path) })
	c, line := w.connect("api.x.example:80")
	if !strings.HasPrefix(line, "200 ") {
		t.Fatal(line)
	}
	br := bufio.NewReader(c)
	for _, tt := range []struct {
		request string
		status  int
	}{
		{"GET /v1/a HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 200},
		{"GET /v2/a HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 403},
		{"GET /v1/a HTTP/1.1\r\nHost: evil.example\r\n\r\n", 421},
	} {
		io.WriteString(c, tt.request)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != tt.status {
			t.Fatalf("%.20q: %v %v, want %d", tt.request, res, err, tt.status)
		}
		io.Copy(io.Discard, res.Body)
	}
}

func TestCONNECTFailuresSayWhy(t *testing.T) {
	w := newWorld(t, judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true} }))
	w.route(443, "127.0.0.1:1")
	if _, line := w.connect("unknown.example:443"); !strings.HasPrefix(line, "502 ") || !strings.Contains(line, "no such name") {
		t.Errorf("unknown name: %q", line)
	}
	if _, line := w.connect("api.x.example:443"); !strings.HasPrefix(line, "502 ") || !strings.Contains(line, "refused") {
		t.Errorf("refused: %q", line)
	}
	for _, v := range w.recorded() {
		if !v.Allowed {
			t.Errorf("a failure counts as denial: %+v", v)
		}
	}
}
