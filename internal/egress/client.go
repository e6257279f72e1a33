package egress

import (
	"crypto/rand"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	firstBuffer = 4 << 10
	// maxBuffer holds the longest head, and what was read together with its
	// end.
	maxBuffer = maxHeadBytes + firstBuffer
	maxLinger = 1 << 20
)

// A link says how requests reach us on one connection: what is known about
// them before they are read.
type link struct {
	serving *serving
	// inner is where a tunnel was opened to whose requests are read here. It is
	// zero on a plain connection to the proxy, whose requests name their target.
	inner target
	// tls says that TLS towards inner was ended here.
	tls bool
	// denied, if set, is the answer to every request, with its status.
	denied *pending
	status int

	// reader is what requests are read through, or nil with HTTP/2.
	reader  *client
	peer    net.Addr
	who     sync.Once
	whoName string

	done     chan struct{} // closed when net/http has let go of the connection
	hijacked atomic.Bool
}

// program asks once who opened the connection.
func (l *link) program() string {
	l.who.Do(func() {
		if l.serving.session.WhoAsked == nil {
			return
		}
		if p, ok := l.serving.session.WhoAsked(l.peer); ok {
			l.whoName = p.Name
		}
	})
	return l.whoName
}

// inside returns the link of the requests in a tunnel to t.
func (l *link) inside(t target, tls bool) *link {
	in := &link{serving: l.serving, inner: t, tls: tls, peer: l.peer, done: make(chan struct{})}
	name := l.program()
	in.who.Do(func() { in.whoName = name })
	return in
}

// A client is a connection from inside, read through a [framer]: net/http
// behind it sees only heads that were taken as a whole.
type client struct {
	net.Conn
	link  *link
	frame framer

	store   []byte
	r, w    int // store[r:w] was read and not yet given on
	ok      int // store[r:r+ok] may be
	refused atomic.Pointer[refusal]
	err     error // of every later Read
}

// refusedTarget is the target of the request that net/http gets to see in
// place of one that was refused, so that the answer comes after those to the
// requests before it. No client can know it.
var refusedTarget = "/" + rand.Text()

// newClient reads requests that reach us on l from conn.
func newClient(conn net.Conn, l *link) *client {
	c := &client{Conn: conn, link: l}
	l.reader = c
	return c
}

// buffered returns what was read and not given on.
func (c *client) buffered() []byte { return c.store[c.r:c.w] }

// take empties the buffer.
func (c *client) take() []byte {
	b := c.buffered()
	c.r, c.w, c.ok = 0, 0, 0
	c.store = nil
	return b
}

// fill reads once. It must be called only if the buffer may still grow.
func (c *client) fill() error {
	if c.r == c.w {
		c.r, c.w = 0, 0
	}
	if c.w == len(c.store) {
		grown := make([]byte, min(max(firstBuffer, 2*(c.w-c.r)), maxBuffer))
		c.w = copy(grown, c.buffered())
		c.r, c.store = 0, grown
	}
	n, err := c.Conn.Read(c.store[c.w:])
	c.w += n
	if n > 0 {
		return nil
	}
	if err == nil {
		return io.ErrNoProgress
	}
	return err
}

// Read gives net/http what may pass.
func (c *client) Read(p []byte) (int, error) {
	for {
		if c.ok > 0 {
			n := copy(p, c.store[c.r:c.r+c.ok])
			c.r, c.ok = c.r+n, c.ok-n
			return n, nil
		}
		if c.err != nil {
			return 0, c.err
		}
		if n := c.frame.passable(); n > 0 && c.r == c.w {
			m, err := c.Conn.Read(p[:min(n, int64(len(p)))])
			c.frame.passed(int64(m))
			return m, err
		}
		if err := c.advance(); err != nil {
			return 0, err
		}
	}
}

// advance lets more pass, reading if it must. It stops before the next head,
// so that one request is given on at a time.
func (c *client) advance() error {
	for c.r+c.ok < c.w {
		inHeadBefore := c.frame.part == inHead
		n, why := c.frame.feed(c.store[c.r+c.ok : c.w])
		if why != nil && c.ok > 0 {
			break // what came before it is still good, and comes first
		}
		if why != nil {
			return c.refuse(why, inHeadBefore)
		}
		c.ok += n
		if n == 0 || c.frame.part == inHead || c.frame.part == inOther {
			break
		}
	}
	if c.ok > 0 {
		return nil
	}
	return c.fill()
}

// refuse stops reading. In a head it puts a request of our own in its place;
// in a body it makes the request that it belongs to fail.
func (c *client) refuse(why *refusal, inHead bool) error {
	stop := *why
	stop.inBody = !inHead
	c.refused.Store(&stop)
	if !inHead {
		c.err = why
		c.ok = 0
		return why
	}
	c.err = io.EOF
	c.store = []byte("GET " + refusedTarget + " HTTP/1.1\r\nHost: refused\r\n\r\n")
	c.r, c.w, c.ok = 0, len(c.store), len(c.store)
	return nil
}

// first waits for the first request. It returns false if there is none, or
// none in order; c.ok then says whether there is something to answer.
func (c *client) first(wait time.Duration) (head, bool) {
	if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return head{}, false
	}
	for c.ok == 0 {
		if err := c.advance(); err != nil {
			return head{}, false
		}
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return head{}, false
	}
	return c.frame.last, c.refused.Load() == nil
}

// CloseWrite lets net/http say that its last answer is complete.
func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

// Close lets a refused client read why: closing with its bytes unread would
// send a reset, and the answer would be lost.
func (c *client) Close() error {
	if c.refused.Load() != nil && closeWrite(c.Conn) == nil {
		if c.SetReadDeadline(time.Now().Add(c.link.serving.proxy.limits.linger)) == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, maxLinger))
		}
	}
	return c.Conn.Close()
}

func closeWrite(c net.Conn) error {
	if w, ok := c.(interface{ CloseWrite() error }); ok {
		return w.CloseWrite()
	}
	return c.Close()
}

// A replay is a connection some of whose bytes were read already.
type replay struct {
	net.Conn
	link   *link
	before []byte
}

// Read gives the bytes that were read already first.
func (r *replay) Read(p []byte) (int, error) {
	if len(r.before) > 0 {
		n := copy(p, r.before)
		r.before = r.before[n:]
		return n, nil
	}
	return r.Conn.Read(p)
}

// CloseWrite ends one direction.
func (r *replay) CloseWrite() error { return closeWrite(r.Conn) }

// skipHead forgets the head that was read, so that what follows it is next.
func (c *client) skipHead() { c.r, c.ok = c.r+c.ok, 0 }
