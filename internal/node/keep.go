package node

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// keep has every engine that can keep spares until ctx ends.
func (n *Node) keep(ctx context.Context) {
	ctx = unobserved(ctx)
	var keeping sync.WaitGroup
	for name, e := range n.o.Engines {
		if k, ok := e.(sandbox.Keeper); ok {
			keeping.Go(func() { k.Keep(ctx, n.keeping(ctx, name)) })
		}
	}
	keeping.Wait()
}

// unobserved tells nobody: what happens to spares is no step of a session, and
// comes in any order.
func unobserved(ctx context.Context) context.Context {
	return sandbox.Observe(ctx, func(string) {})
}

func (n *Node) keeping(ctx context.Context, engine string) sandbox.Keeping {
	return sandbox.Keeping{
		Spares: int(n.o.Settings.Int(config.SandboxSpares)),
		Note: func(ctx context.Context, spare string, undo []sandbox.Undo) error {
			var all []store.Undo
			for _, u := range undo {
				all = append(all, store.Undo{Owner: enginePart(engine), Undo: u})
			}
			return n.store.AddSpare(ctx, spare, all)
		},
		Claimed: func(spare, id string) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.claimed[spare] = session.ID(id)
		},
		// An end does not wait for it: what is not known to be gone is looked
		// for once more.
		Settled: func(spare string) { n.telling.Go(func() { n.forgetSpare(context.WithoutCancel(ctx), spare) }) },
		May:     n.roomy(),
	}
}

// roomy says whether the machine has memory for a spare. A deputy asks the
// machine itself: nothing is promised at its door, which is elsewhere.
func (n *Node) roomy() func() bool {
	if d, ok := n.door.(ownDoor); ok {
		return d.Roomy
	}
	d, err := NewDoor(n.o.Settings, 1)
	if err != nil {
		return func() bool { return false }
	}
	return d.Roomy
}

func (n *Node) forgetSpare(ctx context.Context, spare string) {
	if err := n.store.ForgetSpare(ctx, spare); err != nil {
		n.log.Error("noting the end of a spare sandbox", "spare", spare, "err", err)
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.claimed, spare)
}

// sweepSpares tries again what the ends of sessions left of their spares.
func (n *Node) sweepSpares(ctx context.Context) {
	_, left, err := mendSpares(ctx, n.store, n.sweep, func(spare string) bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		by, claimed := n.claimed[spare]
		return claimed && n.live[by] == nil
	})
	if err = errors.Join(append(left, err)...); err != nil && ctx.Err() == nil {
		n.log.Error("undoing what is left of spare sandboxes", "err", err)
	}
}

// mendSpares takes away what is left of those spares.
func mendSpares(ctx context.Context, s *store.Store, do sweep, which func(spare string) bool) (done []string, left []error, err error) {
	ctx = unobserved(ctx)
	spares, err := s.Spares(ctx)
	if err != nil {
		return nil, nil, err
	}
	done = []string{} // which is what JSON shows
	for _, one := range spares {
		if !which(one.ID) {
			continue
		}
		var errs []error
		for _, u := range one.Undo {
			did, err := do(ctx, u)
			if did != "" {
				done = append(done, "a sandbox made in advance: "+did)
			}
			errs = append(errs, err)
		}
		err := errors.Join(errs...)
		if err == nil {
			err = s.ForgetSpare(ctx, one.ID)
		}
		if err != nil {
			left = append(left, fmt.Errorf("a sandbox made in advance: could not undo yet: %w", err))
		}
	}
	return done, left, nil
}
