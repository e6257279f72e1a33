package people

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// ErrBrokerGone ends a deputy whose broker has died.
var ErrBrokerGone = errors.New("the system node has died")

// ErrTold ends a deputy whose broker has told it to end.
var ErrTold = errors.New("the system node ends")

// A Dismissal ends a deputy whose person may no longer use the system node: it is
// ErrTold, for a reason that people are told.
type Dismissal struct{ Problem *api.Problem }

func (e *Dismissal) Error() string { return e.Problem.Sentence }

// Is makes it ErrTold.
func (e *Dismissal) Is(target error) bool { return target == ErrTold }

// Unwrap is what its sessions are told.
func (e *Dismissal) Unwrap() error { return e.Problem }

// Deputy is a deputy's end of the pair.
type Deputy struct {
	Hello     Hello
	link      *link
	ended     chan struct{} // closed once err is set
	err       error
	mayRetire chan bool // answers to retire

	mu        sync.Mutex // guards what follows
	arrived   *sync.Cond // of conns or visitors, or that there come no more
	conns     []net.Conn // from the socket
	visitors  []net.Conn // from the page
	closed    bool       // the socket's listener
	unvisited bool       // the page's
	received  int        // connections ever
	open      int        // of them, those that are not closed yet
	asks      map[string]*ask
	order     []string // ids of asks by arrival
	live      []string // settings that take effect at once
}

// ask is one start at the door of the broker.
type ask struct {
	waiting admission.Waiting
	told    chan admission.Place // the newest place
	in      chan error           // nil: let in
}

// Join takes this process's end of the pair and waits for hello.
func Join() (*Deputy, error) {
	if err := settle(); err != nil {
		return nil, err
	}
	if _, err := unix.GetsockoptInt(pairAt, unix.SOL_SOCKET, unix.SO_TYPE); err != nil {
		return nil, errors.New("a deputy is started by a system node only")
	}
	unix.CloseOnExec(pairAt)
	l, err := newLink(os.NewFile(pairAt, "broker"))
	if err != nil {
		return nil, err
	}
	r := l.reader(true)
	m, f, err := r.next()
	if f != nil {
		_ = f.Close()
	}
	if err != nil || m.Kind != kindHello || m.Hello == nil {
		l.close()
		return nil, fmt.Errorf("waiting for the system node's word: %w", errors.Join(err, ErrBrokerGone))
	}
	d := &Deputy{Hello: *m.Hello, live: m.Hello.Live, link: l, ended: make(chan struct{}), mayRetire: make(chan bool, 1), asks: map[string]*ask{}}
	d.arrived = sync.NewCond(&d.mu)
	go d.take(r)
	return d, nil
}

// settle gives back what root's process had of its own and a person's has not,
// and hides this one: from here on the person's other programs may not look into
// it, nor does it leave its memory in a file (H21).
func settle() error {
	// A service may be kept from being killed for memory, which is not for
	// everything that people run. To be killed sooner needs no right.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte("0"), 0)
	unix.Umask(0o022)
	return Hide()
}

// Hide keeps the memory of this process, which holds people's keys, from their
// other programs and from files (H21): none may look into it or trace it, and
// where it dies no core is left. What it starts is not hidden.
func Hide() error {
	var core unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("asking for the limit of core files: %w", err)
	}
	core.Cur = 0
	if err := unix.Setrlimit(unix.RLIMIT_CORE, &core); err != nil {
		return fmt.Errorf("forbidding core files: %w", err)
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("hiding this process: %w", err)
	}
	return nil
}

// Context ends with ErrTold or ErrBrokerGone, or with ctx.
func (d *Deputy) Context(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-d.ended:
			cancel(d.err)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// Ready tells that connections are served, Failed why they never will be.
func (d *Deputy) Ready() { _ = d.link.send(message{Kind: kindReady}, nil) }

// Failed is the other outcome of a start.
func (d *Deputy) Failed(p *api.Problem) { _ = d.link.send(message{Kind: kindFailed, Problem: p}, nil) }

// Tidied tells what was undone and what could not be.
func (d *Deputy) Tidied(did, left []string) {
	m := message{Kind: kindTidied, Did: did, Left: left}
	if d.link.send(m, nil) != nil { // too much to tell
		m.Did, m.Left = []string{fmt.Sprintf("%d things were undone", len(did))}, left[:min(len(left), 100)]
		_ = d.link.send(m, nil)
	}
}

// take takes packets until the broker ends them.
func (d *Deputy) take(r *reader) {
	for {
		m, f, err := r.next()
		if err != nil {
			d.end(ErrBrokerGone)
			return
		}
		d.did(m, f)
	}
}

func (d *Deputy) did(m message, f *os.File) {
	switch {
	case m.Kind == kindConnection && f != nil:
		d.connection(f)
		return
	case f != nil:
		_ = f.Close()
	}
	switch m.Kind {
	case kindPlace, kindIn, kindRefused:
		d.answered(m)
	case kindRetire:
		d.mayRetire <- m.Yes
	case kindSettings:
		d.mu.Lock()
		d.live = m.Live
		d.mu.Unlock()
	case kindEnd:
		if m.Problem != nil {
			d.end(&Dismissal{m.Problem})
		}
		d.end(ErrTold)
	}
}

// Live are the settings that take effect at once, as they are now.
func (d *Deputy) Live() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.live)
}

func (d *Deputy) end(why error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.err == nil {
		d.err = why
		close(d.ended)
	}
}

func (d *Deputy) connection(f *os.File) {
	conn, err := net.FileConn(f)
	_ = f.Close()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.received++
	if err != nil {
		return
	}
	switch conn := conn.(type) {
	case *net.UnixConn:
		if !d.closed {
			d.open++
			d.conns = append(d.conns, &counted{UnixConn: conn, d: d})
			d.arrived.Broadcast()
			return
		}
	case *net.TCPConn:
		// Who made it is asked once more: a broker is root, and need not be right.
		if !d.unvisited {
			d.visitors = append(d.visitors, console.NewVisitor(conn))
			d.arrived.Broadcast()
			return
		}
	}
	_ = conn.Close()
}

// counted is a connection that is open until it is closed.
type counted struct {
	*net.UnixConn
	d    *Deputy
	once sync.Once
}

func (c *counted) Close() error {
	c.once.Do(func() {
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		c.d.open--
	})
	return c.UnixConn.Close()
}

// Listener yields the connections to the socket that are handed over.
func (d *Deputy) Listener() net.Listener {
	return listener{d, &d.conns, &d.closed, &net.UnixAddr{Name: d.Hello.Socket, Net: "unix"}}
}

// Visitors yields those to the node page, as *[console.Visitor]. One that is open
// is no reason to stay: a page is read in a moment.
func (d *Deputy) Visitors() net.Listener {
	return listener{d, &d.visitors, &d.unvisited, &net.TCPAddr{}}
}

// A listener takes from one of a deputy's lists; both are guarded by its mu.
type listener struct {
	d      *Deputy
	conns  *[]net.Conn
	closed *bool
	addr   net.Addr
}

func (l listener) Accept() (net.Conn, error) {
	l.d.mu.Lock()
	defer l.d.mu.Unlock()
	for len(*l.conns) == 0 && !*l.closed {
		l.d.arrived.Wait()
	}
	if *l.closed {
		return nil, net.ErrClosed
	}
	c := (*l.conns)[0]
	*l.conns = (*l.conns)[1:]
	return c, nil
}

func (l listener) Close() error {
	l.d.mu.Lock()
	left := *l.conns
	*l.closed, *l.conns = true, nil
	l.d.arrived.Broadcast()
	l.d.mu.Unlock()
	for _, c := range left {
		_ = c.Close()
	}
	return nil
}

func (l listener) Addr() net.Addr { return l.addr }

// Retire asks for leave to end. Yes means that no connection is on the way: the
// broker has handed over no more than have come, all of them are closed, and it
// hands over no more.
func (d *Deputy) Retire(ctx context.Context) bool {
	d.mu.Lock()
	open, received := d.open, d.received
	d.mu.Unlock()
	if open > 0 || d.link.send(message{Kind: kindRetire, Count: received}, nil) != nil {
		return false
	}
	select {
	case yes := <-d.mayRetire:
		return yes
	case <-d.ended:
	case <-ctx.Done():
	}
	return false
}

// Enter waits at the broker's door as [admission.Door.Enter] does at one.
func (d *Deputy) Enter(ctx context.Context, r admission.Request, tell func(admission.Place)) (release func(), err error) {
	a := &ask{waiting: admission.Waiting{Request: r}, told: make(chan admission.Place, 1), in: make(chan error, 1)}
	d.mu.Lock()
	d.asks[r.ID] = a
	d.order = append(d.order, r.ID)
	d.mu.Unlock()
	leave := sync.OnceFunc(func() {
		d.forget(r.ID)
		_ = d.link.send(message{Kind: kindLeave, ID: r.ID}, nil)
	})
	if err := d.link.send(message{Kind: kindEnter, ID: r.ID, Memory: r.Memory}, nil); err != nil {
		leave()
		return nil, ErrBrokerGone
	}
	for {
		select {
		case err := <-a.in:
			if err != nil {
				leave()
				return nil, err
			}
			d.forget(r.ID)
			return leave, nil
		case p := <-a.told:
			if tell != nil {
				tell(p)
			}
		case <-d.ended:
			leave()
			return nil, d.err
		case <-ctx.Done():
			leave()
			return nil, context.Cause(ctx)
		}
	}
}

func (d *Deputy) forget(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.asks, id)
	d.order = slices.DeleteFunc(d.order, func(other string) bool { return other == id })
}

// answered is what the broker says of an ask. Both channels have room for one
// and are written by this goroutine only, so that it never waits.
func (d *Deputy) answered(m message) {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.asks[m.ID]
	switch {
	case a == nil:
	case m.Kind == kindPlace && m.Place != nil:
		a.waiting.Place = *m.Place
		select {
		case <-a.told: // an older one that nobody has heard
		default:
		}
		a.told <- *m.Place
	case m.Kind == kindIn:
		a.answer(nil)
	case m.Kind == kindRefused && m.Problem != nil:
		a.answer(m.Problem)
	}
}

// answer takes the first one only.
func (a *ask) answer(err error) {
	select {
	case a.in <- err:
	default:
	}
}

// Queue is who waits of this person, with the places among all that they were
// told last.
func (d *Deputy) Queue() []admission.Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := []admission.Waiting{}
	for _, id := range d.order {
		if w := d.asks[id].waiting; w.Place.Number > 0 {
			out = append(out, w)
		}
	}
	return out
}
