package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		code = leaks()
	}
	os.Exit(code)
}

func leaks() int {
	deadline := time.Now().Add(time.Minute)
	for {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		var ours [][]byte
		for _, g := range bytes.Split(buf, []byte("\n\n")) {
			if bytes.Contains(g, []byte("internal/egress")) && !bytes.Contains(g, []byte("egress.TestMain")) || bytes.Contains(g, []byte("net/http.(*persistConn)")) {
				ours = append(ours, g)
			}
		}
		if len(ours) == 0 {
			return 0
		}
		if time.Now().After(deadline) {
			fmt.Fprintf(os.Stderr, "goroutines left behind:\n%s\n", bytes.Join(ours, []byte("\n\n")))
			return 1
		}
		runtime.Gosched()
	}
}

// judgeFunc is a policy.
type judgeFunc func(policy.Request) policy.Decision

func (f judgeFunc) Decide(r policy.Request) policy.Decision { return f(r) }

// only allows one host and port, tunnelled.
func only(host string, port uint16) judgeFunc {
	return func(r policy.Request) policy.Decision {
		if r.Host == host && r.Port == port {
			return policy.Decision{Allowed: true, Rule: "rule 1", Layer: "repository", Reason: "rule 1 allows it"}
		}
		return policy.Decision{Layer: "repository", Reason: "no rule allows it"}
	}
}

// reading allows GET below /v1/ on one host and port.
func reading(host string, port uint16) judgeFunc {
	return func(r policy.Request) policy.Decision {
		switch {
		case r.Host != host || r.Port != port:
			return policy.Decision{Layer: "repository", Reason: "no rule allows it"}
		case r.Method == "":
			return policy.Decision{Allowed: true, Inspect: true, Rule: "rule 1", Layer: "repository"}
		case r.Method != "GET" || !strings.HasPrefix(r.Path, "/v1/"):
			return policy.Decision{Rule: "rule 1", Layer: "repository", Reason: "the rule allows GET /v1/** only"}
		}
		return policy.Decision{Allowed: true, Rule: "rule 1", Layer: "repository"}
	}
}

// inspecting allows everything on one host, with TLS ended.
func inspecting(host string, opened ...string) judgeFunc {
	var addrs []netip.Prefix
	for _, s := range opened {
		addrs = append(addrs, netip.MustParsePrefix(s))
	}
	return func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: r.Host == host, Inspect: r.TLS && r.Method == "", Rule: "rule 1", Layer: "repository", Addresses: addrs}
	}
}

// A resolver answers from a table; several answers are given one after the
// other, the last for ever.
type resolver struct {
	mu      sync.Mutex
	answers map[string][][]string
	asked   []string
}

func (r *resolver) LookupNetIP(_ context.Context, _, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked = append(r.asked, host)
	list := r.answers[host]
	if len(list) == 0 {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	if len(list) > 1 {
		r.answers[host] = list[1:]
	}
	var out []netip.Addr
	for _, s := range list[0] {
		out = append(out, netip.MustParseAddr(s))
	}
	return out, nil
}

func (r *resolver) names() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]string(nil), r.asked...)
}

// A world is a proxy with one session, a resolver, and a network that leads
// every public address and port to a server of the test.
type world struct {
	t        *testing.T
	proxy    *Proxy
	session  Session
	resolver *resolver
	addr     string
	caPool   *x509.CertPool
	logs     *lockedBuffer
	stop     func() // ends the session

	mu       sync.Mutex
	judge    Judge
	verdicts []Verdict
	ended    []Verdict
	dialled  []string
	routes   map[uint16]string
	noted    chan struct{}
}

type lockedBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) text() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

const publicAddr = "203.0.113.7"

func newWorld(t *testing.T, judge Judge, change ...func(*Options, *limits)) *world {
	t.Helper()
	w := &world{
		t: t, judge: judge, routes: map[uint16]string{}, noted: make(chan struct{}, 1), logs: &lockedBuffer{},
		resolver: &resolver{answers: map[string][][]string{"api.x.example": {{publicAddr}}}},
	}
	o := Options{
		Resolver: w.resolver, Roots: testRoots(),
		Logger: slog.New(slog.NewTextHandler(w.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
	}
	lim := defaultLimits()
	for _, f := range change {
		f(&o, &lim)
	}
	var err error
	if w.proxy, err = New(o); err != nil {
		t.Fatal(err)
	}
	w.proxy.limits = lim
	w.proxy.dial = w.dial
	authority, err := leafcert.New("s-1")
	if err != nil {
		t.Fatal(err)
	}
	w.caPool = testRoots()
	w.caPool.AppendCertsFromPEM(authority.CertificatePEM())
	w.session = Session{ID: "s-1", CA: authority, Judge: w.policy, Record: w.record, Ended: w.end}
	return w.start()
}

func (w *world) start() *world {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		w.t.Fatal(err)
	}
	w.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done, session := make(chan error, 1), w.session
	go func() { done <- w.proxy.Serve(ctx, ln, session) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-done:
			if err != nil {
				w.t.Errorf("Serve: %v", err)
			}
		case <-time.After(time.Minute):
			buf := make([]byte, 1<<20)
			w.t.Errorf("Serve did not return:\n%s", buf[:runtime.Stack(buf, true)])
		}
	})
	w.t.Cleanup(w.stop)
	return w
}

func (w *world) policy() Judge {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.judge
}

func (w *world) setPolicy(j Judge) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.judge = j
}

func (w *world) record(v Verdict) {
	w.mu.Lock()
	w.verdicts = append(w.verdicts, v)
	w.mu.Unlock()
	select {
	case w.noted <- struct{}{}:
	default:
	}
}

func (w *world) end(v Verdict) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, v)
}

func (w *world) recorded() []Verdict {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]Verdict(nil), w.verdicts...)
}

// wait returns the first verdict that fits, when it comes.
func (w *world) wait(what string, fits func(Verdict) bool) Verdict {
	w.t.Helper()
	deadline := time.After(time.Minute)
	for {
		for _, v := range w.recorded() {
			if fits(v) {
				return v
			}
		}
		select {
		case <-w.noted:
		case <-deadline:
			w.t.Fatalf("no verdict: %s; got %+v", what, w.recorded())
		}
	}
}

// dial checks like the guard and then leads to the test's servers.
func (w *world) dial(ctx context.Context, addrs []netip.Addr, port uint16, opened []netip.Prefix) (net.Conn, error) {
	w.mu.Lock()
	route := w.routes[port]
	for _, a := range addrs {
		w.dialled = append(w.dialled, netip.AddrPortFrom(a, port).String())
	}
	w.mu.Unlock()
	for _, a := range addrs {
		if err := w.proxy.guard.Check(netip.AddrPortFrom(a, port), opened); err != nil {
			return nil, err
		}
	}
	if route == "" {
		return nil, errors.New("no route in this test")
	}
	return (&net.Dialer{}).DialContext(ctx, "tcp", route)
}

func (w *world) dials() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]string(nil), w.dialled...)
}

// serve leads a port to a server with the handler.
func (w *world) serve(port uint16, secure bool, handler http.HandlerFunc) *httptest.Server {
	server := httptest.NewUnstartedServer(handler)
	server.Config.ErrorLog = slog.NewLogLogger(slog.NewTextHandler(io.Discard, nil), slog.LevelDebug)
	if secure {
		server.EnableHTTP2 = true
		server.TLS = &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return testAuthority().Leaf(orHost(h.ServerName))
		}}
		server.StartTLS()
	} else {
		server.Start()
	}
	w.t.Cleanup(server.Close)
	w.route(port, server.Listener.Addr().String())
	return server
}

func orHost(name string) string {
	if name == "" {
		return publicAddr
	}
	return name
}

func (w *world) route(port uint16, addr string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.routes[port] = addr
}

var testAuthority = sync.OnceValue(func() *leafcert.Authority {
	a, err := leafcert.New("upstream")
	if err != nil {
		panic("BUG: " + err.Error())
	}
	return a
})

func testRoots() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(testAuthority().CertificatePEM())
	return pool
}

// raw opens a connection to the proxy.
func (w *world) raw() net.Conn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		w.t.Fatal(err)
	}
	return c
}

// send writes one raw request and reads the answer with its body.
func (w *world) send(raw string) (*http.Response, string) {
	w.t.Helper()
	c := w.raw()
	if _, err := io.WriteString(c, raw); err != nil {
		w.t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		w.t.Fatalf("answer to %.60q: %v", raw, err)
	}
	if res.StatusCode == http.StatusOK && strings.HasPrefix(raw, "CONNECT ") {
		return res, "" // a tunnel
	}
	body, _ := io.ReadAll(res.Body)
	return res, string(body)
}

// connect asks for a tunnel and returns it with the status line's rest.
func (w *world) connect(target string) (net.Conn, string) {
	w.t.Helper()
	c := w.raw()
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	var head []byte
	for b := make([]byte, 1); !bytes.HasSuffix(head, []byte("\r\n\r\n")); {
		if _, err := io.ReadFull(c, b); err != nil {
			w.t.Fatalf("CONNECT %s: %v after %q", target, err, head)
		}
		head = append(head, b...)
	}
	line, _, _ := strings.Cut(string(head), "\r\n")
	return c, strings.TrimPrefix(line, "HTTP/1.1 ")
}

// client is a program inside that knows the proxy and trusts the session.
func (w *world) client(h2 bool) *http.Client {
	proxyURL, err := url.Parse("http://" + w.addr)
	if err != nil {
		w.t.Fatal(err)
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(!h2)
	protocols.SetHTTP2(h2)
	if h2 {
		protocols.SetHTTP1(true)
	}
	t := &http.Transport{Proxy: http.ProxyURL(proxyURL), TLSClientConfig: &tls.Config{RootCAs: w.caPool}, Protocols: protocols, ExpectContinueTimeout: 5 * time.Second}
	w.t.Cleanup(t.CloseIdleConnections)
	return &http.Client{Transport: t, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

func (w *world) get(c *http.Client, target string) (int, string, *http.Response) {
	w.t.Helper()
	req, err := http.NewRequest("GET", target, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	return w.do(c, req)
}

// do sends a request and reads its whole answer.
func (w *world) do(c *http.Client, req *http.Request) (int, string, *http.Response) {
	w.t.Helper()
	res, err := c.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		w.t.Fatalf("%s %s: %v", req.Method, req.URL, err)
	}
	return res.StatusCode, string(body), res
}

// echoing is a server's end of a WebSocket that says something first, and then
// whatever it is told.
func echoing(rw http.ResponseWriter, first ...string) {
	rw.Header().Set("Connection", "Upgrade")
	rw.Header().Set("Upgrade", "websocket")
	rw.WriteHeader(http.StatusSwitchingProtocols)
	conn, brw, err := rw.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for _, text := range first {
		_, _ = brw.Write(textFrame(text))
	}
	_ = brw.Flush()
	_, _ = io.Copy(conn, brw)
}
