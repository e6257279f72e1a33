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
// undone stays in the journal, is said, and is tried again later.
func (n *Node) repair(ctx context.Context) error {
	done, left, err := mend(ctx, n.store, n.sweep, n.o.Boot)
	if err != nil {
		return err
	}
	n.repaired = append(done, left...)
	for _, line := range n.repaired {
		n.log.Warn("repaired", "did", line)
	}
	return nil
}

// A sweep hands one undo to the part that wrote it, which says what it did.
type sweep func(context.Context, store.Undo) (string, error)

// mend is the repair itself. It returns in words what it did and what it could
// not do.
func mend(ctx context.Context, s *store.Store, do sweep, boot string) (done, left []string, err error) {
	pending, err := s.Pending(ctx)
	if err != nil {
		return nil, nil, err
	}
	// Spares first: a session's own undo may be held up by one that it used.
	done, stuck, err := mendSpares(ctx, s, do, func(string) bool { return true })
	if err != nil {
		return nil, nil, err
	}
	left = []string{}
	for _, err := range stuck {
		left = append(left, err.Error())
	}
	for _, err := range undo(ctx, s, pending, do, func(line string) { done = append(done, line) }) {
		left = append(left, err.Error())
	}
	live, err := s.Sessions(ctx, store.Filter{Which: store.Live})
	if err != nil {
		return done, left, err
	}
	for _, l := range live {
		why, when := "the node died while it ran", "its node died"
		if earlier(l.Node, boot) {
			why, when = "the machine was started anew while it ran", "the machine was started anew"
		}
		err := s.MoveSession(ctx, l.ID, session.Lost, func(row *store.Session) { row.Reason = why })
		if err != nil {
			return done, left, err
		}
		done = append(done, fmt.Sprintf("session %s: was %s when %s, now lost", l.ID, l.State, when))
	}
	return done, left, nil
}

// undo carries out what is pending, in order, and notes what is done. What
// fails ends the undo of its session only: what comes after may be held up by
// it, as a placeholder is by the sandbox that relies on it.
func undo(ctx context.Context, s *store.Store, pending []store.JournalEntry, do sweep, say func(string)) (left []error) {
	stuck := map[session.ID]bool{}
	for _, e := range pending {
		if stuck[e.Session] {
			continue
		}
		did, err := do(ctx, e.Undo)
		sandbox.Reached(ctx, "undid "+e.Kind+" "+e.Path)
		if did != "" {
			say(fmt.Sprintf("session %s: %s", e.Session, did))
		}
		if err == nil {
			err = s.UndoDone(ctx, e.Session, e.Seq)
		}
		if err != nil {
			stuck[e.Session] = true
			left = append(left, fmt.Errorf("session %s: could not undo yet: %w", e.Session, err))
		}
	}
	return left
}

// sweepEvery is how often a node tries again what it could not undo.
const sweepEvery = time.Minute

// pruneEvery is how often a node forgets past sessions that need not be kept:
// one that runs for weeks is never opened anew.
const pruneEvery = time.Hour

// sweepLater tries again what teardowns of this node left, and forgets what
// need not be kept, until ctx ends.
func (n *Node) sweepLater(ctx context.Context) {
	again, old := time.NewTicker(sweepEvery), time.NewTicker(pruneEvery)
	defer again.Stop()
	defer old.Stop()
	for {
		select {
		case <-again.C:
			n.sweepSpares(ctx)
			n.sweepLeftovers(ctx)
			n.writeEnds(ctx)
		case <-old.C:
			if _, err := n.store.Prune(ctx); err != nil && ctx.Err() == nil {
				n.log.Error("forgetting past sessions", "err", err)
			}
		case <-ctx.Done():
			return
		}
	}
}

func (n *Node) sweepLeftovers(ctx context.Context) {
	n.sweeping.Lock()
	defer n.sweeping.Unlock()
	pending, err := n.leftovers(ctx)
	left := []error{err}
	if err == nil {
		left = undo(ctx, n.store, pending, n.sweep, func(line string) { n.log.Warn("undone later", "did", line) })
	}
	if err := errors.Join(left...); err != nil && ctx.Err() == nil {
		n.log.Error("undoing what is left", "err", err)
	}
}

// owes tries again what of ended sessions is still to be undone, and reports
// whether any of it is left.
func (n *Node) owes(ctx context.Context) bool {
	pending, err := n.leftovers(ctx)
	if err != nil || len(pending) == 0 {
		return false
	}
	n.sweepLeftovers(ctx)
	pending, err = n.leftovers(ctx)
	return err == nil && len(pending) > 0
}

// Left reports, once Serve has returned, whether something could not be undone
// or written down: the next start tries again.
func (n *Node) Left() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.left
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

func (n *Node) sweep(ctx context.Context, u store.Undo) (string, error) {
	return sweeper(n.o.Engines, n.o.Times, n.o.Boot)(ctx, u)
}

// enginePart is how the journal names an engine.
func enginePart(name string) string { return "engine:" + name }

// sweeper finds the engine that wrote an undo. A sweep that hangs is given up:
// it would keep a node from starting. What ended with an earlier start of the
// machine is done, and not looked for: what bears its name now is not it.
func sweeper(engines map[string]sandbox.Engine, t Times, boot string) sweep {
	return func(ctx context.Context, u store.Undo) (string, error) {
		ctx, cancel := context.WithTimeout(ctx, t.Remove)
		defer cancel()
		for name, e := range engines {
			if u.Owner == enginePart(name) {
				if m, ok := e.(sandbox.Mortal); ok && earlier(u.Node, boot) && m.EndsWithBoot(u.Undo) {
					return "", nil
				}
				return bounded(ctx, t.Patience, func() (string, error) { return e.Sweep(ctx, u.Undo) }, nil)
			}
		}
		return "", fmt.Errorf("no part of this build is called %q", u.Owner)
	}
}

// CleanUp does what a start does first, without starting: it says what it did
// and what it could not do, and fails with ErrRunning where a node holds the
// runtime directory.
func CleanUp(ctx context.Context, paths config.Paths, engines map[string]sandbox.Engine) (done, left []string, err error) {
	lock, err := holdIdle(ctx, paths)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()
	s, err := store.Open(ctx, paths.State, store.Options{})
	if err != nil {
		return nil, nil, err
	}
	done, left, err = mend(ctx, s, sweeper(engines, Times{}.orDefault(), bootID()), bootID())
	if err == nil && len(left) == 0 {
		err = errors.Join(clearSocket(paths), paths.Leave())
	}
	return done, left, errors.Join(err, s.Close())
}
