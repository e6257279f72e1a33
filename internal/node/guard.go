package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	l        *life
	tree     repo.Repository
	before   repo.Survey // once surveyed is closed, as historian
	asks     historian
	surveyed chan struct{}
	hidden   []string
	modes    map[string]fs.FileMode // directories whose rights a session could take
	stop     func()
	saying   sync.WaitGroup

	watched *guardwatch.Watch
	blind   []guardwatch.Missed // what this machine does not let be watched

	mu    sync.Mutex // guards what follows
	lines []string
	begun bool              // the command: until then a loss ends the start
	early []guardwatch.Lost // before
	away  []guardwatch.Lost // missing as the watch began, of what an engine makes
}

// guard begins before the self-check, which finds what was lost earlier.
func (l *life) guard(ctx context.Context, p prepared) *guard {
	g := &guard{l: l, tree: p.repository, stop: func() {}, surveyed: make(chan struct{})}
	if !p.sandboxed {
		close(g.surveyed)
		return g
	}
	g.noteModes(p.spec.Protect)
	for _, h := range p.repository.Hide {
		g.hidden = append(g.hidden, h.Path)
	}
	ctx = context.WithoutCancel(ctx)
	g.watch(ctx, p.spec)
	seen := g.watchSockets(ctx, p.spec)
	g.stop = func() {
		g.giveBack(ctx)
		g.watched.Stop()
		seen()
	}
	// A large tree takes a while, and nothing runs in it before the self-check
	// has passed.
	g.saying.Go(func() {
		defer close(g.surveyed)
		g.before = p.repository.Before()
		g.asks = historian{l.n, l.caller, p.repository, p.policy.Protect, p.repository.Refs()}
	})
	return g
}

// watch begins to notice what the host takes away. What does not stand any more
// at this moment is lost already.
func (g *guard) watch(ctx context.Context, spec sandbox.Spec) {
	paths, made := slices.Clone(g.hidden), []string(nil)
	for _, p := range spec.Protect {
		path := onHost(spec, p.Path)
		switch {
		case p.Guard == sandbox.Thaw || path == "":
		case p.Guard == sandbox.Freeze || p.Guard == sandbox.Pin:
			paths = append(paths, path)
		case p.Guard == sandbox.Shelter:
			made = append(made, path, sandbox.ShelterDir(path))
		default:
			made = append(made, path)
		}
	}
	var missed []guardwatch.Missed
	g.watched, missed = g.l.n.guards.Watch(append(paths, made...), func(lost guardwatch.Lost) { g.lost(ctx, lost) })
	for _, m := range missed {
		g.l.n.log.Warn("a protected path is not watched", "session", g.l.id, "path", m.Path, "err", m.Err)
		gone := guardwatch.Lost{Path: m.Path, At: time.Now(), Gone: true}
		away := errors.Is(m.Err, fs.ErrNotExist) || errors.Is(m.Err, syscall.ENOTDIR)
		switch {
		case !away:
			g.blind = append(g.blind, m)
		case slices.Contains(made, m.Path):
			// What could not be sheltered the engine says. Whether all that it
			// made still stands is its self-check's to find.
			g.away = append(g.away, gone)
		default:
			g.lost(ctx, gone)
		}
	}
}

// held says which protection was lost before the command has begun, if any was:
// with words, only one that they name.
func (g *guard) held(words string) error {
	if g == nil {
		return nil
	}
	g.watched.Examine()
	g.mu.Lock()
	defer g.mu.Unlock()
	all := g.early
	if words != "" {
		all = slices.Concat(all, g.away)
	}
	for _, lost := range all {
		if words != "" && !strings.Contains(words, lost.Path) {
			continue
		}
		to := "protect"
		if slices.Contains(g.hidden, lost.Path) {
			to = "hide"
		}
		_, err := os.Lstat(lost.Path)
		return lostWhileStarting(lost.Path, lost.Gone && err != nil, to)
	}
	return nil
}

// begin says what could not be said before the command has begun, and from then
// on all that is lost at once.
func (g *guard) begin(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	g.mu.Lock()
	g.begun = true
	early := g.early
	g.mu.Unlock()
	if len(g.blind) > 0 {
		var claims []string
		for _, m := range g.blind {
			if !slices.Contains(g.hidden, m.Path) {
				claims = withAll(claims, sandbox.Claims(g.tree.Tree, m.Path))
			}
		}
		first := g.blind[0]
		line := fmt.Sprintf("warning: %s", g.tree.Short(first.Path))
		if n := len(g.blind) - 1; n > 0 {
			line += fmt.Sprintf(" and %d more", n)
		}
		g.say(ctx, line+" cannot be watched: nobody will say so if a program of the host replaces what is protected, which ends its protection; "+unwatchable(first.Err), claims)
	}
	for _, lost := range early {
		g.tell(ctx, lost)
	}
}

// unwatchable is why, in words, where the kernel's own mislead.
func unwatchable(err error) string {
	switch {
	case errors.Is(err, syscall.ENOSPC):
		return "this user has as many watches of inotify as fs.inotify.max_user_watches allows"
	case errors.Is(err, syscall.EMFILE):
		return "this user has as many instances of inotify as fs.inotify.max_user_instances allows, or the node as many open files as it may"
	}
	return err.Error()
}

// lost keeps what the host ended before the command has begun, and tells what
// it ends later.
func (g *guard) lost(ctx context.Context, lost guardwatch.Lost) {
	g.mu.Lock()
	begun := g.begun
	if !begun {
		g.early = append(g.early, lost)
	}
	g.mu.Unlock()
	if begun {
		g.tell(ctx, lost)
	}
}

// tell says at once, and for whoever lists the session, that the host has
// ended a protection.
func (g *guard) tell(ctx context.Context, lost guardwatch.Lost) {
	did, may := "replaced", "change"
	if lost.Gone {
		did = "moved or removed"
	}
	if slices.Contains(g.hidden, lost.Path) {
		may = "read"
		if info, err := os.Lstat(lost.Path); err == nil && info.Mode().Type() == fs.ModeSocket {
			may = "connect to"
		}
	}
	path := g.tree.Short(lost.Path)
	line := fmt.Sprintf("warning: %s was %s on the host at %s: since then the session can %s it", path, did, lost.At.Format(time.TimeOnly), may)
	var claims []string
	if may == "change" {
		claims = sandbox.Claims(g.tree.Tree, lost.Path)
	}
	g.say(ctx, line, claims)
}

// noteModes remembers who may do what with the directories that a session
// cannot rename, outermost first: it can still take the rights to them.
func (g *guard) noteModes(protect []sandbox.Protection) {
	g.modes = map[string]fs.FileMode{}
	note := func(dir string) {
		if info, err := os.Lstat(dir); err == nil && info.IsDir() && ownDirectory(dir, os.Geteuid()) {
			g.modes[dir] = info.Mode()
		}
	}
	for _, dir := range []string{g.tree.Top, g.tree.CommonDir, g.tree.GitDir} {
		note(dir)
	}
	for _, p := range protect {
		if p.Guard == sandbox.Pin || p.Guard == sandbox.Thaw {
			note(p.Path)
		}
	}
}

// giveBack gives the owner the rights again that a session took from the
// directories of its own tree. Without them nothing could be tidied up there.
func (g *guard) giveBack(ctx context.Context) {
	for _, dir := range slices.Sorted(maps.Keys(g.modes)) {
		info, err := os.Lstat(dir)
		if err != nil || !info.IsDir() {
			continue
		}
		missing := g.modes[dir] & 0o700 &^ info.Mode()
		if missing == 0 {
			continue
		}
		if err := os.Chmod(dir, info.Mode()|missing); err != nil {
			g.l.n.log.Warn("giving rights back", "session", g.l.id, "path", dir, "err", err)
			continue
		}
		g.say(ctx, fmt.Sprintf("warning: the owner's rights to %s had been taken (mode %04o): they were given back", g.tree.Short(dir), info.Mode().Perm()), nil)
	}
}

// say tells a line to the client and whoever lists the session, and makes the
// claims that it contradicts weaker.
func (g *guard) say(ctx context.Context, line string, claims []string) {
	g.mu.Lock()
	g.lines = append(g.lines, line)
	g.mu.Unlock()
	g.saying.Go(func() { // a client that takes nothing must not hold up others
		var enforced sandbox.Enforced
		err := g.l.n.store.UpdateSession(ctx, g.l.id, func(row *store.Session) {
			row.Notices, row.Enforced = append(row.Notices, line), weakened(row.Enforced, claims, line)
			enforced = row.Enforced
		})
		if err != nil {
			g.l.n.log.Error("writing down what the host should know", "session", g.l.id, "err", err)
		}
		g.l.mu.Lock()
		g.l.shown.Notices = append(slices.Clone(g.l.shown.Notices), line)
		if len(claims) > 0 && err == nil {
			g.l.shown.Enforced = (&store.Session{Enforced: enforced}).API().Enforced
		}
		g.l.mu.Unlock()
		g.l.client.Notice(line)
	})
}

// maxDetail is how long, in bytes, what a fact says may get by reasons.
const maxDetail = 1000

// weakened are the facts with those of these names weaker for one more reason.
func weakened(facts sandbox.Enforced, claims []string, why string) sandbox.Enforced {
	out := slices.Clone(facts)
	for i, f := range out {
		if slices.Contains(claims, f.Name) {
			out[i].Strength = sandbox.Weaker
			if len(f.Detail) < maxDetail {
				out[i].Detail += "; but " + strings.TrimPrefix(why, "warning: ")
			}
		}
	}
	return out
}

// end says what the session left, once the guard was stopped and the sandbox
// has gone: the closing lines are in what it returns.
func (g *guard) end(ctx context.Context) history {
	g.saying.Wait()
	<-g.surveyed
	if g.before.IsZero() {
		return history{}
	}
	ctx = context.WithoutCancel(ctx)
	left := history{}
	for _, look := range []struct {
		within time.Duration
		at     func(context.Context) history
	}{
		{surveyWithin, func(ctx context.Context) history {
			return history{lines: g.tree.Changes(g.before, g.tree.After(ctx))}
		}},
		{seatWithin + historyWithin, g.asks.tell},
	} {
		soon, cancel := context.WithTimeout(ctx, look.within)
		found, err := bounded(soon, g.l.n.o.Times.Patience, func() (history, error) { return look.at(soon), nil }, nil)
		cancel()
		if err != nil {
			g.l.n.log.Warn("looking at what a session left", "session", g.l.id, "err", err)
		}
		for _, line := range found.lines {
			g.lines = append(g.lines, "warning: "+line)
		}
		left.commits, left.references = found.commits, found.references
	}
	left.lines = g.lines
	return left
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
