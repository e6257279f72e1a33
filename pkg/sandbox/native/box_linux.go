package native

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// box is one prepared sandbox.
type box struct {
	log      *slog.Logger
	spec     sandbox.Spec
	machine  machine
	helper   *child.Helper // nil until it has been started
	listener net.Listener
	held     []*hold
	bare     []string                       // files that could not be sheltered
	wake     func()                         // has a spare made, once it disturbs nobody
	settle   func()                         // nil, or tells that nothing is left of the spare that this was
	bounds   *bounds                        // nil until its limits are set
	tries    *attack                        // what its check tries
	under    atomic.Pointer[child.Attempts] // what is being tried already, for the first check
	trying   atomic.Bool                    // attempts have begun, and nobody knows that all were made
	teller   *teller
	notifier *child.Notifier // nil where the filter asks nobody

	removing chan struct{}  // holds one token: Remove is done by one at a time
	gone     chan struct{}  // closed when the helper has ended
	owned    sync.WaitGroup // goroutines of commands, but for foreign readers
}

// inner is the Spec with the limits that are left to pid 1.
func (b *box) inner() sandbox.Spec {
	s := b.spec
	s.Limits = b.bounds.inner(b.bounds.limits)
	return s
}

// Listener accepts what programs inside send to the proxy's address.
func (b *box) Listener() net.Listener { return b.listener }

// Dial connects to what listens inside.
func (b *box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	conn, err := b.helper.Connect(ctx, port)
	if errors.Is(err, child.ErrGone) {
		err = sandbox.ErrGone
	}
	return conn, err
}

// Done is closed when every process inside has ended.
func (b *box) Done() <-chan struct{} { return b.gone }

// watch closes Done; it ends with the helper.
func (b *box) watch() {
	<-b.helper.Done()
	close(b.gone)
}

// Remove ends all that runs inside, then undoes what Prepare left outside.
func (b *box) Remove(ctx context.Context) error {
	select {
	case b.removing <- struct{}{}:
		defer func() { <-b.removing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	if b.bounds != nil {
		b.bounds.removing.Store(true)
	}
	if under := b.under.Swap(nil); under != nil {
		_ = under.Close()
	}
	if b.helper != nil {
		if err := b.helper.Kill(ctx); err != nil {
			return err
		}
		sandbox.Reached(ctx, "helper ended")
		if err := b.idle(ctx); err != nil {
			return err
		}
	}
	errs := []error{b.untry()}
	if b.bounds != nil {
		errs = append(errs, b.bounds.group.Remove(ctx))
		sandbox.Reached(ctx, "control group removed")
	}
	// Only now: taken away under a running sandbox, a placeholder would take
	// the protection of its path with it.
	for i := len(b.held) - 1; i >= 0; i-- {
		_, err := b.held[i].release(ctx)
		errs = append(errs, err)
		sandbox.Reached(ctx, "released "+b.held[i].path)
	}
	b.held = nil
	err := errors.Join(errs...)
	if b.settle != nil && err == nil {
		b.settle()
	}
	b.wake()
	return err
}

// unlooked ends the attack that has begun with the sandbox, where nobody has
// asked what came of it: it is not to run beside commands.
func (b *box) unlooked(ctx context.Context) {
	if under := b.under.Swap(nil); under != nil {
		under.Drop(ctx)
		b.checked()
		if err := b.untry(); err != nil {
			b.log.Error("removing what a broken-off self-check made", "err", err)
		}
	}
}

// idle waits for the commands' goroutines: their pipes have no other end any
// more, so only a writer of the caller can hold one up.
func (b *box) idle(ctx context.Context) error {
	idle := make(chan struct{})
	go func() { b.owned.Wait(); close(idle) }()
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *box) usable(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case <-b.gone:
		return sandbox.ErrGone
	default:
		return nil
	}
}
