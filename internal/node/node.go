// Package node promises the daemon: it wires the parts together and carries
// each session from asked for to gone. It holds no rule of its own: what a
// policy allows, what a sandbox is and what an engine can do are decided in
// the parts.
package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"os/user"
	"runtime/debug"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/guardwatch"
	"github.com/mojoup/mojoup-node/internal/host"
	"github.com/mojoup/mojoup-node/internal/hostsocket"
	"github.com/mojoup/mojoup-node/internal/registries"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

// ErrRunning says that another node holds this runtime directory.
var ErrRunning = errors.New("a node is already running here")

// LingerFor is how long a lingering node waits after its last session.
const LingerFor = 30 * time.Second

// Options of a Node. All are required but where said.
type Options struct {
	Paths    config.Paths
	Settings *config.Config
	// Follow returns the settings as they are now, for those that take effect at
	// once, or those of before with the reason why they cannot be read; nil means
	// Settings.
	Follow  func() (*config.Config, error)
	Version string
	Logger  *slog.Logger // nil discards
	Log     string       // where Logger's lines go, for people
	// Engines by name: "native" and "process".
	Engines map[string]sandbox.Engine
	// Examine answers whether this machine can sandbox agents.
	Examine func(ctx context.Context, configured capability.Engine) capability.Report
	// Linger, if positive, ends the node so long after its last session.
	Linger time.Duration
	// Listener is the socket that somebody else made (socket activation), or
	// nil: the node makes its own.
	Listener net.Listener
	// Locked is called once this is the node of its directories, before it reads
	// anything, if not nil.
	Locked func() error
	// Ready is called once the socket answers, if not nil.
	Ready func()
	// Deputy is set where the node is one person's part of a system node.
	Deputy *Deputy
	// Times bound how long ends take.
	Times Times
	// Boot names the start of the machine; empty means the kernel's own name
	// for it. What an earlier one's sessions had running is not looked for.
	Boot string
	// Tools are those whose sign-ins are known; nil means what the profiles say,
	// the person's own among them.
	Tools []signin.Tool
	// Renew renews a sign-in where it is due; nil means in a process of its own.
	Renew func(context.Context, Renewal) error
	// Observe, if not nil, is told each step of each session and of the repair,
	// see [sandbox.Observe].
	Observe func(step string)
}

// A Deputy is what a node has of the system node that it is a part of.
type Deputy struct {
	// Door is where all people's sessions pass.
	Door Door
	// Socket is the one that people know.
	Socket string
	// Private are the system node's own files and directories.
	Private []string
	// Visitors are connections to the system node's page that this person has
	// made, as *console.Visitor; nil where it has none. Page is its address.
	Visitors net.Listener
	Page     string
	// PagePorts are where it listens.
	PagePorts []netip.AddrPort
	// Retire is asked before a node that has lingered ends: false means that
	// somebody is on the way to it.
	Retire func(ctx context.Context) bool
}

// Node is one running daemon.
type Node struct {
	o          Options
	log        *slog.Logger
	store      *store.Store
	proxy      *egress.Proxy
	guards     *guardwatch.Watcher
	sockets    *hostsocket.Watcher
	page       *page
	door       Door
	seats      seats
	uid        int
	user       *user.User
	since      time.Time
	environ    []string // of the process: where the package clients' settings are
	registries registries.Cache
	trust      host.Trust
	vault      *vault.Vault
	book       *secrets.Book // of the stand-ins that were given out
	commands   source.Cache
	readings   readings // of keys, now
	renewals   renewals
	key        string // of this process, in the rows of its sessions

	sweeping sync.Mutex // held by who tries again what is left to be undone

	records chan recorded // verdicts on their way to the store
	written chan struct{} // closed when nobody writes them any more
	// unwritable says that verdicts cannot be written: the ways out are closed.
	unwritable atomic.Bool
	telling    sync.WaitGroup // lines on their way to those who look at sessions
	// unread is why the settings could not be read again, or nil.
	unread atomic.Pointer[string]

	examined chan struct{} // closed once report is set
	report   capability.Report

	mu       sync.Mutex // guards what follows
	live     map[session.ID]*life
	idle     time.Time // since when no session lives
	stopping bool
	changed  chan struct{} // closed and replaced when a session begins or ends
	repaired []string
	claimed  map[string]session.ID // spares, by the session that uses them
	ends     []store.Session       // that could not be written down yet, the oldest first
	left     bool                  // something is in the journal, now that the node has ended
	end      context.CancelCauseFunc
}

// New checks the options and does nothing else.
func New(o Options) (*Node, error) {
	if o.Settings == nil || o.Examine == nil || o.Engines["native"] == nil || o.Engines["process"] == nil {
		return nil, errors.New("BUG: node without settings, checks or engines")
	}
	o.Times, o.Boot = o.Times.orDefault(), cmp.Or(o.Boot, bootID())
	door, err := o.door()
	if err != nil {
		return nil, err
	}
	n := &Node{
		o: o, door: door, seats: newSeats(), environ: os.Environ(), log: o.Logger, uid: os.Getuid(), key: keyOf(o.Boot, string(session.New())),
		records: make(chan recorded, 1024), written: make(chan struct{}), examined: make(chan struct{}),
		live: map[session.ID]*life{}, claimed: map[string]session.ID{}, changed: make(chan struct{}), repaired: []string{},
		renewals: renewals{leaving: make(chan struct{})},
	}
	if n.log == nil {
		n.log = slog.New(slog.DiscardHandler)
	}
	if n.o.Renew == nil {
		n.o.Renew = n.renewByProcess
	}
	return n, nil
}

// errEnough ends a lingering node that has nothing to do.
var errEnough = errors.New("nothing to do")

// errAsked ends a node on request.
var errAsked = errors.New("asked to end")

// Serve serves until ctx ends, the node is asked to end, or has lingered long
// enough; then it ends its sessions and returns when all are gone.
func (n *Node) Serve(ctx context.Context) error {
	ctx = n.observed(ctx)
	lock, err := Hold(n.o.Paths)
	if err != nil {
		return err
	}
	defer lock.Close()
	if n.o.Locked != nil {
		if err := n.o.Locked(); err != nil {
			return err
		}
	}
	if err := n.o.Paths.Enrol(); err != nil {
		n.log.Warn("who looks for what dead nodes left will not find this one", "err", err)
	}
	if err := n.open(ctx); err != nil {
		return err
	}
	defer n.store.Close()
	defer n.takeLeave(context.WithoutCancel(ctx))
	defer n.guards.Close()
	defer n.page.close()
	defer n.renewals.leave()
	if err := n.repair(ctx); err != nil {
		return err
	}
	ln, err := n.listen()
	if err != nil {
		return err
	}
	return n.serve(ctx, ln)
}

func (n *Node) observed(ctx context.Context) context.Context {
	if n.o.Observe == nil {
		return ctx
	}
	return sandbox.Observe(ctx, n.o.Observe)
}

// takeLeave takes a node that has left nothing out of the register.
func (n *Node) takeLeave(ctx context.Context) {
	pending, err := n.store.Pending(ctx)
	spares, serr := n.store.Spares(ctx)
	err = errors.Join(err, serr)
	something := len(pending)+len(spares) > 0
	n.mu.Lock()
	n.left = err != nil || something || len(n.ends) > 0
	n.mu.Unlock()
	if err == nil && !something {
		err = n.o.Paths.Leave()
	}
	if err != nil {
		n.log.Warn("leaving the register of nodes", "err", err)
	}
}

// open makes the parts that outlive a session.
func (n *Node) open(ctx context.Context) (err error) {
	n.since = time.Now()
	n.user = whois(n.uid)
	if n.store, err = store.Open(ctx, n.o.Paths.State, store.Options{}); err != nil {
		return err
	}
	n.vault, n.book = vault.New(n.o.Paths.State), secrets.NewBook()
	n.guards, n.sockets = guardwatch.New(n.log), hostsocket.New(n.log)
	n.page = n.openPage()
	n.proxy, err = egress.New(egress.Options{Logger: n.log, Private: n.o.Settings.Prefixes(config.NetworkPrivate), Own: n.page.ports()})
	if err != nil {
		n.page.close()
		_ = n.store.Close()
	}
	return err
}

// whois is the user of a uid. One whom no list names has a number and no home
// but that which a caller's HOME says.
func whois(uid int) *user.User {
	id := strconv.Itoa(uid)
	if u, err := user.LookupId(id); err == nil {
		return u
	}
	return &user.User{Uid: id, Gid: strconv.Itoa(os.Getgid()), Username: id}
}

// answerWithin is how long a node that ends goes on to answer.
const answerWithin = 3 * time.Second

// serve runs the long-lived parts until one of them says that it is over.
func (n *Node) serve(ctx context.Context, ln net.Listener) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	n.mu.Lock()
	n.end, n.idle = end, time.Now()
	n.mu.Unlock()
	srv := console.NewServer(console.Options{Node: n, Logger: n.log})
	var parts sync.WaitGroup
	parts.Go(func() {
		if err := srv.Serve(ln); err != nil {
			end(fmt.Errorf("serving the socket: %w", err))
		}
	})
	parts.Go(func() {
		if err := n.page.serve(ctx); err != nil {
			n.log.Error("the node goes on without its page", "err", err)
		}
	})
	parts.Go(func() { n.examine(ctx) })
	parts.Go(func() { n.sweepLater(ctx) })
	parts.Go(func() { n.keep(ctx) })
	parts.Go(func() { n.giveBack(ctx, debug.FreeOSMemory) })
	unwritten := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() { n.writeRecords(context.WithoutCancel(ctx), unwritten) })
	if n.o.Linger > 0 {
		parts.Go(func() { n.linger(ctx) })
	}
	if n.o.Ready != nil {
		n.o.Ready()
	}
	n.log.Info("node serves", "socket", ln.Addr().String(), "version", n.o.Version)
	<-ctx.Done()
	cause := context.Cause(ctx)
	n.stopSessions(cause)
	// Whoever asked is still answered; sessions have ended by now.
	answering, cancel := context.WithTimeout(context.WithoutCancel(ctx), answerWithin)
	defer cancel()
	srv.Shutdown(answering)
	n.page.server.Close()
	parts.Wait()
	close(unwritten)
	writer.Wait()
	n.writeEnds(context.WithoutCancel(ctx))
	n.telling.Wait()
	n.log.Info("node ends", "because", cause)
	if errors.Is(cause, errEnough) || errors.Is(cause, errAsked) || errors.Is(cause, context.Canceled) {
		return nil
	}
	return cause
}

// asks is how often a node asks whether this machine can sandbox agents, where
// that could not be found out: a check that did not end in time on a machine
// that was just then very busy must not keep it from carrying sessions for all
// of its life.
const asks = 2

// examine finds out once per start whether this machine can sandbox agents.
// Sessions wait for it; the socket does not.
func (n *Node) examine(ctx context.Context) {
	for range asks {
		n.report = n.o.Examine(ctx, n.configured())
		if _, v := capability.Decide(n.report.Checks, n.configured()); v.Able || v.Known || ctx.Err() != nil {
			break
		}
	}
	close(n.examined)
}

func (n *Node) configured() capability.Engine {
	return capability.Engine(n.o.Settings.String(config.SandboxEngine))
}

// stopSessions ends every session and waits until all are gone. They are told the
// cause where it is for people.
func (n *Node) stopSessions(cause error) {
	why := errNodeStops
	if p, ok := errors.AsType[*api.Problem](cause); ok {
		why = p
	}
	n.mu.Lock()
	n.stopping = true
	waiting := make([]*life, 0, len(n.live))
	for _, l := range n.live {
		l.stop(why)
		waiting = append(waiting, l)
	}
	n.mu.Unlock()
	for _, l := range waiting {
		<-l.gone
	}
}

// enter notes a session as live, unless the node is ending.
func (n *Node) enter(l *life) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopping {
		return &api.Problem{Code: api.CodeStopping, Sentence: "the node is stopping and takes no new session", Exit: 125, Hint: "run the command again"}
	}
	n.live[l.id] = l
	n.signalLocked()
	return nil
}

func (n *Node) leave(l *life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.live, l.id)
	n.idle = time.Now()
	n.signalLocked()
}

func (n *Node) signalLocked() {
	close(n.changed)
	n.changed = make(chan struct{})
}
