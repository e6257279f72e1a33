package engine

import (
	"context"
	"errors"
	"net"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Remove deletes the sandbox, waits until it is gone, and undoes what Prepare
// left on the host.
func (b *box) Remove(ctx context.Context) error {
	b.e.leaves(b, true)
	err := b.remove(ctx)
	if err == nil {
		b.e.leaves(b, false)
	}
	return err
}

// leaves notes that a box is being removed, or that nothing of it is left.
func (e *Engine) leaves(b *box, still bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if still {
		e.leaving[b.spec.ID] = b
	} else if e.leaving[b.spec.ID] == b {
		delete(e.leaving, b.spec.ID)
	}
}

func (b *box) remove(ctx context.Context) error {
	select {
	case b.removing <- struct{}{}:
		defer func() { <-b.removing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.ended.Do(func() { close(b.ending) })
	if b.listener != nil {
		_ = b.listener.Close() // its token is worth nothing from here on
	}
	for _, ln := range []*net.UnixListener{b.control, b.arrange} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	ended := b.endWithin(ctx)
	if ended != nil && !b.outlived(ctx) {
		return ended
	}
	if b.inside != nil {
		if err := b.inside.Close(ctx); err != nil {
			return err
		}
	} else {
		b.over.Do(func() { close(b.gone) })
	}
	b.owned.Wait()
	errs := []error{ended}
	if b.stage != nil {
		errs = append(errs, removeStage(b.stage.dir))
		sandbox.Reached(ctx, "unstaged")
	}
	// Only now: taken away under a running sandbox, a placeholder would take
	// the protection of its path with it.
	if b.held != nil {
		errs = append(errs, b.held.Release(ctx))
	}
	return errors.Join(errs...)
}

// endWithin is end in the first two thirds of the time that there is. A gateway
// that takes all of it for its own record must leave some for what is on the host.
func (b *box) endWithin(ctx context.Context) error {
	if due, bounded := ctx.Deadline(); bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(due)*2/3)
		defer cancel()
	}
	return b.end(ctx)
}

// outlived reports whether its container was there and is not any more, so that
// what the gateway still says of it, for minutes where somebody else took the
// container away, is a record of nothing.
func (b *box) outlived(ctx context.Context) bool {
	if b.docker == "" {
		return false
	}
	left, err := b.e.containers(ctx, b.spec.ID)
	return err == nil && len(left) == 0
}

// end deletes the sandbox at the gateway and makes sure that no container of
// it is left.
func (b *box) end(ctx context.Context) error {
	if !b.asked || b.deleted {
		return nil
	}
	// Everything inside ends at once, whatever the gateway takes its time for.
	if b.docker != "" {
		if err := b.e.o.Docker.Kill(ctx, b.docker); err != nil {
			b.log.Warn("ending the container before it is deleted", "err", err)
		}
		sandbox.Reached(ctx, "container ended")
	}
	if err := b.e.delete(ctx, b.client, b.spec.ID, b.ref); err != nil {
		b.e.lost(b.client, err)
		return err
	}
	b.deleted = true
	sandbox.Reached(ctx, "deleted")
	return nil
}

// delete deletes a sandbox of this node by its id, or by its name where the id
// is not known, and waits until it is gone, at the gateway and in Docker.
func (e *Engine) delete(ctx context.Context, client openshell.Client, id string, ref openshell.Ref) error {
	if ref.ID == "" {
		record, err := client.Get(ctx, openshell.Name(e.o.Node, id))
		if errors.Is(err, openshell.NotFound) {
			return e.noContainer(ctx, id)
		}
		if err != nil {
			return err
		}
		if !e.ours(record.Labels, id) {
			return nil
		}
		ref = record.Ref
	}
	err := client.Delete(ctx, ref)
	if errors.Is(err, openshell.Refused) && e.noContainer(ctx, id) == nil {
		// Docker removes a container once: while somebody else does, the gateway's
		// attempt fails. Ours has waited for theirs.
		err = client.Delete(ctx, ref)
	}
	if err != nil && !errors.Is(err, openshell.NotFound) {
		return err
	}
	sandbox.Reached(ctx, "deletion asked for")
	if err := client.Gone(ctx, ref); err != nil {
		return err
	}
	return e.noContainer(ctx, id)
}

// ours reports whether labels are those of a session of this node.
func (e *Engine) ours(labels map[string]string, id string) bool {
	return labels[openshell.LabelNode] == e.o.Node && labels[openshell.LabelSession] == id
}

// containers are those that Docker has of a session.
func (e *Engine) containers(ctx context.Context, id string) ([]daemon.Container, error) {
	labels := e.labels(id)
	labels[product.LabelManagedBy] = product.ManagedBy
	return e.o.Docker.Containers(ctx, labels)
}

// noContainer wants that Docker has no container of a session any more, and
// removes one that the gateway has forgotten.
func (e *Engine) noContainer(ctx context.Context, id string) error {
	left, err := e.containers(ctx, id)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range left {
		e.log.Warn("the gateway left a container", "sandbox", id, "container", c.ID)
		errs = append(errs, e.o.Docker.Remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}
