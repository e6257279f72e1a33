package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/hostsocket"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// hideSockets hides the sockets that programs of the host have in a repository
// now: a session that is let see one can connect to it, whatever mount it sees
// it through. It returns a line for each.
func (n *Node) hideSockets(r *repo.Repository) []string {
	all, err := hostsocket.List()
	if err != nil {
		n.log.Warn("sockets of the host are not looked for", "err", err)
		return nil
	}
	var lines []string
	for _, path := range hostsocket.Below(all, trees(*r)) {
		if slices.ContainsFunc(r.Hide, func(h repo.Hidden) bool { return path == h.Path || strings.HasPrefix(path, h.Path+"/") }) {
			continue
		}
		r.Hide = append(r.Hide, repo.Hidden{Path: path})
		lines = append(lines, fmt.Sprintf("a program of the host listens at %s: it is hidden from the session", r.Short(path)))
	}
	return lines
}

// trees are the directories of a repository, without those that lie in others.
func trees(r repo.Repository) []string {
	out := []string{r.Top}
	for _, dir := range []string{r.CommonDir, r.GitDir} {
		if dir != "" && !slices.ContainsFunc(out, func(o string) bool { return dir == o || strings.HasPrefix(dir, o+"/") }) {
			out = append(out, dir)
		}
	}
	return out
}

// watchSockets names the sockets of the host that appear where the session can
// reach them, until the returned function is called.
func (g *guard) watchSockets(ctx context.Context, spec sandbox.Spec) (stop func()) {
	dirs := trees(g.tree)
	for _, m := range spec.Mounts {
		if m.Kind == sandbox.Bind && m.Source == m.Target && !slices.Contains(dirs, m.Source) {
			dirs = append(dirs, filepath.Clean(m.Source))
		}
	}
	return g.l.n.sockets.Watch(dirs, g.hidden, func(path string) {
		if g.l.n.socketsHeld(ctx, g.l) {
			return
		}
		g.say(ctx, fmt.Sprintf("warning: a program of the host listens at %s, seen at %s: the session can connect to it", g.tree.Short(path), time.Now().Format(time.TimeOnly)), []string{sandbox.FactHostSockets})
	})
}

// socketsHeld reports whether the session's engine keeps it from sockets of the
// host anyway.
func (n *Node) socketsHeld(ctx context.Context, l *life) bool {
	row, err := n.store.Session(ctx, l.id)
	return err == nil && slices.ContainsFunc(row.Enforced, func(f sandbox.Fact) bool {
		return f.Name == sandbox.FactHostSockets && f.Strength == sandbox.Held
	})
}
