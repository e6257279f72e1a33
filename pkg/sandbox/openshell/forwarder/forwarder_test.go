package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

const patience = 2 * time.Minute

// few is how many connections the forwarders of these tests carry at once.
const few = 3

// A world is a node's listener, a sandbox's own proxy in front of it, and a
// forwarder in front of that.
type world struct {
	t         *testing.T
	inlet     *inlet.Listener
	forwarder *forwarder
	config    inlet.Config
	asked     chan string // targets that the sandbox's proxy was asked for
	refuse    atomic.Bool // by the sandbox's proxy
}

func newWorld(t *testing.T, serve func(net.Conn), direct ...string) *world {
	t.Helper()
	in, err := inlet.Listen(inlet.Options{Address: netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	in.Admit(netip.MustParseAddr("127.0.0.1"))
	w := &world{t: t, inlet: in, asked: make(chan string, 4096)}
	proxy := w.listen("127.0.0.1:0")
	c := inlet.Config{Proxy: "http://" + proxy.Addr().String(), Target: "host.example:4711", Token: in.Token(), Listen: "127.0.0.1:0"}
	for i, host := range direct {
		c.Direct = append(c.Direct, inlet.Direct{Listen: fmt.Sprintf("127.0.1.%d:0", i+1), Host: host})
	}
	f, err := newForwarder(c, few)
	if err != nil {
		t.Fatal(err)
	}
	w.forwarder, w.config = f, c
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { f.serve(ctx) })
	running.Go(func() { each(proxy, w.proxy) })
	running.Go(func() { each(in, serve) })
	t.Cleanup(func() {
		cancel()
		_, _ = in.Close(), proxy.Close()
		running.Wait()
	})
	return w
}

func (w *world) listen(at string) net.Listener {
	w.t.Helper()
	ln, err := net.Listen("tcp", at)
	if err != nil {
		w.t.Fatal(err)
	}
	return ln
}

// each serves connections until ln is closed, and waits for them.
func each(ln net.Listener, serve func(net.Conn)) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		all.Go(func() { defer c.Close(); serve(c) })
	}
}

// proxy is what OpenShell's does: a tunnel for CONNECT to the one target.
func (w *world) proxy(c net.Conn) {
	in := bufio.NewReader(c)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	w.asked <- req.Method + " " + req.Host
	if w.refuse.Load() {
		_, _ = io.WriteString(c, "HTTP/1.1 403 Forbidden\r\nContent-Length: 2\r\n\r\n{}")
		return
	}
	out, err := net.Dial("tcp", w.inlet.Addr().String())
	if err != nil {
		return
	}
	defer out.Close()
	_, _ = io.WriteString(c, "HTTP/1.1 200 Connection Established\r\n\r\n")
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(out, in); _ = out.(*net.TCPConn).CloseWrite() })
	_, _ = io.Copy(c, out)
	_ = c.(*net.TCPConn).CloseWrite()
	both.Wait()
}

func (w *world) dial(i int) *net.TCPConn {
	w.t.Helper()
	c, err := net.Dial("tcp", w.forwarder.inners[i].Addr().String())
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return c.(*net.TCPConn)
}

func echo(c net.Conn) {
	_, _ = io.Copy(c, c)
	_ = c.(*net.TCPConn).CloseWrite()
}

func TestEveryByteArrives(t *testing.T) {
	w := newWorld(t, echo)
	data := make([]byte, 8<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(data)
	c := w.dial(0)
	go func() { _, _ = c.Write(data); _ = c.CloseWrite() }()
	got, err := io.ReadAll(c)
	if err != nil || sha256.Sum256(got) != sha256.Sum256(data) {
		t.Errorf("%d bytes of %d, %v", len(got), len(data), err)
	}
	if got := <-w.asked; got != "CONNECT host.example:4711" {
		t.Errorf("the sandbox's proxy was asked for %q", got)
	}
}

// TestEndsArePassedOn: a client that has sent all still gets its answer, and a
// server that has said all still hears its client.
func TestEndsArePassedOn(t *testing.T) {
	heard := make(chan string, 1)
	w := newWorld(t, func(c net.Conn) {
		_, _ = io.WriteString(c, "said")
		_ = c.(*net.TCPConn).CloseWrite()
		all, _ := io.ReadAll(c)
		heard <- string(all)
	})
	c := w.dial(0)
	if got, err := io.ReadAll(c); err != nil || string(got) != "said" {
		t.Fatalf("got %q, %v", got, err)
	}
	_, _ = io.WriteString(c, "late")
	_ = c.CloseWrite()
	if got := <-heard; got != "late" {
		t.Errorf("the node heard %q", got)
	}
}

func TestD29d_DirectAddresses(t *testing.T) {
	w := newWorld(t, func(c net.Conn) {
		in := bufio.NewReader(c)
		req, err := http.ReadRequest(in)
		if err != nil {
			return
		}
		if req.Method != "CONNECT" || req.Host == "denied.example:5432" {
			_, _ = io.WriteString(c, "HTTP/1.1 403 policy\r\nContent-Length: 0\r\n\r\n")
			return
		}
		// The first bytes of the server come right behind the answer.
		_, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n"+req.Host+"\n")
		_, _ = io.Copy(c, in)
		_ = c.(*net.TCPConn).CloseWrite()
	}, "db.example:5432", "denied.example:5432")
	c := w.dial(1)
	_, _ = io.WriteString(c, "select")
	_ = c.CloseWrite()
	if got, err := io.ReadAll(c); err != nil || string(got) != "db.example:5432\nselect" {
		t.Errorf("got %q, %v", got, err)
	}
	if got, _ := io.ReadAll(w.dial(2)); len(got) != 0 {
		t.Errorf("a denied one says %q", got)
	}
}

func TestRefusalsAreSaid(t *testing.T) {
	w := newWorld(t, echo)
	w.refuse.Store(true)
	got, _ := io.ReadAll(w.dial(0))
	if !bytes.HasPrefix(got, []byte("HTTP/1.1 502 ")) || !bytes.Contains(got, []byte("way out does not answer")) {
		t.Errorf("got %q", got)
	}
	if bytes.Contains(got, []byte(w.inlet.Token().Hex())) {
		t.Error("it shows the token")
	}
}

func TestHostileAnswers(t *testing.T) {
	for name, answer := range map[string]string{
		"endless": "HTTP/1.1 200 OK\r\n" + strings.Repeat("A: b\r\n", 4000), "no http": "200 OK\r\n\r\n", "nothing": "", "2000": "HTTP/1.1 2000\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			a, b := net.Pipe()
			defer a.Close()
			go func() {
				defer b.Close()
				_, _ = b.Read(make([]byte, 512))
				_, _ = io.WriteString(b, answer)
			}()
			err := connect(a, "x:1")
			if err == nil != (name == "2000") { // only its first three digits are looked at
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestD29_WhoAsked(t *testing.T) {
	names := make(chan string, 1)
	var w atomic.Pointer[world]
	w.Store(newWorld(t, func(c net.Conn) {
		_, name, _ := w.Load().inlet.WhoAsked(c.RemoteAddr())
		names <- name
	}))
	if runtime.GOOS != "linux" {
		return
	}
	self, err := os.ReadFile("/proc/self/comm")
	if err != nil {
		t.Fatal(err)
	}
	// It looks for some milliseconds only: on a busy machine it may not know, but
	// it never names another.
	got := ""
	for due := time.Now().Add(patience); got == "" && time.Now().Before(due); {
		c := w.Load().dial(0)
		got = <-names
		_ = c.Close()
	}
	if got != strings.TrimSpace(string(self)) {
		t.Errorf("asked by %q, want %q", got, self)
	}
}

// TestNoMoreThanItMay opens more than are carried: the rest waits, and comes
// when others have gone. Afterwards nothing is left.
func TestNoMoreThanItMay(t *testing.T) {
	before := runtime.NumGoroutine()
	t.Run("full", func(t *testing.T) {
		w := newWorld(t, echo)
		var all sync.WaitGroup
		for i := range 40 {
			all.Go(func() {
				c := w.dial(0)
				_, _ = fmt.Fprintf(c, "%d", i)
				_ = c.CloseWrite()
				if got, err := io.ReadAll(c); err != nil || string(got) != fmt.Sprint(i) {
					t.Errorf("%d: got %q, %v", i, got, err)
				}
			})
		}
		all.Wait()
	})
	due := time.Now().Add(patience)
	for runtime.NumGoroutine() > before && time.Now().Before(due) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines before, %d after", before, n)
	}
}

// TestTheProgram runs what was built: static, it reads its file and nothing
// else, and says that it is ready. What connects inside waits until the node has
// answered by the way out, then gets through. It ends when it is told to.
func TestTheProgram(t *testing.T) {
	program := built(t)
	if out, err := exec.CommandContext(t.Context(), program).CombinedOutput(); err == nil || !strings.Contains(string(out), inlet.ConfigName) {
		t.Errorf("without a file: %v %q", err, out)
	}
	mayAnswer, first := make(chan struct{}), make(chan string, 8)
	w := newWorld(t, func(c net.Conn) {
		line, _ := bufio.NewReader(c).ReadString('\n')
		first <- line
		<-mayAnswer
		_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
	})
	cmd, said, at := start(t, program, w.config)
	if line := <-said; line != ready {
		t.Errorf("it says %q", line)
	}
	conn, err := net.Dial("tcp", at)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "from inside\n"); err != nil {
		t.Fatal(err)
	}
	if line := <-first; !strings.Contains(line, "/healthz") {
		t.Errorf("before it has asked itself, %q came through", line)
	}
	close(mayAnswer)
	if line := <-said; line != open {
		t.Errorf("it says %q", line)
	}
	if line := <-first; line != "from inside\n" {
		t.Errorf("then %q came through", line)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("it ended with %v", err)
	}
}

// TestNoWayThatWasNotTried: where nobody answers by the way out, or somebody else
// does, nothing is let through, and its last word says why.
func TestNoWayThatWasNotTried(t *testing.T) {
	program := built(t)
	other := newWorld(t, func(c net.Conn) { _, _ = io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n") })
	refusing := newWorld(t, echo)
	refusing.refuse.Store(true)
	dead := inlet.Config{Proxy: "http://127.0.0.1:1", Target: "host.example:4711"}
	for name, tt := range map[string]struct {
		config inlet.Config
		says   string
	}{"dead": {dead, "cannot be reached"}, "another": {other.config, "200 OK"}, "refused": {refusing.config, "it refused"}} {
		cmd, said, _ := start(t, program, tt.config)
		if line := <-said; line != ready {
			t.Errorf("%s: it says %q", name, line)
		}
		if line := <-said; !strings.Contains(line, tt.says) {
			t.Errorf("%s: it says %q, want %q", name, line, tt.says)
		}
		if err := cmd.Wait(); err == nil {
			t.Errorf("%s: it ended as if all were well", name)
		}
	}
}

func built(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "forwarder")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// start runs the program and answers what it says, line by line, and where it
// listens.
func start(t *testing.T, program string, c inlet.Config) (cmd *exec.Cmd, said <-chan string, at string) {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	c.Listen = free.Addr().String()
	free.Close()
	file := filepath.Join(filepath.Dir(program), inlet.ConfigName)
	_ = os.Remove(file)
	if err := os.WriteFile(file, c.Encode(), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd = exec.CommandContext(t.Context(), program, "--target", "elsewhere:1")
	cmd.Env = []string{"HTTPS_PROXY=http://elsewhere:1"}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = cmd.Stdout
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := make(chan string, 8)
	go func() {
		defer close(lines)
		in := bufio.NewReader(out)
		for line, err := in.ReadString('\n'); err == nil; line, err = in.ReadString('\n') {
			lines <- line
		}
	}()
	return cmd, lines, c.Listen
}

// TestD29d_ATakenAddressIsNotTheEnd: one host at whose address nobody may listen
// takes nothing from the others, and is named.
func TestD29d_ATakenAddressIsNotTheEnd(t *testing.T) {
	w := newWorld(t, func(net.Conn) {})
	taken := w.listen("127.0.1.9:0")
	defer taken.Close()
	c := w.config
	c.Direct = []inlet.Direct{{Listen: taken.Addr().String(), Host: "low.example:22"}, {Listen: "127.0.1.9:0", Host: "db.example:5432"}}
	f, err := newForwarder(c, few)
	if err != nil {
		t.Fatal(err)
	}
	defer f.close()
	if len(f.inners) != 2 || f.inners[1].host != "db.example:5432" {
		t.Errorf("it listens for %d, with the proxy", len(f.inners))
	}
	if len(f.missing) != 1 || fmt.Sprint(f.missing[0].host, " ", f.missing[0].why) != "low.example:22 address already in use" {
		t.Errorf("it misses %v", f.missing)
	}
	c.Listen = taken.Addr().String()
	if f, err := newForwarder(c, few); err == nil {
		f.close()
		t.Error("it goes on without the proxy")
	}
}
