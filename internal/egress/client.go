package egress

import (
	"crypto/tls"
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

	peer    net.Addr
	who     sync.Once
	whoName string

	// asked is the request whose body is read, of HTTP/1.
	asked asked

	// judged are answers over HTTP/2 as net/http gives them itself, by their
	// status, which requests had that were judged.
	judged map[string]*atomic.Int64
	done   chan struct{} // with HTTP/2: closed when net/http has let go of the connection
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
	in := &link{serving: l.serving, inner: t, tls: tls, peer: l.peer}
	name := l.program()
	in.who.Do(func() { in.whoName = name })
	return in
}

// A client is a connection from inside, read through a [framer]: its requests
// are found only as heads that were taken as a whole, and as bodies that end
// where the framer says.
type client struct {
	net.Conn
	link  *link
	frame framer

	store   []byte
	r, w    int // store[r:w] was read and not yet given on
	pass    int // store[r:r+pass] may be
	refused atomic.Pointer[refusal]
	// early says that the last answer was given before its request was read to
	// its end.
	early bool
	watch watch
}

// newClient reads requests that reach us on l from conn.
func newClient(conn net.Conn, l *link) *client { return &client{Conn: conn, link: l} }

// buffered returns what was read and not given on.
func (c *client) buffered() []byte { return c.store[c.r:c.w] }

// take empties the buffer.
func (c *client) take() []byte {
	b := c.buffered()
	c.r, c.w, c.pass = 0, 0, 0
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

// next waits for the head of the next request and takes it off the buffer. The
// error is a [refusal] where what came is no request in order. The head lives
// until the next one is asked for.
func (c *client) next(wait time.Duration) (*head, error) {
	if len(c.buffered()) == 0 || c.frame.heads == 0 {
		if err := c.SetReadDeadline(time.Now().Add(wait)); err != nil {
			return nil, err
		}
		defer func() { _ = c.SetReadDeadline(time.Time{}) }()
	}
	for {
		n, why := c.frame.feed(c.buffered())
		if why != nil {
			c.refused.Store(why)
			return nil, why
		}
		if n > 0 {
			c.r += n
			return &c.frame.last, nil
		}
		if err := c.fill(); err != nil {
			return nil, err
		}
	}
}

// whole reports whether the request was read to its end.
func (c *client) whole() bool { return c.frame.part == inHead && c.pass == 0 }

// Read gives the body of the request, as it is framed, and what follows an
// upgrade for as long as it lasts.
func (c *client) Read(p []byte) (int, error) {
	for {
		switch {
		case c.pass > 0:
			n := copy(p, c.store[c.r:c.r+c.pass])
			c.r, c.pass = c.r+n, c.pass-n
			return n, nil
		case c.whole():
			return 0, io.EOF
		case c.refused.Load() != nil:
			return 0, c.refused.Load()
		}
		if n := c.frame.passable(); n > 0 && c.r == c.w {
			m, err := c.Conn.Read(p[:min(n, int64(len(p)))])
			c.frame.passed(int64(m))
			return m, cutShort(err)
		}
		if err := c.advance(); err != nil {
			return 0, cutShort(err)
		}
	}
}

// cutShort is the error of a body that ends before its end.
func cutShort(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// advance lets more of the body pass, reading if it must.
func (c *client) advance() error {
	n, why := c.frame.feed(c.buffered())
	if why != nil {
		return c.refuseBody(why)
	}
	if c.pass = n; n > 0 {
		return nil
	}
	return c.fill()
}

// asked is what a request is about, for the record.
type asked struct {
	to           target
	method, path string
}

// refuseBody stops reading a request that was well begun. It is recorded here,
// beside the verdict of its head: an answer may be under way already.
func (c *client) refuseBody(why *refusal) *refusal {
	stop := c.link.refuseBody(why, c.link.asked)
	c.refused.Store(stop)
	return stop
}

// refuseBody records a refusal of what comes behind a head.
func (l *link) refuseBody(why *refusal, a asked) *refusal {
	v, stop := l.serving.begin(l), *why
	v.about(a.to.host, a.to.port, a.method, a.path)
	if why.misuse != nil {
		v.decide(ofSecret(why.misuse))
		v.misused(why.misuse)
		stop.verdict = v.settle()
		return &stop
	}
	stop.verdict = v.deny(why.reason)
	return &stop
}

// takeBody appends to out what has come of the body already, as it is framed.
func (c *client) takeBody(out []byte) ([]byte, *refusal) {
	for !c.whole() && c.frame.part != inOther && c.r < c.w {
		n, why := c.frame.feed(c.buffered())
		if why != nil {
			return out, c.refuseBody(why)
		}
		if n == 0 {
			break
		}
		out = append(out, c.store[c.r:c.r+n]...)
		c.r += n
	}
	return out, nil
}

// CloseWrite ends one direction.
func (c *client) CloseWrite() error { return closeWrite(c.Conn) }

// Close lets a client read the answer that came before its request had ended:
// closing with its bytes unread would send a reset, and the answer would be
// lost.
func (c *client) Close() error {
	if (c.early || c.refused.Load() != nil) && closeWrite(c.Conn) == nil {
		if c.SetReadDeadline(time.Now().Add(c.link.serving.proxy.limits.linger)) == nil {
			_, _ = io.Copy(io.Discard, io.LimitReader(c.Conn, maxLinger))
		}
	}
	return c.Conn.Close()
}

// abort closes so that a cut answer does not look whole: no end is said.
func (c *client) abort() {
	if t, ok := c.Conn.(*tls.Conn); ok {
		reset(t.NetConn())
		return
	}
	reset(c.Conn)
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

// SetLinger is for a reset.
func (r *replay) SetLinger(seconds int) error {
	if l, ok := r.Conn.(interface{ SetLinger(int) error }); ok {
		return l.SetLinger(seconds)
	}
	return nil
}
