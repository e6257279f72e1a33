package native

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// marksOf counts what bears this sandbox's mark, by kind.
func marksOf(t *testing.T, e *Engine, id string) map[string]int {
	t.Helper()
	all, err := e.Marked(t.Context())
	check(t, err)
	out := map[string]int{}
	for _, m := range all {
		if m.Sandbox == id {
			out[m.Kind]++
		}
	}
	return out
}

// remaining lists what a look at every act of a sandbox's undo finds.
func remaining(t *testing.T, e *Engine, undo []sandbox.Undo) (paths []string, inUse int) {
	t.Helper()
	for _, u := range undo {
		found, err := e.Remains(t.Context(), u)
		check(t, err)
		for _, m := range found {
			paths = append(paths, m.Kind+" "+filepath.Base(m.Path))
			if m.InUse {
				inUse++
			}
		}
	}
	slices.Sort(paths)
	return paths, inUse
}

// TestT9_EverythingBearsAMark: whatever a sandbox has outside is found by it
// while it lives, and nothing once it is gone. Looking takes no lock: it would
// keep the placeholders from being taken away.
func TestT9_EverythingBearsAMark(t *testing.T) {
	w := newWorld(t)
	spec, config := w.sheltered()
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: filepath.Join(w.repo, ".mojoup"), Guard: sandbox.HoldDir}, sandbox.Protection{Path: filepath.Join(w.repo, ".git", "commondir"), Guard: sandbox.HoldFile, Content: "."})
	spec.Limits = sandbox.Limits{Memory: 64 << 20, Processes: 40}
	e := engine(t)
	b := open(t, spec)
	undo := e.Undo(spec)
	groups := len(e.groups.Paths(spec.ID, wants(spec)))
	if got := marksOf(t, e, spec.ID); got[sandbox.TraceProcess] != 2 || got[sandbox.TraceGroup] != groups {
		t.Errorf("while it lives %v bears its mark, not 2 processes and %d groups", got, groups)
	}
	got, inUse := remaining(t, e, undo)
	if want := 2 + groups + 4; len(got) != want || inUse != 4 {
		t.Errorf("while it lives %q remain, %d in use; not %d and 4", got, inUse, want)
	}
	check(t, b.Remove(soon(t)))
	if got := marksOf(t, e, spec.ID); len(got) != 0 {
		t.Errorf("afterwards %v bears its mark", got)
	}
	if got, _ := remaining(t, e, undo); len(got) != 0 {
		t.Errorf("afterwards %q remain", got)
	}

	// What a dead node leaves is found and in nobody's use; what a person made
	// in its place is not taken for it.
	check(t, unix.Mkdir(filepath.Join(w.repo, ".mojoup"), 0o700|unix.S_ISVTX))
	check(t, os.WriteFile(filepath.Join(w.repo, ".git", "commondir"), []byte("."), 0o644))
	check(t, os.Symlink("config.worktree.held/config.worktree", config+".worktree"))
	if got, inUse := remaining(t, e, undo); len(got) != 3 || inUse != 0 {
		t.Errorf("of a dead one %q remain, %d in use", got, inUse)
	}
	check(t, os.Chmod(filepath.Join(w.repo, ".mojoup"), 0o700))
	check(t, os.WriteFile(filepath.Join(w.repo, ".git", "commondir"), []byte(".."), 0o644))
	check(t, os.Remove(config+".worktree"))
	check(t, os.WriteFile(config+".worktree", nil, 0o644))
	if got, _ := remaining(t, e, undo); len(got) != 0 {
		t.Errorf("of a person's own %q remain", got)
	}
}
