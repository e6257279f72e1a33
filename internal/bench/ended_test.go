package bench

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/elazarl/goproxy"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

const benchKey = "sk-bench-Zm9yIHRoZSBiZW5jaG1hcmsgb25seSwgbm8ga2V5IGF0IGFsbA"

// An ender is a proxy that ends TLS, or none: then the client goes straight.
type ender struct {
	name   string
	addr   string
	roots  *x509.CertPool
	secret string // what the client sends in place of the key
}

// BenchmarkTLSEnded compares proxies that end TLS and put a key in place of
// what the client sends: goproxy, mitmproxy where mitmdump is on the PATH, and
// ours: with a key that is swapped and masked, with one that is only masked, and
// without any. They take turns in each round, so that a busy machine is busy for all; -benchtime
// 5x is five rounds. The ratios to goproxy are what to look at.
func BenchmarkTLSEnded(b *testing.B) {
	origin := newOrigin(b)
	enders := []ender{
		{"direct", "", origin.roots, benchKey},
		startGoproxy(b, origin),
		startOurs(b, origin, "ours", true),
		startOurs(b, origin, "ours, no key", false),
	}
	masking := enders[2]
	masking.name, masking.secret = "ours, only masking", ""
	enders = append(enders, masking)
	if mitmdump, err := exec.LookPath("mitmdump"); err == nil {
		enders = append(enders, startMitmproxy(b, origin, mitmdump))
	}
	kinds := []struct {
		name    string
		measure func(*testing.B, *originServer, ender) []time.Duration
	}{{"kept", kept}, {"new", fresh}, {"16 kept", crowd}, {"16 MB", bulk}}
	took := map[string][]time.Duration{}
	for b.Loop() {
		for _, k := range kinds {
			for _, e := range enders {
				runtime.GC() // nobody pays for what the one before has thrown away
				took[k.name+e.name] = append(took[k.name+e.name], k.measure(b, origin, e)...)
			}
		}
	}
	var table strings.Builder
	for _, k := range kinds {
		peer := took[k.name+"goproxy"]
		slices.Sort(peer)
		for _, e := range enders {
			t := took[k.name+e.name]
			slices.Sort(t)
			ratio, ratio95 := float64(at(t, 50))/float64(at(peer, 50)), float64(at(t, 95))/float64(at(peer, 95))
			fmt.Fprintf(&table, "| %s, %s | %d | %.3f | %.3f | %.2f, %.2f |\n", e.name, k.name, len(t), ms(at(t, 50)), ms(at(t, 95)), ratio, ratio95)
			b.ReportMetric(ratio, strings.ReplaceAll(k.name+":"+e.name, " ", "_")+"/goproxy")
		}
	}
	fmt.Printf("| what | runs | p50 ms | p95 ms | of goproxy: p50, p95 |\n%s", table.String())
}

func at(sorted []time.Duration, percent int) time.Duration {
	return sorted[(len(sorted)-1)*percent/100]
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// kept measures round trips on one connection.
func kept(b *testing.B, o *originServer, e ender) (took []time.Duration) {
	c := o.dial(b, e)
	defer c.Close()
	for range 300 {
		begun := time.Now()
		c.get(b, "/1k")
		took = append(took, time.Since(begun))
	}
	return took[100:] // the first ones warm up
}

// fresh measures a connection from its beginning to its first answer.
func fresh(b *testing.B, o *originServer, e ender) (took []time.Duration) {
	for range 20 {
		begun := time.Now()
		c := o.dial(b, e)
		c.get(b, "/1k")
		took = append(took, time.Since(begun))
		c.Close()
	}
	return took
}

// crowd measures 16 clients at once: the time that a request takes of all.
func crowd(b *testing.B, o *originServer, e ender) []time.Duration {
	const clients, long = 16, 400 * time.Millisecond
	var group sync.WaitGroup
	var done atomic.Int64
	var ready sync.WaitGroup
	ready.Add(clients)
	begin := make(chan struct{})
	for range clients {
		c := o.dial(b, e)
		group.Go(func() {
			defer c.Close()
			for range 5 {
				c.get(b, "/1k")
			}
			ready.Done()
			<-begin
			for end := time.Now().Add(long); time.Now().Before(end); {
				c.get(b, "/1k")
				done.Add(1)
			}
		})
	}
	ready.Wait()
	begun := time.Now()
	close(begin)
	group.Wait()
	return []time.Duration{time.Since(begun) / time.Duration(max(1, done.Load()))}
}

// bulk measures a large answer.
func bulk(b *testing.B, o *originServer, e ender) []time.Duration {
	c := o.dial(b, e)
	defer c.Close()
	c.get(b, "/1k")
	begun := time.Now()
	c.get(b, "/16m")
	return []time.Duration{time.Since(begun)}
}

// originServer is a server that costs as little as possible, and answers only who
// shows the key.
type originServer struct {
	host  string
	roots *x509.CertPool
	pem   []byte
}

func newOrigin(b *testing.B) *originServer {
	authority, err := leafcert.New("origin")
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := authority.Leaf("127.0.0.1")
	if err != nil {
		b.Fatal(err)
	}
	small, large := originAnswer(1<<10), originAnswer(16<<20)
	s, err := listen(func(c net.Conn) {
		t := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*leaf}, DynamicRecordSizingDisabled: true})
		originate(t, bufio.NewReader(t), small, large)
	})
	if err != nil {
		b.Fatal(err)
	}
	o := &originServer{host: s.ln.Addr().String(), roots: x509.NewCertPool(), pem: authority.CertificatePEM()}
	o.roots.AppendCertsFromPEM(o.pem)
	b.Cleanup(func() { s.ln.Close() }) // its connections end with those who opened them
	return o
}

func originAnswer(n int) []byte {
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nDate: Sun, 29 Nov 2026 12:00:00 GMT\r\nServer: bench\r\nContent-Type: application/json\r\nX-Request-Id: 0123456789abcdef\r\nContent-Length: %d\r\n\r\n", n)
	return append([]byte(head), bytes.Repeat([]byte("{\"a\":\"b c\"}\n"), n/12+1)[:n]...)
}

func originate(w io.Writer, in *bufio.Reader, small, large []byte) {
	for {
		path, authorised := "", false
		for {
			line, err := in.ReadSlice('\n')
			if err != nil {
				return
			}
			if line = bytes.TrimSpace(line); len(line) == 0 {
				break
			}
			if path == "" {
				path = string(bytes.Fields(line)[1])
			}
			name, value, _ := bytes.Cut(line, []byte(": "))
			authorised = authorised || string(value) == "Bearer "+benchKey && strings.EqualFold(string(name), "Authorization")
		}
		out := small
		switch {
		case !authorised && path != "/open/1k" && path != "/open/16m":
			out = []byte("HTTP/1.1 401 Unauthorised\r\nContent-Length: 0\r\n\r\n")
		case strings.HasSuffix(path, "/16m"):
			out = large
		}
		if _, err := w.Write(out); err != nil {
			return
		}
	}
}

// caller is a client that costs as little as possible.
type caller struct {
	net.Conn
	in   *bufio.Reader
	asks func(path string) []byte
}

func (o *originServer) dial(b *testing.B, e ender) *caller {
	addr := e.addr
	if addr == "" {
		addr = o.host
	}
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	if e.addr != "" {
		fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", o.host, o.host)
		res, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: http.MethodConnect})
		if err != nil || res.StatusCode != 200 {
			b.Fatalf("%s: CONNECT: %v %v", e.name, res, err)
		}
	}
	t := tls.Client(conn, &tls.Config{ServerName: "127.0.0.1", RootCAs: e.roots})
	if err := t.Handshake(); err != nil {
		b.Fatalf("%s: %v", e.name, err)
	}
	asks := func(path string) []byte {
		if e.secret == "" {
			path = "/open" + path
		}
		return fmt.Appendf(nil, "GET %s HTTP/1.1\r\nHost: %s\r\nUser-Agent: bench/1.0\r\nAccept: application/json\r\nContent-Type: application/json\r\nX-Session: 5f2b7e\r\nAuthorization: Bearer %s\r\n\r\n", path, o.host, e.secret)
	}
	return &caller{Conn: t, in: bufio.NewReaderSize(t, 64<<10), asks: asks}
}

// get asks and reads the whole answer, however it is framed.
func (c *caller) get(b *testing.B, path string) {
	if _, err := c.Write(c.asks(path)); err != nil {
		b.Error(err)
		return
	}
	if err := c.answer(); err != nil {
		b.Error(err)
	}
}

func (c *caller) answer() error {
	length, chunked := 0, false
	for first := true; ; first = false {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			break
		}
		if first && !bytes.Contains(line, []byte(" 200 ")) {
			return errors.New("answered " + string(line))
		}
		name, value, _ := bytes.Cut(line, []byte(": "))
		switch strings.ToLower(string(name)) {
		case "content-length":
			length, _ = strconv.Atoi(string(value))
		case "transfer-encoding":
			chunked = true
		}
	}
	if !chunked {
		_, err := c.in.Discard(length)
		return err
	}
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		n, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 64)
		if err != nil {
			return err
		}
		if _, err := c.in.Discard(int(n) + 2); err != nil || n == 0 {
			return err
		}
	}
}

// ending reads what goes to any host.
type ending struct{ ranges []netip.Prefix }

func (e ending) Decide(r policy.Request) policy.Decision {
	return policy.Decision{Allowed: true, Inspect: r.Method == "", Addresses: e.ranges, Rule: "bench", Layer: policy.LayerRepository, Reason: "measured"}
}

func startOurs(b *testing.B, o *originServer, name string, withKey bool) ender {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	proxy, err := egress.New(egress.Options{Private: loopback, Roots: o.roots})
	if err != nil {
		b.Fatal(err)
	}
	ca, err := leafcert.New("bench")
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	e := ender{name: name, addr: ln.Addr().String(), roots: x509.NewCertPool()}
	e.roots.AppendCertsFromPEM(ca.CertificatePEM())
	session := egress.Session{ID: "bench", CA: ca, Judge: func() egress.Judge { return ending{loopback} }, Record: func(egress.Verdict) {}}
	if withKey {
		session.Keys = secrets.NewBook().Open("bench")
		e.secret, err = session.Keys.Add(secrets.Secret{Name: "BENCH_KEY", Value: secrets.NewValue([]byte(benchKey)), Binding: secrets.Binding{Hosts: []string{o.host}}})
		if err != nil {
			b.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- proxy.Serve(ctx, ln, session) }()
	b.Cleanup(func() { cancel(); <-done })
	return e
}

// startGoproxy swaps as much as is asked of it, with its leaves kept as ours
// are and as many connections to the server.
func startGoproxy(b *testing.B, o *originServer) ender {
	const standIn = "sk-bench-a-stand-in-that-goproxy-puts-the-key-in-place-of-...."
	ca := selfSigned(b)
	p := goproxy.NewProxyHttpServer()
	p.Logger = log.New(io.Discard, "", 0)
	p.CertStore = &certStore{}
	p.Tr = &http.Transport{TLSClientConfig: &tls.Config{RootCAs: o.roots}, MaxIdleConnsPerHost: 16}
	mitm := &goproxy.ConnectAction{Action: goproxy.ConnectMitm, TLSConfig: goproxy.TLSConfigFromCA(&ca)}
	p.OnRequest().HandleConnectFunc(func(host string, _ *goproxy.ProxyCtx) (*goproxy.ConnectAction, string) { return mitm, host })
	p.OnRequest().DoFunc(func(r *http.Request, _ *goproxy.ProxyCtx) (*http.Request, *http.Response) {
		if r.Header.Get("Authorization") == "Bearer "+standIn {
			r.Header.Set("Authorization", "Bearer "+benchKey)
		}
		return r, nil
	})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	server := &http.Server{Handler: p}
	go server.Serve(ln)
	b.Cleanup(func() { server.Close(); p.Tr.CloseIdleConnections() })
	roots := x509.NewCertPool()
	roots.AddCert(ca.Leaf)
	return ender{"goproxy", ln.Addr().String(), roots, standIn}
}

// selfSigned is an authority with a key of the kind that ours has: goproxy's
// own signs with RSA, which is slower.
func selfSigned(b *testing.B) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "bench"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		KeyUsage: x509.KeyUsageCertSign, BasicConstraintsValid: true, IsCA: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		b.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}
}

// certStore keeps leaves, as goproxy does only where it is told to.
type certStore struct{ leaves sync.Map }

func (s *certStore) Fetch(host string, gen func() (*tls.Certificate, error)) (*tls.Certificate, error) {
	if leaf, ok := s.leaves.Load(host); ok {
		return leaf.(*tls.Certificate), nil
	}
	leaf, err := gen()
	if err == nil {
		s.leaves.Store(host, leaf)
	}
	return leaf, err
}

const addon = `
from mitmproxy import http
def requestheaders(flow: http.HTTPFlow):
    if flow.request.headers.get("Authorization") == "Bearer STANDIN":
        flow.request.headers["Authorization"] = "Bearer KEY"
    flow.request.stream = True
def responseheaders(flow: http.HTTPFlow):
    flow.response.stream = True
`

func startMitmproxy(b *testing.B, o *originServer, mitmdump string) ender {
	const standIn = "sk-bench-a-stand-in-that-mitmproxy-puts-the-key-in-place-of..."
	dir := b.TempDir()
	script, trust := filepath.Join(dir, "addon.py"), filepath.Join(dir, "origin.pem")
	text := strings.NewReplacer("STANDIN", standIn, "KEY", benchKey).Replace(addon)
	if err := errors.Join(os.WriteFile(script, []byte(text), 0o600), os.WriteFile(trust, o.pem, 0o600)); err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	addr := ln.Addr().String()
	ln.Close()
	_, port, _ := net.SplitHostPort(addr)
	cmd := exec.Command(mitmdump, "-q", "--listen-host", "127.0.0.1", "-p", port, "--set", "confdir="+dir, "--set", "connection_strategy=lazy", "--set", "ssl_verify_upstream_trusted_ca="+trust, "-s", script)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	ca := filepath.Join(dir, "mitmproxy-ca-cert.pem")
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		c, err := net.Dial("tcp", addr)
		if err == nil {
			c.Close()
			break
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
	pem, err := os.ReadFile(ca)
	if err != nil {
		b.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(pem)
	return ender{"mitmproxy", addr, roots, standIn}
}
