package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Why asks Docker what became of the container.
func (b *box) Why(ctx context.Context) error {
	if why := b.shut.Load(); why != nil {
		return fmt.Errorf("its way out is shut: %s", *why)
	}
	if why := b.full.Load(); why != nil {
		return errors.New(*why)
	}
	if b.docker == "" || b.inside == nil {
		return nil
	}
	beat := time.NewTicker(again)
	defer beat.Stop()
	for late := time.Now().Add(lingers); ; {
		why, settled := b.fate(ctx)
		if settled || time.Now().After(late) {
			return why
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return why
		}
	}
}

// lingers is how long Docker may call a container running whose helper has ended.
const lingers = 2 * time.Second

// fate is what has become of the container by now, and whether that will stay.
func (b *box) fate(ctx context.Context) (why error, settled bool) {
	found, err := b.e.o.Docker.Containers(ctx, map[string]string{product.LabelID: b.ref.ID})
	switch {
	case err != nil:
		return fmt.Errorf("nothing is known of its container: %w", err), true
	case len(found) == 0:
		return errors.New("somebody else removed its container"), true
	}
	is, err := b.e.o.Docker.Details(ctx, found[0].ID)
	switch {
	case errors.Is(err, daemon.ErrNotFound), is.Leaving:
		return errors.New("somebody else removed its container"), true
	case err != nil:
		return fmt.Errorf("nothing is known of its container: %w", err), true
	case is.Running && is.PID != b.first:
		return errors.New("its container was started anew, and what ran in it is lost"), true
	case is.OOM:
		return errors.New("its container was killed for memory"), true
	case !is.Running:
		return fmt.Errorf("its container ended with %d, and not by this node", is.Code), true
	}
	select {
	case <-b.inside.Done():
		return errors.New("its helper was ended inside"), false
	default:
		return nil, true
	}
}
