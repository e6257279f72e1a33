package people

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// Options of a Broker. All are required but where said.
type Options struct {
	Listener       net.Listener // of a Unix socket that everybody may connect to
	Socket         string       // its path
	State, Runtime string       // directories of root's
	Private        []string     // what no session may see: files and directories of the system node
	Config         string       // the file of settings, for who asks where it is
	Settings       []string     // for the deputies, as variables
	Door           *admission.Door
	Kind           admission.Kind // of what deputies start
	// Allow is who may use the node beside root, in the form of the setting. It
	// is asked for each connection.
	Allow   func() ([]string, error)
	Live    func() ([]string, error) // the settings that take effect at once, as variables; may be nil
	Status  func() api.Status        // what is known without the deputies: node and verdict
	Checks  func() api.Checks        // the same of what the checks found; nil where there is no page
	Page    *console.PagePlace       // of the node page; nil for none
	Linger  time.Duration            // of deputies
	Ready   func()                   // called once connections are taken; may be nil
	Logger  *slog.Logger
	Patient time.Duration // how long a deputy may take to end; 0: a minute
	Look    time.Duration // how often who may use the node is asked again, and Live; 0: two seconds
}

// Broker is root's side.
type Broker struct {
	o      Options
	log    *slog.Logger
	places *places
	groups *cgroup.Host
	own    *queued // connections of root's that the broker answers itself
	page   *console.PageServer
	visits *queued // connections to the page that the broker answers itself
	tasks  sync.WaitGroup

	mu       sync.Mutex // guards what follows
	deputies map[int]*deputy
	pending  map[int]int // connections by uid that no deputy has yet
	stopping bool
	end      context.CancelCauseFunc

	unreadable trouble // with who may use the node
	unread     trouble // with the settings that take effect at once
}

// New checks the options and does nothing else.
func New(o Options) (*Broker, error) {
	if o.Listener == nil || o.Door == nil || o.Allow == nil || o.Status == nil || o.Logger == nil {
		return nil, errors.New("BUG: a broker without socket, door, people, status or log")
	}
	if o.Patient == 0 {
		o.Patient = time.Minute
	}
	if o.Look == 0 {
		o.Look = 2 * time.Second
	}
	b := &Broker{o: o, log: o.Logger, deputies: map[int]*deputy{}, pending: map[int]int{}, own: newQueued(o.Listener.Addr()), visits: newQueued(o.Listener.Addr())}
	b.page = console.NewPageServer(console.PageOptions{Node: overview{b}, Logger: o.Logger})
	return b, nil
}

// errAsked ends a broker on root's request.
var errAsked = errors.New("asked to end")

// Serve serves until ctx ends or root asks for the end; then the deputies end
// their sessions and it returns when all of them are gone.
func (b *Broker) Serve(ctx context.Context) error {
	// What this process has inherited is not for deputies.
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC)
	var err error
	if b.places, err = openPlaces(b.o.State, b.o.Runtime); err != nil {
		return err
	}
	defer b.places.close()
	b.groups = cgroup.Here()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	b.mu.Lock()
	b.end = end
	b.mu.Unlock()
	srv := console.NewServer(console.Options{Node: overview{b}, Logger: b.log})
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := srv.Serve(b.own); err != nil {
			end(fmt.Errorf("answering root: %w", err))
		}
	})
	parts.Go(func() { b.accept(ctx, end) })
	parts.Go(func() { b.welcome(ctx) })
	parts.Go(func() { b.watch(ctx) })
	parts.Go(func() {
		if err := b.page.Serve(b.visits); err != nil {
			b.log.Error("the node goes on without its page", "err", err)
		}
	})
	b.mend(ctx)
	if b.o.Ready != nil {
		b.o.Ready()
	}
	b.log.Info("system node serves", "socket", b.o.Socket)
	<-ctx.Done()
	cause := context.Cause(ctx)
	b.stop(context.WithoutCancel(ctx))
	answering, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	srv.Shutdown(answering)
	b.page.Close()
	parts.Wait()
	b.log.Info("system node ends", "because", cause)
	if errors.Is(cause, errAsked) || errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// answerWithin is how long a broker that ends goes on to answer.
const answerWithin = 3 * time.Second

// accept takes connections until the listener is closed.
func (b *Broker) accept(ctx context.Context, end context.CancelCauseFunc) {
	closing := context.AfterFunc(ctx, func() { _ = b.o.Listener.Close() })
	defer closing()
	for {
		conn, err := b.o.Listener.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if b.pause(ctx, err) {
			continue
		}
		if err != nil {
			end(fmt.Errorf("serving the socket: %w", err))
			return
		}
		if uc, ok := conn.(*net.UnixConn); ok {
			c, known := callerOf(uc)
			b.take(c, known, uc, func() { b.see(ctx, uc, c, known) })
		} else {
			_ = conn.Close()
		}
	}
}

// pause waits after an error that another connection may not meet, and reports
// whether it was one.
func (b *Broker) pause(ctx context.Context, err error) bool {
	if !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) && !errors.Is(err, unix.ECONNABORTED) {
		return false
	}
	b.log.Warn("taking a connection", "err", err)
	select {
	case <-time.After(100 * time.Millisecond):
	case <-ctx.Done():
	}
	return true
}

// mostPending is how many connections of one person may wait for their deputy,
// or for an answer that refuses them.
const mostPending = 64

// take sees to one connection in a goroutine of its own, unless that person has
// many already: then it is closed at once.
func (b *Broker) take(c caller, known bool, conn net.Conn, see func()) {
	uid := c.UID
	if !known {
		uid = -1
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.stopping || b.pending[uid] >= mostPending {
		_ = conn.Close()
		return
	}
	b.pending[uid]++
	b.tasks.Go(func() {
		defer func() {
			b.mu.Lock()
			defer b.mu.Unlock()
			if b.pending[uid]--; b.pending[uid] == 0 {
				delete(b.pending, uid)
			}
		}()
		see()
	})
}

// see refuses a connection, or hands it over to whoever is to answer.
func (b *Broker) see(ctx context.Context, uc *net.UnixConn, c caller, known bool) {
	err := b.admit(c, known)
	switch {
	case err != nil:
	case c.UID == 0:
		err = b.route(ctx, uc)
	default:
		err = b.hand(ctx, person(c), uc)
	}
	if err != nil {
		b.refuse(uc, err)
	}
}

// admit says who may use the node.
func (b *Broker) admit(c caller, known bool) error {
	if !known {
		return &api.Problem{Code: "caller-unknown", Sentence: "the node cannot tell who is calling", Exit: fault.ExitUnknown,
			Hint: "it serves users of this machine, and not from inside a container"}
	}
	if c.UID == 0 {
		return nil
	}
	list, err := b.allow()
	if err != nil {
		return &api.Problem{Code: "internal", Sentence: "the system node cannot read its settings", Exit: fault.ExitUnknown, Hint: "its log has the details"}
	}
	if allowed(list, c) {
		return nil
	}
	name := person(c).Name
	return &api.Problem{Code: api.CodeNotServed, Sentence: "the system node does not serve user " + name, Exit: fault.ExitNegative,
		Hint: fmt.Sprintf("root may allow it: `mojoup-node config set node.people.allow %s` (a list: those who are allowed already belong in it)", fault.Quoted(name))}
}

// handable is a connection that has a descriptor.
type handable interface {
	File() (*os.File, error)
	Close() error
}

// hand gives a connection to a person's deputy, which is started where there is
// none.
func (b *Broker) hand(ctx context.Context, who Person, conn handable) error {
	f, err := conn.File()
	if err != nil {
		return fmt.Errorf("handing a connection over: %w", err)
	}
	defer f.Close()
	if err := b.give(ctx, who, f); err != nil {
		return err
	}
	return conn.Close() // the deputy's own descriptor of it stays
}

// give gives a descriptor to a person's deputy. One that has just died, or is
// about to end, makes room for the next.
func (b *Broker) give(ctx context.Context, who Person, f *os.File) error {
	const tries = 3
	for try := 1; ; try++ {
		d, err := b.deputy(ctx, who)
		if err != nil {
			return err
		}
		err = d.give(f)
		if err == nil {
			return nil
		}
		if !errors.Is(err, errRetired) && try == tries {
			return &api.Problem{Code: "deputy-lost", Sentence: "the part of the system node that serves " + who.Name + " ends as soon as it starts", Exit: fault.ExitCannotRun,
				Hint: "the log of the system node has the details"}
		}
		select {
		case <-d.gone:
		case <-ctx.Done():
			return errStopping
		}
	}
}

// errStopping refuses while the broker ends.
var errStopping error = &api.Problem{Code: api.CodeStopping, Sentence: "the system node is stopping and takes no new session", Exit: fault.ExitCannotRun, Hint: "run the command again"}

// deputy is a person's that answers; one that is to end is waited for.
func (b *Broker) deputy(ctx context.Context, who Person) (*deputy, error) {
	for {
		b.mu.Lock()
		if b.stopping {
			b.mu.Unlock()
			return nil, errStopping
		}
		d := b.deputies[who.UID]
		if d == nil {
			d = b.begin(ctx, who)
		}
		d.came(who.peer)
		b.mu.Unlock()
		select {
		case <-d.ready:
		case <-ctx.Done():
			return nil, errStopping
		}
		if d.failed != nil {
			return nil, d.failed
		}
		if !d.ending() {
			return d, nil
		}
		select {
		case <-d.gone:
		case <-ctx.Done():
			return nil, errStopping
		}
	}
}

// begin starts a deputy, which outlives whoever wanted it. b.mu is held.
func (b *Broker) begin(ctx context.Context, who Person) *deputy {
	ctx = context.WithoutCancel(ctx)
	d := newDeputy(b, who)
	b.deputies[who.UID] = d
	b.tasks.Go(func() { d.run(ctx) })
	return d
}

// live are the deputies that answer.
func (b *Broker) live() []*deputy {
	b.mu.Lock()
	defer b.mu.Unlock()
	var out []*deputy
	for _, d := range b.deputies {
		select {
		case <-d.ready:
			if d.failed == nil && !d.ending() {
				out = append(out, d)
			}
		default:
		}
	}
	return out
}

// mend starts a deputy for everybody of whom a dead broker's, or a dead deputy,
// may have left something. It undoes that at its start.
func (b *Broker) mend(ctx context.Context) {
	left, err := b.places.left()
	if err != nil {
		b.log.Error("looking for what is to be mended", "err", err)
	}
	for _, who := range left {
		b.tasks.Go(func() { b.mendOne(ctx, who) })
	}
}

func (b *Broker) mendOne(ctx context.Context, who Person) {
	if _, err := b.deputy(ctx, who); err != nil && ctx.Err() == nil {
		b.log.Error("mending what a dead deputy left", "user", who.Name, "err", err)
	}
}

// stop ends the deputies, and those that do not end in time.
func (b *Broker) stop(ctx context.Context) {
	b.mu.Lock()
	b.stopping = true
	for _, d := range b.deputies {
		go d.tellEnd(ctx, nil)
	}
	b.mu.Unlock()
	b.tasks.Wait()
}
