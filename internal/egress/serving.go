package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// serving is one session while its listener is served.
type serving struct {
	proxy   *Proxy
	session Session
	// life is that of this value: connections to servers are dialled apart from
	// the request that asked for them, and must end with the session.
	life    context.Context
	log     *slog.Logger
	tls     *tls.Config // towards programs inside
	tlsOut  *tls.Config // towards servers, in HTTP/1.1
	pool    *pool
	web     *http.Server // of HTTP/2
	queue   *queue
	forward *httputil.ReverseProxy
	names   *budget
	open    chan struct{} // one per connection
	pushes  *pushes

	// work counts connections and the requests on them.
	work sync.WaitGroup

	// mu guards what follows. Nothing is dialled or closed while it is held.
	mu         sync.Mutex
	closed     bool
	conns      map[net.Conn]struct{}
	transports map[string]*http.Transport
}

func newServing(ctx context.Context, p *Proxy, s Session) *serving {
	ss := &serving{
		proxy:      p,
		session:    s,
		life:       ctx,
		log:        p.log.With("part", "egress", "session", s.ID),
		queue:      &queue{conns: make(chan net.Conn), done: make(chan struct{})},
		names:      newBudget(p.limits.maxAskNew),
		open:       make(chan struct{}, p.limits.maxOpen),
		pushes:     newPushes(),
		conns:      map[net.Conn]struct{}{},
		transports: map[string]*http.Transport{},
	}
	ss.tls, ss.tlsOut, ss.pool = ss.insideTLS(), p.newOutsideTLS(), newPool()
	ss.tlsOut.NextProtos = []string{"http/1.1"}
	ss.forward = ss.newForward()
	// TLS is ended already: what net/http is given is what was in it.
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	quiet := slog.NewLogLogger(ss.log.Handler(), slog.LevelDebug)
	ss.web = &http.Server{
		Handler:   ss,
		ErrorLog:  quiet,
		Protocols: protocols,
		// Else net/http answers OPTIONS * by itself: unjudged and unrecorded.
		DisableGeneralOptionsHandler: true,
		IdleTimeout:                  p.limits.idle,
		ReadHeaderTimeout:            p.limits.hello, // for the beginning of a connection
		MaxHeaderBytes:               maxHeadBytes,   // for HTTP/2; the framer is stricter
		BaseContext:                  func(net.Listener) context.Context { return ctx },
		ConnContext:                  withLink,
		ConnState:                    connState,
		// Neither ReadTimeout nor WriteTimeout: a model may think for minutes.
	}
	ss.forward.ErrorLog = quiet
	return ss
}

// Serve answers the connections of a session until ctx ends or ln is closed,
// closes what is still open then, and returns when nothing of it runs any
// more. The error is nil unless the listener failed by itself.
func (p *Proxy) Serve(ctx context.Context, ln net.Listener, s Session) error {
	if err := s.check(); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ss := newServing(ctx, p, s)
	var helpers sync.WaitGroup
	helpers.Go(func() {
		<-ctx.Done()
		ln.Close()
		ss.closeAll()
	})
	helpers.Go(func() { _ = ss.web.Serve(ss.queue) })
	err := ss.accept(ctx, ln)
	cancel()
	helpers.Wait()
	ss.work.Wait()
	ss.closeIdle()
	return err
}

// accept takes connections while there is room for more. Beyond that they wait
// in the listener's backlog, which costs the node nothing.
func (s *serving) accept(ctx context.Context, ln net.Listener) error {
	for {
		select {
		case s.open <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		conn, err := ln.Accept()
		if err == nil {
			s.track(conn)
			go s.serve(ctx, conn)
			continue
		}
		<-s.open
		if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			return nil
		}
		if !passing(err) {
			return fmt.Errorf("accepting a connection of session %s: %w", s.session.ID, err)
		}
		s.log.Warn("accepting a connection", "err", err)
		select {
		case <-time.After(100 * time.Millisecond): // descriptors may come free
		case <-ctx.Done():
			return nil
		}
	}
}

// passing reports whether an error of Accept may be over soon: the process is
// out of descriptors, or the client has gone already.
func passing(err error) bool {
	var t interface{ Temporary() bool }
	return errors.As(err, &t) && t.Temporary()
}

func (s *serving) track(conn net.Conn) {
	s.work.Add(1)
	s.mu.Lock()
	closed := s.closed
	s.conns[conn] = struct{}{}
	s.mu.Unlock()
	if closed {
		conn.Close()
	}
}

func (s *serving) untrack(conn net.Conn) {
	conn.Close()
	s.mu.Lock()
	delete(s.conns, conn)
	s.mu.Unlock()
	<-s.open
	s.work.Done()
}

// closeAll ends every connection. The rest follows: reads fail, and with them
// whatever they were for.
func (s *serving) closeAll() {
	s.mu.Lock()
	s.closed = true
	conns := make([]net.Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	s.queue.Close()
	s.pool.close()
	for _, c := range conns {
		c.Close()
	}
}

// serve carries one connection from its first byte to its last.
func (s *serving) serve(ctx context.Context, conn net.Conn) {
	defer s.untrack(conn)
	c := newClient(conn, &link{serving: s, peer: conn.RemoteAddr()})
	h, err := c.next(s.proxy.limits.head)
	switch {
	case err == nil && h.method == http.MethodConnect:
		s.connect(ctx, c, *h)
	case err == nil || c.refused.Load() != nil:
		s.serveHTTP1(ctx, c, h, err)
	default:
		s.cutOff(ctx, c)
	}
}

// cutOff records a head that did not come to its end.
func (s *serving) cutOff(ctx context.Context, c *client) {
	if len(c.buffered()) == 0 || ctx.Err() != nil || c.link.denied != nil {
		return
	}
	v := s.begin(c.link)
	v.about(c.link.inner.host, c.link.inner.port, "", "")
	v.deny(errHeadCut.reason)
}

// serveHTTP2 gives a connection to net/http and waits until it is over.
func (s *serving) serveHTTP2(conn net.Conn, l *link) {
	l.done = make(chan struct{})
	select {
	case s.queue.conns <- newHTTP2Conn(conn, l):
		<-l.done
	case <-s.queue.done:
	}
}

// queue is the listener from which net/http takes the connections that turned
// out to speak HTTP/2.
type queue struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func (q *queue) Accept() (net.Conn, error) {
	select {
	case c := <-q.conns:
		return c, nil
	case <-q.done:
		return nil, net.ErrClosed
	}
}

func (q *queue) Close() error {
	q.once.Do(func() { close(q.done) })
	return nil
}

func (q *queue) Addr() net.Addr { return &net.UnixAddr{Name: "egress", Net: "unix"} }

type linkKey struct{}

func withLink(ctx context.Context, c net.Conn) context.Context {
	return context.WithValue(ctx, linkKey{}, linkOf(c))
}

// linkOf finds what we know about a connection that net/http hands back.
func linkOf(c net.Conn) *link {
	if c, ok := c.(*http2Conn); ok {
		return c.link
	}
	return nil
}

func connState(c net.Conn, state http.ConnState) {
	if state == http.StateClosed {
		close(linkOf(c).done)
	}
}

// judge asks the policy that is in force now.
func (s *serving) judge(r policy.Request) (policy.Decision, bool) {
	if s.session.Closed != nil {
		if why := s.session.Closed(); why != "" {
			return policy.Decision{Reason: why}, false
		}
	}
	j := s.session.Judge()
	if j == nil {
		return policy.Decision{Reason: "no policy is loaded for this session"}, false
	}
	return s.bound(r, j.Decide(r)), true
}

// budget bounds how many new names a session may have resolved in a minute: a
// wildcard rule lets data out in labels of names that are asked for.
type budget struct {
	most int
	// mu guards what follows.
	mu    sync.Mutex
	seen  map[string]struct{}
	fresh int
	since time.Time
}

const maxSeenNames = 16 << 10

func newBudget(most int) *budget { return &budget{most: most, seen: map[string]struct{}{}} }

// take reports whether name may be resolved now.
func (b *budget) take(name string, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.seen[name]; ok {
		return true
	}
	if now.Sub(b.since) >= time.Minute {
		b.since, b.fresh = now, 0
	}
	if b.fresh >= b.most {
		return false
	}
	b.fresh++
	if len(b.seen) >= maxSeenNames {
		clear(b.seen)
	}
	b.seen[name] = struct{}{}
	return true
}
