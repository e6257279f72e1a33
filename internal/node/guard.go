package node

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/guardwatch"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// surveyWithin bounds the look at a tree whose session has ended: the person
// waits for the last line.
const surveyWithin = time.Second

// A guard keeps an eye on what no mount holds while a session lives: what the
// host takes away, and what the session leaves that the host would run.
type guard struct {
	l      *life
	tree   repo.Repository
	before repo.Survey
	hidden []string
	stop   func()
	saying sync.WaitGroup

	mu    sync.Mutex // guards what follows
	lines []string
}

// guard begins before the self-check, which finds what was lost earlier.
func (l *life) guard(ctx context.Context, p prepared) *guard {
	g := &guard{l: l, tree: p.repository, stop: func() {}}
	if !p.sandboxed {
		return g
	}
	var paths []string
	for _, guarded := range p.spec.Protect {
		if guarded.Guard == sandbox.Thaw {
			continue
		}
		paths = append(paths, guarded.Path)
		if guarded.Guard == sandbox.Shelter {
			paths = append(paths, sandbox.ShelterDir(guarded.Path))
		}
	}
	for _, h := range p.repository.Hide {
		g.hidden = append(g.hidden, h.Path)
	}
	var err error
	if g.stop, err = l.n.guards.Watch(append(paths, g.hidden...), func(lost guardwatch.Lost) { g.lost(context.WithoutCancel(ctx), lost) }); err != nil {
		l.n.log.Warn("not every protected path is watched", "session", l.id, "err", err)
	}
	g.before = p.repository.Before()
	return g
}

// lost says at once, and for whoever lists the session, that the host has
// ended a protection.
func (g *guard) lost(ctx context.Context, lost guardwatch.Lost) {
	did, may := "replaced", "change"
	if lost.Gone {
		did = "moved or removed"
	}
	if slices.Contains(g.hidden, lost.Path) {
		may = "read"
	}
	path := g.tree.Short(lost.Path)
	line := fmt.Sprintf("warning: %s was %s on the host at %s: since then the session can %s it", path, did, lost.At.Format(time.TimeOnly), may)
	g.mu.Lock()
	g.lines = append(g.lines, line)
	g.mu.Unlock()
	fact := sandbox.Fact{Name: "protected path", Strength: sandbox.Weaker, Detail: line}
	g.saying.Go(func() { // a client that takes nothing must not hold up others
		err := g.l.n.store.UpdateSession(ctx, g.l.id, func(row *store.Session) {
			row.Notices, row.Enforced = append(row.Notices, line), append(row.Enforced, fact)
		})
		if err != nil {
			g.l.n.log.Error("writing a lost protection down", "session", g.l.id, "err", err)
		}
		g.l.mu.Lock()
		g.l.shown.Notices = append(slices.Clone(g.l.shown.Notices), line)
		g.l.mu.Unlock()
		g.l.client.Notice(line)
	})
}

// end returns the closing lines, once it was stopped and the sandbox has gone.
func (g *guard) end(ctx context.Context) []string {
	g.saying.Wait()
	if g.before.IsZero() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), surveyWithin)
	defer cancel()
	left, err := bounded(ctx, g.l.n.o.Times.Patience, func() ([]string, error) { return g.tree.Changes(g.before, g.tree.After(ctx)), nil }, nil)
	if err != nil {
		g.l.n.log.Warn("looking at what a session left", "session", g.l.id, "err", err)
	}
	for _, line := range left {
		g.lines = append(g.lines, "warning: "+line)
	}
	return g.lines
}

// withAll is have with those of more that it lacks.
func withAll(have, more []string) []string {
	for _, line := range more {
		if !slices.Contains(have, line) {
			have = append(have, line)
		}
	}
	return have
}
