package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

// box is one sandbox.
type box struct {
	e      *Engine
	log    *slog.Logger
	client openshell.Client
	spec   sandbox.Spec

	held     *native.Held
	listener *inlet.Listener
	stage    *stage
	control  *net.UnixListener
	arrange  *net.UnixListener
	inside   *native.Inside // nil until the helper has joined
	asked    bool           // the gateway may know it
	ref      openshell.Ref
	docker   string             // the container's id
	first    int                // its first process, as the host counts
	limited  error              // why the number of processes is not bounded
	lacking  native.Arrangement // what could not be arranged
	missing  []string           // direct hosts for which nobody listens, with the reason

	removing chan struct{}          // holds one token: Remove is done by one at a time
	gone     chan struct{}          // closed when the helper has ended
	over     sync.Once              // closes gone where there never was a helper
	ending   chan struct{}          // closed when Remove begins
	ended    sync.Once              // closes ending
	answers  chan struct{}          // closed when the way out has answered from inside
	shut     atomic.Pointer[string] // why the way out is shut, if so
	full     atomic.Pointer[string] // by how much the disk limit was passed, if so
	owned    sync.WaitGroup         // goroutines of the node's own programs inside
	deleted  bool
	times    times

	strangers *strangers
}

// times are when a start came how far.
type times struct{ asked, created, met, ready time.Time }

// log says what took how long, for who wants to know where a start stands.
func (t times) log(log *slog.Logger) {
	log.Debug("started", "before create", t.created.Sub(t.asked), "until the helper came", t.met.Sub(t.created), "until the way out served", t.ready.Sub(t.met))
}

var (
	_ sandbox.Sandbox = (*box)(nil)
	_ sandbox.Dialer  = (*box)(nil)
	_ sandbox.Ender   = (*box)(nil)
)

// Listener accepts what the forwarder brings.
func (b *box) Listener() net.Listener { return b.listener }

// Done is closed when the sandbox has ended.
func (b *box) Done() <-chan struct{} { return b.gone }

// Exec starts a command inside.
func (b *box) Exec(ctx context.Context, c sandbox.Command, s sandbox.Stdio) (sandbox.Process, error) {
	return b.inside.Exec(ctx, c, s)
}

// Dial connects to what listens inside.
func (b *box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return b.inside.Dial(ctx, port)
}

// Check attacks the sandbox from inside, and asks the node's half of the way out.
// The gateway's half is asked by the forwarder, which lets nothing through before
// it has had an answer: see docs/adr/0020.
func (b *box) Check(ctx context.Context) (sandbox.Enforced, error) {
	half := make(chan error, 1)
	b.owned.Go(func() { half <- b.askHere(ctx) })
	limits, err := b.inside.Check(ctx)
	if err := errors.Join(err, <-half); err != nil {
		return nil, err
	}
	if why := b.shut.Load(); why != nil {
		return nil, fmt.Errorf("the way out is shut: %s", *why)
	}
	return b.facts(limits), nil
}

// answersWithin bounds an answer of this process' own.
const answersWithin = 10 * time.Second

// askHere asks the proxy that serves the listener.
func (b *box) askHere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	conn, err := b.listener.Self(ctx)
	if err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := inlet.Ask(conn); err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	return nil
}
