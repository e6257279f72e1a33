// Package inlet promises a listener through which one sandbox's forwarder gets
// to its node, and nobody else.
//
// Where a sandbox has no listener of its own to hand out, its connections come
// over a network that others can reach too: other containers of the same
// bridge, or every process of this machine. So each session has a listener
// with a port of its own; it takes connections of that sandbox's address only,
// which must begin with a preamble that holds the session's token. A wrong one
// is answered 407 and nothing more, and who is wrong three times is not
// answered any more. What is accepted is the connection itself, past its
// preamble.
//
// The package also holds what the program at the other end (package
// forwarder) has to know: the preamble and its configuration.
package inlet

import (
	"crypto/rand"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Options configure a [Listener].
type Options struct {
	// Address is where to listen: the node's address on the bridge, or a
	// loopback one. The port is chosen.
	Address netip.Addr
	// Refused is told of everybody who was not let in, from many goroutines.
	// It may be nil.
	Refused func(Refusal)
	// Within bounds the wait for a preamble; zero means ten seconds.
	Within time.Duration
}

// A Refusal is somebody who was not let in.
type Refusal struct {
	Peer   netip.Addr
	UID    int // of the process behind a loopback address; -1 where unknown
	Reason string
	// Closed says that this peer will not be answered any more.
	Closed bool
}

const (
	// failures is how often a peer may be wrong.
	failures = 3
	// mostWaiting bounds the connections whose preamble is awaited: they cost
	// a descriptor each, and whoever opens them need know nothing.
	mostWaiting = 256
	// mostKnown bounds what is remembered about peers and programs.
	mostKnown = 4096
)

// A Listener accepts the connections of one sandbox's forwarder.
type Listener struct {
	inner   *net.TCPListener
	token   Token
	refused func(Refusal)
	within  time.Duration

	accepted chan net.Conn
	done     chan struct{}
	once     sync.Once
	work     sync.WaitGroup
	waiting  chan struct{}

	mu      sync.Mutex // guards what follows
	admit   map[netip.Addr]bool
	wrong   map[peer]int
	asked   map[string]Preamble // by remote address, until somebody asks
	pending map[net.Conn]bool
}

// peer is who is counted as one: behind a loopback address every user of the
// machine is somebody else, and one must not close the way of another.
type peer struct {
	addr netip.Addr
	uid  int
}

// Listen opens a listener that lets nobody in until [Listener.Admit].
func Listen(o Options) (*Listener, error) {
	if !o.Address.IsValid() || o.Address.IsUnspecified() {
		return nil, errors.New("BUG: a way in on every address of the machine")
	}
	l := &Listener{
		refused: o.Refused, within: o.Within,
		accepted: make(chan net.Conn), done: make(chan struct{}), waiting: make(chan struct{}, mostWaiting),
		admit: map[netip.Addr]bool{}, wrong: map[peer]int{}, asked: map[string]Preamble{}, pending: map[net.Conn]bool{},
	}
	if l.refused == nil {
		l.refused = func(Refusal) {}
	}
	if l.within <= 0 {
		l.within = 10 * time.Second
	}
	if _, err := rand.Read(l.token[:]); err != nil {
		return nil, fmt.Errorf("making a session's token: %w", err)
	}
	inner, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(o.Address, 0)))
	if err != nil {
		return nil, fmt.Errorf("listening for the sandbox on %s: %w", o.Address, err)
	}
	l.inner = inner
	l.work.Go(l.serve)
	return l, nil
}

// Token is what the forwarder has to show.
func (l *Listener) Token() Token { return l.token }

// Addr is where it listens.
func (l *Listener) Addr() net.Addr { return l.inner.Addr() }

// Port is the port of it.
func (l *Listener) Port() int { return l.inner.Addr().(*net.TCPAddr).Port }

// Admit lets connections from these addresses show a token, and no others.
func (l *Listener) Admit(addrs ...netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.admit)
	for _, a := range addrs {
		l.admit[a.Unmap()] = true
	}
}

// Accept returns the next connection past its preamble.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

// Close ends it, and every connection that nobody has accepted. The token is
// worth nothing any more.
func (l *Listener) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = l.inner.Close()
		close(l.done)
		l.mu.Lock()
		for c := range l.pending {
			_ = c.Close()
		}
		l.mu.Unlock()
		l.work.Wait()
	})
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

// WhoAsked names the program inside that opened an accepted connection, as the
// forwarder saw it. It is forgotten once it was asked.
func (l *Listener) WhoAsked(remote net.Addr) (pid int, program string, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p, ok := l.asked[remote.String()]
	delete(l.asked, remote.String())
	return p.PID, p.Program, ok && p.Program != ""
}

func (l *Listener) serve() {
	for {
		conn, err := l.inner.AcceptTCP()
		if err != nil {
			if errors.Is(err, net.ErrClosed) || !l.pause() {
				return
			}
			continue
		}
		select {
		case l.waiting <- struct{}{}:
		default:
			_ = conn.Close() // more than enough are being looked at
			continue
		}
		l.work.Go(func() {
			defer func() { <-l.waiting }()
			l.look(conn)
		})
	}
}

// pause waits until descriptors may have come free, and reports whether there
// is anything to go on for.
func (l *Listener) pause() bool {
	again := time.NewTimer(50 * time.Millisecond)
	defer again.Stop()
	select {
	case <-again.C:
		return true
	case <-l.done:
		return false
	}
}

// look lets a connection in or not.
func (l *Listener) look(conn *net.TCPConn) {
	who := peerOf(conn)
	if reason := l.stranger(who); reason != "" {
		_ = conn.Close()
		l.refused(Refusal{Peer: who.addr, UID: who.uid, Reason: reason})
		return
	}
	if !l.hold(conn) {
		_ = conn.Close()
		return
	}
	p, reason := l.preamble(conn)
	if reason != "" {
		closed := l.failed(who)
		l.release(conn)
		l.answer(conn)
		l.refused(Refusal{Peer: who.addr, UID: who.uid, Reason: reason, Closed: closed})
		return
	}
	l.remember(conn.RemoteAddr(), p)
	select {
	case l.accepted <- conn:
		l.release(conn)
	case <-l.done:
		_ = conn.Close()
	}
}

func peerOf(conn *net.TCPConn) peer {
	remote := conn.RemoteAddr().(*net.TCPAddr).AddrPort()
	p := peer{addr: remote.Addr().Unmap(), uid: -1}
	if p.addr.IsLoopback() {
		p.uid = uidOf(remote, conn.LocalAddr().(*net.TCPAddr).AddrPort())
	}
	return p
}

// stranger says why a peer is not even asked for a token, or "".
func (l *Listener) stranger(who peer) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.wrong[who] >= failures:
		return "it was wrong too often"
	case !l.admit[who.addr]:
		return "it is not the session's sandbox"
	}
	return ""
}

// failed counts, and reports whether that was the last one.
func (l *Listener) failed(who peer) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.wrong) < mostKnown {
		l.wrong[who]++
	}
	return l.wrong[who] >= failures
}

func (l *Listener) hold(conn net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.done:
		return false
	default:
	}
	l.pending[conn] = true
	return true
}

func (l *Listener) release(conn net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.pending, conn)
}

func (l *Listener) remember(remote net.Addr, p Preamble) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.asked) >= mostKnown {
		clear(l.asked)
	}
	l.asked[remote.String()] = p
}

// preamble reads one, and says why it is not good enough, or "".
func (l *Listener) preamble(conn net.Conn) (p Preamble, reason string) {
	var raw [PreambleSize]byte
	if err := conn.SetReadDeadline(time.Now().Add(l.within)); err != nil {
		return p, "it left"
	}
	if _, err := io.ReadFull(conn, raw[:]); err != nil {
		return p, "it did not say who it is"
	}
	p, err := Decode(raw)
	if err != nil {
		return p, err.Error()
	}
	if subtle.ConstantTimeCompare(p.Token[:], l.token[:]) != 1 {
		return p, "its token is not this session's"
	}
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return p, "it left"
	}
	return p, ""
}

// answer is all that somebody who was wrong gets to know.
func (l *Listener) answer(conn net.Conn) {
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	_, _ = io.WriteString(conn, "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	_ = conn.Close()
}
