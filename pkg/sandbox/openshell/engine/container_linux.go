package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// place finds the container, lets its address in, and has done in it what
// takes its root.
func (b *box) place(ctx context.Context) error {
	c, first, err := b.container(ctx)
	if err != nil {
		return err
	}
	if c.Labels[openshell.LabelSession] != b.spec.ID || c.Labels[openshell.LabelNode] != b.e.o.Node {
		return fmt.Errorf("the container of sandbox %s bears the labels of another session", b.ref.Name)
	}
	b.docker, b.first = c.ID, first
	if b.client.Gateway().Generation == openshell.V00 {
		b.listener.Admit(c.Addresses...)
	}
	sandbox.Reached(ctx, "container there")
	err = b.arranged(ctx, c)
	sandbox.Reached(ctx, "arranged")
	return err
}

// spareThreads is room for what programs inside that are not the session's
// (OpenShell's supervisor, the helper, the forwarder) may yet start.
const spareThreads = 16

// limit bounds the session's processes: as many more as there are now.
func (b *box) limit(ctx context.Context) {
	n := b.spec.Limits.Processes
	if n <= 0 {
		return
	}
	now, err := b.e.o.Docker.Running(ctx, b.docker)
	if err == nil {
		b.limited = b.e.o.Docker.Processes(ctx, b.docker, int64(now+n+spareThreads))
	} else {
		b.limited = err
	}
}

// again is how often Docker is asked for a container that is about to be.
const again = 25 * time.Millisecond

// container waits for the running one, and answers its first process too.
func (b *box) container(ctx context.Context) (daemon.Container, int, error) {
	beat := time.NewTicker(again)
	defer beat.Stop()
	for {
		found, err := b.e.o.Docker.Containers(ctx, map[string]string{product.LabelID: b.ref.ID})
		for _, c := range found {
			if !c.Running || len(c.Addresses) == 0 && b.client.Gateway().Generation == openshell.V00 {
				continue
			}
			var is daemon.Details
			if is, err = b.e.o.Docker.Details(ctx, c.ID); err == nil && is.Running {
				return c, is.PID, nil
			}
		}
		// A busy machine's Docker may take longer than an answer may.
		if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, daemon.ErrNotFound)) {
			return daemon.Container{}, 0, err
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return daemon.Container{}, 0, context.Cause(ctx)
		}
	}
}

// arranged has the container's root do what the gateway's mounts cannot say.
// Only containers of 0.0.x have the right; elsewhere what is missing is said.
func (b *box) arranged(ctx context.Context, c daemon.Container) error {
	a := native.Arrangement{Hostname: b.spec.Hostname, Links: b.stage.links}
	if a.Hostname == "" {
		a.Hostname = usualName
	}
	for _, p := range b.spec.Protect {
		if p.Guard == sandbox.Shelter {
			a.Pinned = append(a.Pinned, p.Path)
		}
	}
	if b.client.Gateway().Generation != openshell.V00 {
		b.lacking = a
		return b.arrange.Close()
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	ran := make(chan error, 1)
	go func() {
		err := b.e.o.Docker.AsRoot(ctx, c.ID, own+"/"+helperName, b.spec.ID, own+"/"+arrangeName)
		if err != nil {
			cancel(err)
		}
		ran <- err
	}()
	conn, err := b.accept(ctx, b.arrange, arrangeName)
	if err == nil {
		err = native.Arrange(ctx, conn, a)
	}
	if rerr := <-ran; err == nil {
		err = rerr
	}
	if err != nil {
		return fmt.Errorf("arranging the container as its root: %w", err)
	}
	return nil
}

// arrangedSpec is the Spec as it could be arranged: a link that could not be made
// a mount is not looked at as if it were one, and facts say what that means.
func (b *box) arrangedSpec() sandbox.Spec {
	s := b.spec
	s.Protect = nil
	for _, p := range b.spec.Protect {
		if p.Guard != sandbox.Shelter || !slices.Contains(b.lacking.Pinned, p.Path) {
			s.Protect = append(s.Protect, p)
			continue
		}
		dir := sandbox.ShelterDir(p.Path)
		s.Protect = append(s.Protect, sandbox.Protection{Path: dir, Guard: sandbox.Freeze}, sandbox.Protection{Path: dir, Guard: sandbox.Pin})
	}
	return s
}
