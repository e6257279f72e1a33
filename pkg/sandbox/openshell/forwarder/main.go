// Command forwarder promises one thing: to carry bytes between programs inside
// an OpenShell sandbox and their session's proxy at the node.
//
// It is the only program that the sandbox's own policy lets out, so it is kept
// as small as its task. It starts no program, takes no argument and no
// variable: all that it knows stands in a file beside it, for its owner alone,
// which its node has staged and which is read once. Programs inside find it on
// a loopback address; each of their connections becomes one to the node, opened
// through the sandbox's own proxy and begun with a preamble (package inlet).
// It is Go without C, and statically linked: nothing of the image is loaded.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

// What it says: ready once programs inside can connect, and open once the node
// has answered through the sandbox's own proxy. Until then their connections
// wait: not a byte of theirs leaves by a way that nobody has tried. Before both
// stands a line for each host at whose address it may not listen.
const ready, open, without = "ready\n", "open\n", "without %s: %s\n"

func main() {
	// Whoever else runs as this user must not read the token out of memory.
	closeMemory()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "forwarder:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("finding its own directory: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(filepath.Dir(self), inlet.ConfigName))
	if err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	c, err := inlet.ParseConfig(string(text))
	if err != nil {
		return fmt.Errorf("reading what to do: %w", err)
	}
	f, err := newForwarder(c, most)
	if err != nil {
		return err
	}
	defer f.close()
	for _, m := range f.missing {
		if _, err := fmt.Fprintf(out, without, m.host, m.why); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, ready); err != nil {
		return err
	}
	if err := f.ask(ctx); err != nil {
		return err
	}
	if _, err := io.WriteString(out, open); err != nil {
		return err
	}
	f.serve(ctx)
	return nil
}

// ask has the node answer about itself. OpenShell's proxy may begin to serve
// later than the sandbox is ready: until then this waits.
func (f *forwarder) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := f.open(ctx, inlet.Preamble{Token: f.config.Token}, "")
	if err != nil {
		return err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := inlet.Ask(conn); err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	return nil
}

const (
	// most is how many connections it carries at once. More wait in the
	// kernel's queue.
	most = 1024
	// dialWithin bounds opening a connection to the node, by way of the
	// sandbox's proxy.
	dialWithin = 30 * time.Second
	// mostHead bounds the answer of the sandbox's proxy.
	mostHead = 8 << 10
)

// A forwarder is the listeners inside and what they lead to.
type forwarder struct {
	config  inlet.Config
	proxy   string // address of the sandbox's own
	inners  []inner
	missing []missing
	slots   chan struct{}
	program func(net.Addr) (pid int, name string)
	dial    func(ctx context.Context, network, address string) (net.Conn, error)

	work sync.WaitGroup

	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
}

// missing is a host whose address cannot be listened at. Ports below 1024 are
// the machine's to give, and the rest does not depend on one of them.
type missing struct {
	host string
	why  error
}

// inner is one listener: for the node's proxy, or for one host beyond it.
type inner struct {
	net.Listener
	host string // empty for the proxy
}

func newForwarder(c inlet.Config, most int) (*forwarder, error) {
	f := &forwarder{config: c, slots: make(chan struct{}, most), conns: map[net.Conn]bool{}, program: whoAsked, dial: new(net.Dialer).DialContext}
	var err error
	if f.proxy, err = inlet.ProxyAddress(c.Proxy); err != nil {
		return nil, err
	}
	for _, d := range append([]inlet.Direct{{Listen: c.Listen}}, c.Direct...) {
		ln, err := net.Listen("tcp", d.Listen)
		if err != nil && d.Host != "" {
			f.missing = append(f.missing, missing{d.Host, cause(err)})
			continue
		}
		if err != nil {
			f.close()
			return nil, fmt.Errorf("listening inside: %w", err)
		}
		f.inners = append(f.inners, inner{ln, d.Host})
	}
	return f, nil
}

// cause is the innermost error: the others name the address once more.
func cause(err error) error {
	for inner := errors.Unwrap(err); inner != nil; inner = errors.Unwrap(err) {
		err = inner
	}
	return err
}

// serve carries connections until ctx ends, and returns when none is left.
func (f *forwarder) serve(ctx context.Context) {
	stop := context.AfterFunc(ctx, f.close)
	defer stop()
	for _, in := range f.inners {
		f.work.Go(func() { f.accept(ctx, in) })
	}
	f.work.Wait()
}

func (f *forwarder) close() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.closed = true
	for _, in := range f.inners {
		_ = in.Close()
	}
	for c := range f.conns {
		_ = c.Close()
	}
}

func (f *forwarder) accept(ctx context.Context, in inner) {
	for {
		select {
		case f.slots <- struct{}{}:
		case <-ctx.Done():
			return
		}
		conn, err := in.Accept()
		if err == nil {
			f.work.Go(func() {
				defer func() { <-f.slots }()
				f.carry(ctx, conn, in.host)
			})
			continue
		}
		<-f.slots
		if errors.Is(err, net.ErrClosed) || !pause(ctx) {
			return
		}
	}
}

// pause waits until descriptors may have come free.
func pause(ctx context.Context) bool {
	again := time.NewTimer(50 * time.Millisecond)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// keep makes close end this connection too.
func (f *forwarder) keep(c net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		_ = c.Close()
		return false
	}
	f.conns[c] = true
	return true
}

func (f *forwarder) drop(c net.Conn) {
	f.mu.Lock()
	delete(f.conns, c)
	f.mu.Unlock()
	_ = c.Close()
}

// carry joins one connection to the node.
func (f *forwarder) carry(ctx context.Context, conn net.Conn, host string) {
	defer f.drop(conn)
	if !f.keep(conn) {
		return
	}
	pid, name := f.program(conn.RemoteAddr())
	out, err := f.open(ctx, inlet.Preamble{Token: f.config.Token, PID: pid, Program: name}, host)
	if err != nil {
		if host == "" {
			refuse(conn, err)
		}
		return
	}
	defer f.drop(out)
	if !f.keep(out) {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { pour(out, conn) })
	pour(conn, out)
	both.Wait()
}

// open connects to the node and says who asks; with a host, on to that one.
func (f *forwarder) open(ctx context.Context, p inlet.Preamble, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := f.dial(ctx, "tcp", f.proxy)
	if err != nil {
		return nil, fmt.Errorf("the sandbox's own proxy cannot be reached: %w", err)
	}
	hurry := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	err = f.introduce(conn, p, host)
	if !hurry() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func (f *forwarder) introduce(conn net.Conn, p inlet.Preamble, host string) error {
	if err := connect(conn, f.config.Target); err != nil {
		return fmt.Errorf("the sandbox's own proxy: %w", err)
	}
	preamble := p.Encode()
	if _, err := conn.Write(preamble[:]); err != nil {
		return err
	}
	if host == "" {
		return nil
	}
	if err := connect(conn, host); err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	return nil
}

// connect asks a proxy for a tunnel. Its answer is read a byte at a time:
// what follows it belongs to somebody else.
func connect(conn net.Conn, to string) error {
	if _, err := fmt.Fprintf(conn, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", to, to); err != nil {
		return err
	}
	head := make([]byte, 0, 512)
	var one [1]byte
	for len(head) < 4 || string(head[len(head)-4:]) != "\r\n\r\n" {
		if len(head) == mostHead {
			return errors.New("its answer does not end")
		}
		if _, err := io.ReadFull(conn, one[:]); err != nil {
			return fmt.Errorf("no answer: %w", err)
		}
		head = append(head, one[0])
	}
	if len(head) < 12 || string(head[:7]) != "HTTP/1." || string(head[8:12]) != " 200" {
		return errors.New("it refused")
	}
	return nil
}

// refuse answers a client of the proxy in its own language.
func refuse(conn net.Conn, err error) {
	text := "the session's way out does not answer: " + err.Error() + "\n"
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(conn, "HTTP/1.1 502 Bad Gateway\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(text), text)
}

// pour carries one direction; between two sockets the kernel does it. An end
// is passed on as an end, an error as a reset.
func pour(to, from net.Conn) {
	_, err := io.Copy(to, from)
	if half, ok := to.(*net.TCPConn); ok && err == nil {
		_ = half.CloseWrite()
		return
	}
	for _, c := range []net.Conn{to, from} {
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		_ = c.Close()
	}
}
