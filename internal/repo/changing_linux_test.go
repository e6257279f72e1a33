package repo

import (
	"errors"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestD23_PlaceholdersAreKnownByTheirMark: also in the moment in which nobody
// has locked one, as between making and locking, or after a death. A person's
// own empty directory is never taken for one, and looking locks nothing that
// its maker needs for taking it away.
func TestD23_PlaceholdersAreKnownByTheirMark(t *testing.T) {
	top := tempDir(t)
	ours, own := filepath.Join(top, ".vscode"), filepath.Join(top, ".idea")
	must(t, unix.Mkdir(ours, 0o700|unix.S_ISVTX))
	must(t, unix.Mkdir(own, 0o700))
	f, err := os.Open(ours)
	must(t, err)
	defer f.Close()
	for _, locked := range []bool{false, true} {
		if locked {
			must(t, unix.Flock(int(f.Fd()), unix.LOCK_SH))
		}
		r, err := Look(top)
		must(t, err)
		if e := r.Tree.At[ours]; e.Is != sandbox.Directory || !e.Held {
			t.Errorf("locked %v: a placeholder is %+v", locked, e)
		}
		if e := r.Tree.At[own]; e.Is != sandbox.Directory || e.Held {
			t.Errorf("locked %v: a person's own is %+v", locked, e)
		}
	}
	write(t, filepath.Join(ours, "tasks.json"), "{}")
	r, err := Look(top)
	must(t, err)
	if r.Tree.At[ours].Held {
		t.Error("what somebody put something into counts as a placeholder")
	}
}

// TestD23_LookingWhileFilesMove does what sessions do that begin and end in
// the tree, as fast as it goes: whoever looks meanwhile neither refuses the
// repository nor misses what its configuration says.
func TestD23_LookingWhileFilesMove(t *testing.T) {
	top := tempDir(t)
	git(t, top, "init", "-q")
	git(t, top, "config", "core.hooksPath", "hooks-of-the-tree")
	mkdir(t, filepath.Join(top, "hooks-of-the-tree"))
	config, held, code := filepath.Join(top, ".git", "config"), filepath.Join(top, ".git", "config.held"), filepath.Join(top, ".vscode")
	var stop atomic.Bool
	moved := make(chan error, 1)
	go func() {
		var errs []error
		for !stop.Load() && errors.Join(errs...) == nil {
			errs = append(errs[:0],
				unix.Mkdir(code, 0o700|unix.S_ISVTX), unix.Mkdir(held, 0o755),
				os.Symlink("config.held/config", held+"/.link"), os.Link(config, held+"/config"), os.Rename(held+"/.link", config),
				os.Rename(held+"/config", config), os.Remove(held), os.Remove(code))
		}
		moved <- errors.Join(errs...)
	}()
	target := filepath.Join(top, "hooks-of-the-tree")
	looks := 0
	for end := time.Now().Add(400 * time.Millisecond); time.Now().Before(end); looks++ {
		r, err := Look(top)
		if err != nil {
			t.Errorf("look %d: %v", looks, err)
			break
		}
		if e := r.Tree.At[code]; e.Is == sandbox.Directory && !e.Held {
			t.Errorf("look %d: a placeholder that comes and goes is %+v", looks, e)
		}
		if e := r.Tree.At[config]; e.Shared != "" || e.Is != sandbox.RegularFile {
			t.Errorf("look %d: the configuration is %+v", looks, e)
		}
		if _, ok := r.Tree.At[target]; !ok {
			t.Errorf("look %d: what the configuration names was missed", looks)
		}
		if t.Failed() {
			break
		}
	}
	stop.Store(true)
	must(t, <-moved)
	t.Logf("looked %d times", looks)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
