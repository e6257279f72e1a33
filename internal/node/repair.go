package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// repair finishes what a dead node left: every undo still in the journal is
// carried out and every session that it called live is lost. What cannot be
// undone stays in the journal, is said, and is tried again at the next start.
func (n *Node) repair(ctx context.Context) error {
	done, err := Repair(ctx, n.store, n.sweep)
	if err != nil {
		return err
	}
	n.repaired = done
	for _, line := range done {
		n.log.Warn("repaired", "did", line)
	}
	return nil
}

// Repair is the same for `cleanup`, which may run without a node. It returns
// what it did, in words.
func Repair(ctx context.Context, s *store.Store, sweep func(context.Context, store.Undo) (string, error)) ([]string, error) {
	done := []string{}
	pending, err := s.Pending(ctx)
	if err != nil {
		return nil, err
	}
	say := func(line string) { done = append(done, line) }
	if err := undo(ctx, s, pending, sweep, say); err != nil {
		say(err.Error())
	}
	live, err := s.Sessions(ctx, store.Filter{Which: store.Live})
	if err != nil {
		return done, err
	}
	for _, l := range live {
		err := s.MoveSession(ctx, l.ID, session.Lost, func(row *store.Session) {
			row.Reason = "the node died while it ran"
		})
		if err != nil {
			return done, err
		}
		done = append(done, fmt.Sprintf("session %s: was %s when its node died, now lost", l.ID, l.State))
	}
	return done, nil
}

// undo carries out what is pending, in order, and notes what is done. What
// fails does not keep the rest from being tried; the errors are returned.
func undo(ctx context.Context, s *store.Store, pending []store.JournalEntry, sweep func(context.Context, store.Undo) (string, error), say func(string)) error {
	var errs []error
	for _, e := range pending {
		did, err := sweep(ctx, e.Undo)
		if did != "" {
			say(fmt.Sprintf("session %s: %s", e.Session, did))
		}
		if err == nil {
			err = s.UndoDone(ctx, e.Session, e.Seq)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("session %s: could not undo yet: %w", e.Session, err))
		}
	}
	return errors.Join(errs...)
}

// sweepEvery is how often a node tries again what it could not undo.
const sweepEvery = time.Minute

// sweepLater tries again what teardowns of this node left, until ctx ends.
func (n *Node) sweepLater(ctx context.Context) {
	again := time.NewTicker(sweepEvery)
	defer again.Stop()
	for {
		select {
		case <-again.C:
			n.sweepLeftovers(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) sweepLeftovers(ctx context.Context) {
	left, err := n.leftovers(ctx)
	if err == nil && len(left) > 0 {
		_, err = bounded(ctx, n, func() (struct{}, error) {
			return struct{}{}, undo(ctx, n.store, left, n.sweep, func(line string) { n.log.Warn("undone later", "did", line) })
		}, nil)
	}
	if err != nil && ctx.Err() == nil {
		n.log.Error("undoing what is left", "err", err)
	}
}

// leftovers are the undo of sessions that have ended.
func (n *Node) leftovers(ctx context.Context) ([]store.JournalEntry, error) {
	pending, err := n.store.Pending(ctx)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(pending, func(e store.JournalEntry) bool { return n.live[e.Session] != nil }), nil
}

// sweep hands one undo to the part that wrote it.
func (n *Node) sweep(ctx context.Context, u store.Undo) (string, error) {
	return sweeper(n.o.Engines)(ctx, u)
}

// enginePart is how the journal names an engine.
func enginePart(name string) string { return "engine:" + name }

func sweeper(engines map[string]sandbox.Engine) func(context.Context, store.Undo) (string, error) {
	return func(ctx context.Context, u store.Undo) (string, error) {
		for name, e := range engines {
			if u.Owner == enginePart(name) {
				return e.Sweep(ctx, u.Undo)
			}
		}
		return "", fmt.Errorf("no part of this build is called %q", u.Owner)
	}
}

// CleanUp does what a start does first, without starting: it fails with
// ErrRunning where a node holds the runtime directory.
func CleanUp(ctx context.Context, paths config.Paths, engines map[string]sandbox.Engine) ([]string, error) {
	if err := makePlaces(paths); err != nil {
		return nil, err
	}
	lock, err := hold(lockPath(paths))
	if err != nil {
		return nil, err
	}
	defer lock.Close()
	s, err := store.Open(ctx, paths.State, store.Options{})
	if err != nil {
		return nil, err
	}
	done, err := Repair(ctx, s, sweeper(engines))
	return done, errors.Join(err, s.Close())
}
