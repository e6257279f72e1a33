package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// An outlet is where a connection leads and under which rule. A connection to
// a private address is never used for a request whose rule does not open it.
type outlet struct {
	to     target
	tls    bool
	opened string // ranges, as text
}

// An upstream is a connection to a server over which HTTP/1.1 is spoken, one
// request after the other.
type upstream struct {
	net.Conn
	pool    *pool
	outlet  outlet
	socket  net.Conn // below TLS: closing it waits for nobody
	in      *bufio.Reader
	addr    netip.Addr // that was dialled
	left    int64      // how much may be read before a head or trailers must end
	uses    int
	since   time.Time // it is idle
	room    []field
	counted counted // the body of the answer, if it says its length
}

var errHeadTooLong = errors.New("the host's answer begins with more than is taken of a head")

// Read is what the buffer is filled from.
func (u *upstream) Read(p []byte) (int, error) {
	if u.left <= 0 {
		return 0, errHeadTooLong
	}
	n, err := u.Conn.Read(p[:min(int64(len(p)), u.left)])
	u.left -= int64(n)
	return n, err
}

// Close closes at once and forgets the connection.
func (u *upstream) Close() error {
	u.pool.forget(u)
	return u.socket.Close()
}

// retire says goodbye to the server and closes.
func (u *upstream) retire() {
	u.pool.forget(u)
	_ = u.Conn.Close()
}

// A pool keeps the connections of one session to servers while they wait for
// their next request. No two sessions share one.
type pool struct {
	// mu guards what follows. Nothing is dialled while it is held.
	mu     sync.Mutex
	closed bool
	idle   map[outlet][]*upstream // last used last
	open   map[*upstream]struct{}
	sweep  *time.Timer // runs while something is idle
}

func newPool() *pool {
	return &pool{idle: map[outlet][]*upstream{}, open: map[*upstream]struct{}{}}
}

// take returns an idle connection, or nil. The last used comes first, so that
// those that are not needed grow old.
func (p *pool) take(o outlet) *upstream {
	for {
		u := p.last(o)
		if u == nil {
			return nil
		}
		if idle := time.Since(u.since); idle < justUsed || idle < idleUpstream && alive(u.socket) {
			return u
		}
		u.retire()
	}
}

func (p *pool) last(o outlet) *upstream {
	p.mu.Lock()
	defer p.mu.Unlock()
	list := p.idle[o]
	if len(list) == 0 {
		return nil
	}
	u := list[len(list)-1]
	p.idle[o] = list[:len(list)-1]
	return u
}

// put takes a connection back whose last answer was read to its end.
func (p *pool) put(u *upstream) {
	if !p.keep(u) {
		u.retire()
	}
}

func (p *pool) keep(u *upstream) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed || len(p.idle[u.outlet]) >= idlePerHost {
		return false
	}
	u.since = time.Now()
	p.idle[u.outlet] = append(p.idle[u.outlet], u)
	if p.sweep == nil {
		p.sweep = time.AfterFunc(idleUpstream, p.clean)
	}
	return true
}

// clean closes what has been idle for too long.
func (p *pool) clean() {
	p.mu.Lock()
	var old []*upstream
	left := 0
	for o, list := range p.idle {
		n := 0
		for n < len(list) && time.Since(list[n].since) >= idleUpstream {
			n++
		}
		old = append(old, list[:n]...)
		if p.idle[o] = append([]*upstream(nil), list[n:]...); n == len(list) {
			delete(p.idle, o)
		}
		left += len(list) - n
	}
	if p.sweep = nil; left > 0 && !p.closed {
		p.sweep = time.AfterFunc(idleUpstream, p.clean)
	}
	p.mu.Unlock()
	for _, u := range old {
		u.retire()
	}
}

// add takes a new connection into the books.
func (p *pool) add(u *upstream) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return net.ErrClosed
	}
	p.open[u] = struct{}{}
	return nil
}

func (p *pool) forget(u *upstream) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, u)
}

// close ends every connection, idle or not.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	all := make([]*upstream, 0, len(p.open))
	for u := range p.open {
		all = append(all, u)
	}
	clear(p.idle)
	if p.sweep != nil {
		p.sweep.Stop()
	}
	p.mu.Unlock()
	for _, u := range all {
		_ = u.Close()
	}
}

// reach dials for requests that may go there.
func (s *serving) reach(ctx context.Context, o outlet, opened []netip.Prefix) (*upstream, error) {
	addrs, err := s.resolve(ctx, o.to, opened)
	if err != nil {
		return nil, err
	}
	socket, err := s.dial(ctx, addrs, o.to.port, opened)
	if err != nil {
		return nil, err
	}
	u := &upstream{Conn: socket, pool: s.pool, outlet: o, socket: socket}
	if u.addr, _ = addrOf(socket); o.tls {
		secure := tls.Client(socket, s.outsideTLS(o.to.host))
		ctx, cancel := context.WithTimeout(ctx, handshakeOut)
		defer cancel()
		if err := secure.HandshakeContext(ctx); err != nil {
			_ = socket.Close()
			return nil, err
		}
		u.Conn = secure
	}
	u.in = bufio.NewReaderSize(u, upstreamBuffer)
	if err := s.pool.add(u); err != nil {
		_ = socket.Close()
		return nil, err
	}
	return u, nil
}

// outsideTLS is how we speak TLS with servers in HTTP/1.1.
func (s *serving) outsideTLS(host string) *tls.Config {
	c := s.tlsOut.Clone()
	c.ServerName = host
	return c
}
