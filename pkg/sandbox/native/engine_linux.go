package native

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// Options configure an [Engine]. The zero value is usable.
type Options struct {
	// Log is told what was ended and undone. Nil discards it.
	Log *slog.Logger
	// ScratchSize bounds each Scratch mount without a size of its own, in
	// bytes. Zero means 2 GiB. All of a sandbox together have at most 4 GiB,
	// or half of the machine's memory, where the Spec does not say.
	ScratchSize int64
}

// An Engine makes native sandboxes. It holds the helper and the system call
// filter, which are made once.
type Engine struct {
	log     *slog.Logger
	image   *child.Image
	machine machine
	groups  *cgroup.Host
	pins    pins
	spares  *spares
	// pinning is the filter for sandboxes that are bound to processors.
	pinning func() ([]byte, error)
	told    map[int][]toldCall
	floods  atomic.Int64 // sandboxes whose refused calls are slowed down
}

var _ sandbox.Engine = (*Engine)(nil)

// New makes the engine: a [*child.MissingError] where this build has no
// helper, a [*KernelError] where the kernel lacks Landlock. Whether sandboxes
// really work here is package capability's to find out.
func New(o Options) (*Engine, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.ScratchSize <= 0 {
		o.ScratchSize = 2 << 30
	}
	abi, err := landlockABI()
	if err != nil {
		return nil, err
	}
	filter, err := buildFilter(refusals())
	if err != nil {
		return nil, err
	}
	told, err := toldCalls(refusals())
	if err != nil {
		return nil, err
	}
	image, err := child.Load()
	if err != nil {
		return nil, err
	}
	return &Engine{
		log: o.Log, image: image, groups: cgroup.Here(), told: told, spares: newSpares(),
		machine: machine{abi: abi, filter: filter, scratch: o.ScratchSize, shares: findShares()},
		pinning: sync.OnceValues(func() ([]byte, error) { return buildFilter(append(refusals(), affinity)) }),
	}, nil
}

// Name is "native".
func (*Engine) Name() string { return "native" }

// Close frees the helper's memory. Sandboxes that run are not touched.
func (e *Engine) Close() error { return e.image.Close() }

// Prepare makes a sandbox with nothing running in it.
func (e *Engine) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b, err := e.prepare(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("preparing sandbox %s: %w", spec.ID, err)
	}
	return b, nil
}

func (e *Engine) prepare(ctx context.Context, spec sandbox.Spec) (*box, error) {
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if err := validate(spec); err != nil {
		return nil, err
	}
	if err := validateIdentity(spec.Identity); err != nil {
		return nil, err
	}
	if b := e.claim(ctx, spec); b != nil {
		made, err := e.finish(ctx, b)
		if !b.wasted(err) {
			return made, err
		}
	}
	b := e.newBox(spec)
	b.bounds = e.bound(spec)
	sandbox.Reached(ctx, "bounded")
	base, err := e.begin(ctx, b)
	if err == nil {
		// Whatever is the host's to do is done while the helper is at its own.
		err = b.helper.Begin(base)
	}
	if err != nil {
		return nil, errors.Join(b.bounds.tooSmall(err), b.Remove(context.WithoutCancel(ctx)))
	}
	return e.finish(ctx, b)
}

func (e *Engine) newBox(spec sandbox.Spec) *box {
	return &box{
		log: e.log.With("sandbox", spec.ID), spec: spec, machine: e.machine, wake: sync.OnceFunc(e.spares.want),
		removing: make(chan struct{}, 1), gone: make(chan struct{}), teller: newTeller(e.told, &e.floods),
	}
}

// finish makes a sandbox that has been begun. Where it fails nothing is left.
func (e *Engine) finish(ctx context.Context, b *box) (made *box, err error) {
	defer func() {
		if err != nil {
			_ = b.Remove(context.WithoutCancel(ctx))
		}
	}()
	spec := b.spec
	// The helper is at this while what it needs of the host is made here.
	if err := b.helper.Begin(compileOwn(b.inner(), b.machine)); err != nil {
		return nil, err
	}
	if err := b.protect(ctx); err != nil {
		return nil, err
	}
	b.tries = b.attacks()
	// Asked for ahead: it is attacked as soon as it stands, while its way out
	// is still being made ready here. Who does not check does not hear of it.
	b.teller.alone.Store(true)
	under, err := b.begin(b.tries)
	if err == nil {
		b.under.Store(under)
	} else if !errors.Is(err, child.ErrGone) {
		return nil, err
	}
	place, err := b.helper.Ready(ctx)
	b.listener = place.Listener
	b.listen(place.Notifier)
	if err != nil {
		return nil, b.bounds.tooSmall(err)
	}
	sandbox.Reached(ctx, "set up")
	if b.settle != nil { // it has waited in its group: before anything counts on it
		if err := b.bounds.verify(b.helper.PID()); err != nil {
			return nil, errors.Join(err, b.listener.Close())
		}
	}
	b.owned.Go(func() {
		b.bounds.watch.run(b.helper.PID(), b.helper.Done(), func() { _ = b.helper.Kill(context.WithoutCancel(ctx)) })
	})
	go b.watch()
	e.spares.follow(spec)
	return b, nil
}

// protect makes what the protections need of the host, and has them and all the
// rest carried out: the first of them while others are still made ready for.
func (b *box) protect(ctx context.Context) (err error) {
	spec, begun := b.spec, 0
	next := func(n int, held []*hold) sandbox.Spec {
		part := b.inner()
		part.Protect = spec.Protect[begun:n]
		begun = n
		part, _ = unsheltered(part, held)
		return part
	}
	b.held, err = holdAll(ctx, spec, func(held []*hold) error {
		return b.helper.Begin(protectOps(next(standing(spec, len(held)), held)))
	})
	if err != nil {
		return err
	}
	rest := next(len(spec.Protect), b.held)
	b.spec, b.bare = unsheltered(spec, b.held)
	return b.helper.Finish(compileRest(rest, b.machine))
}

// begin starts the helper within its bounds, has it make its namespaces, and
// says what is to be done next.
func (e *Engine) begin(ctx context.Context, b *box) (base []child.Op, err error) {
	id := b.spec.Identity
	if b.bounds.pinned.n > 0 {
		if b.machine.filter, err = e.pinning(); err != nil {
			return nil, err
		}
	}
	err = b.bounds.start(func(fd int) (err error) {
		b.helper, err = e.image.Start(child.Options{ID: b.spec.ID, UID: id.UID, GID: id.GID, Groups: id.Groups, ControlGroup: fd})
		return err
	})
	if err != nil {
		return nil, err
	}
	sandbox.Reached(ctx, "helper started")
	// Before it forks: what it starts is bound as it is then.
	b.bounds.pinned.hold(b.helper.PID())
	if err := b.bounds.verify(b.helper.PID()); err != nil {
		return nil, err
	}
	if err := b.helper.MakeNamespaces(id.UID, id.GID); err != nil {
		return nil, err
	}
	sandbox.Reached(ctx, "namespaces asked for")
	return compileBase(b.inner(), b.machine), nil
}
