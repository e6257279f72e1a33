package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// sheltered is a Spec in which both configuration files of git are.
func (w *world) sheltered() (spec sandbox.Spec, config string) {
	spec, config = w.spec(), filepath.Join(w.repo, ".git", "config")
	spec.Protect[1].Guard = sandbox.Shelter
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: config + ".worktree", Guard: sandbox.Shelter})
	return spec, config
}

// asBefore wants a plain configuration with this content and nothing beside it.
func (w *world) asBefore(when, content string) {
	w.tb.Helper()
	git := filepath.Join(w.repo, ".git")
	entries, err := os.ReadDir(git)
	check(w.tb, err)
	names := []string{}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	got, err := os.ReadFile(filepath.Join(git, "config"))
	check(w.tb, err)
	info, err := os.Lstat(filepath.Join(git, "config"))
	check(w.tb, err)
	if strings.Join(names, " ") != "config hooks" || string(got) != content || !info.Mode().IsRegular() {
		w.tb.Errorf("%s: .git holds %q, config is %v with %q", when, names, info.Mode(), got)
	}
}

// replace is what git does to a file, link or not.
func replace(t *testing.T, path, content string) {
	t.Helper()
	real, err := filepath.EvalSymlinks(path)
	check(t, err)
	check(t, os.WriteFile(real+".lock", []byte(content), 0o644))
	check(t, os.Rename(real+".lock", real))
}

// cannotChange tries from inside what must not work.
func cannotChange(t *testing.T, b sandbox.Sandbox, when, config string) {
	t.Helper()
	for _, script := range []string{"echo x >> %s", "rm -f %s", "mv %s /tmp/x", "echo > /tmp/x; mv -f /tmp/x %s", "ln -sf x %s", "mv %s.held /tmp/x", "echo x > %s.held/new", "echo x > %s.worktree", "rm -f %s.worktree", "ln -sf x %s.worktree"} {
		if _, exit := sh(t, b, fmt.Sprintf(script, config)); exit.Code == 0 {
			t.Errorf("%s: "+script+" worked", when, config)
		}
	}
}

func TestShelterIsSharedAndTakenBack(t *testing.T) {
	w := newWorld(t)
	spec, config := w.sheltered()
	first := open(t, spec)
	other := spec
	other.ID += "b"
	second := open(t, other)
	cannotChange(t, first, "first", config)
	cannotChange(t, second, "second", config)
	check(t, first.Remove(soon(t)))
	for i := range 3 {
		replace(t, config, fmt.Sprintf("[core]\n# %d\n", i))
		cannotChange(t, second, "after the first and a replacement", config)
	}
	if out, _ := sh(t, second, "cat "+config); out != "[core]\n# 2\n" {
		t.Errorf("inside it says %q", out)
	}
	check(t, os.WriteFile(config+".worktree", []byte("x"), 0o644)) // through the link
	check(t, second.Remove(soon(t)))
	got, err := os.ReadFile(config + ".worktree")
	if err != nil || string(got) != "x" {
		t.Errorf("what the host made meanwhile: %q, %v", got, err)
	}
	check(t, os.Remove(config+".worktree"))
	w.asBefore("after both", "[core]\n# 2\n")
}

// TestShelterOfADeadNode: its move is adopted by the next sandbox, and taken
// back by the last or by a sweep.
func TestShelterOfADeadNode(t *testing.T) {
	for _, half := range []bool{false, true} { // it died between the two steps
		w := newWorld(t)
		spec, config := w.sheltered()
		check(t, os.Mkdir(config+".held", 0o755))
		check(t, os.Link(config, config+".held/config"))
		if !half {
			check(t, os.Remove(config))
			check(t, os.Symlink("config.held/config", config))
		}
		check(t, os.Chown(config+".held", w.id.UID, w.id.GID))
		e := engine(t)
		undo := e.Undo(spec)
		b := open(t, spec)
		cannotChange(t, b, "adopted", config)
		for _, u := range undo[1:] {
			if did, err := e.Sweep(soon(t), u); err != nil || did != "" {
				t.Errorf("a sweep while it lives: %q, %v", did, err)
			}
		}
		cannotChange(t, b, "after a sweep", config)
		check(t, b.Remove(soon(t)))
		w.asBefore(fmt.Sprint("adopted, half ", half), "[core]\n")

		check(t, os.Mkdir(config+".held", 0o755))
		check(t, os.Link(config, config+".held/config"))
		if !half {
			check(t, os.Remove(config))
			check(t, os.Symlink("config.held/config", config))
		}
		for _, u := range undo {
			_, err := e.Sweep(soon(t), u)
			check(t, err)
		}
		w.asBefore(fmt.Sprint("swept, half ", half), "[core]\n")
	}
}

// TestShelterLeavesWhatTheHostPutThere: a file in place of the link counts.
func TestShelterLeavesWhatTheHostPutThere(t *testing.T) {
	w := newWorld(t)
	spec, config := w.sheltered()
	b := open(t, spec)
	check(t, os.WriteFile(config+".new", []byte("new"), 0o644))
	check(t, os.Rename(config+".new", config))
	check(t, b.Remove(soon(t)))
	w.asBefore("replaced", "new")

	// Where it took the link away, the file comes back.
	w = newWorld(t)
	spec, config = w.sheltered()
	b = open(t, spec)
	check(t, os.Remove(config))
	check(t, b.Remove(soon(t)))
	w.asBefore("removed", "[core]\n")
}

// TestCheckLeavesTheHostsFileAlone: a file that the host puts in place of the
// link is told and not moved, not even for a moment. A sandbox that ended in
// that moment left it under another name.
func TestCheckLeavesTheHostsFileAlone(t *testing.T) {
	w := newWorld(t)
	spec, config := w.sheltered()
	b := open(t, spec)
	check(t, os.WriteFile(config+".new", []byte("new"), 0o644))
	check(t, os.Rename(config+".new", config))
	_, _ = b.Check(soon(t)) // the one that began with the sandbox, before or after the file came
	var before, after unix.Stat_t
	check(t, unix.Lstat(config, &before))
	_, err := b.Check(soon(t))
	var broken *CheckError
	if !errors.As(err, &broken) || !strings.Contains(err.Error(), "nothing keeps "+config) {
		t.Errorf("got %v, want a CheckError about %s", err, config)
	}
	check(t, unix.Lstat(config, &after))
	if before.Ino != after.Ino || before.Ctim != after.Ctim { // the time tells a renaming
		t.Errorf("the host's file was touched: %+v, before %+v", after, before)
	}
	check(t, b.Remove(soon(t)))
	w.asBefore("checked", "new")
}

func TestShelterWaitsForGit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	spec, config := w.sheltered()
	check(t, os.WriteFile(config+".lock", nil, 0o644))
	var locked *LockedError
	if _, err := engine(t).Prepare(soon(t), spec); !errors.As(err, &locked) || locked.Hint() == "" {
		t.Fatalf("got %v", err)
	}
	check(t, os.Remove(config+".lock"))
	w.asBefore("refused", "[core]\n")

	// At the end it stays as it is while git is at it, and the undo with it.
	b := open(t, spec)
	check(t, os.WriteFile(config+".held/config.lock", nil, 0o644))
	if err := b.Remove(soon(t)); !errors.As(err, &locked) {
		t.Errorf("got %v", err)
	}
	check(t, os.Remove(config+".held/config.lock"))
	for _, u := range engine(t).Undo(spec) {
		_, err := engine(t).Sweep(soon(t), u)
		check(t, err)
	}
	w.asBefore("later", "[core]\n")
}

// TestShelterOfWhatCannotBeMoved: protected where it is, which is said.
func TestShelterOfWhatCannotBeMoved(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wanted root, to make a file of somebody else, found user", os.Geteuid())
	}
	if on, err := os.ReadFile("/proc/sys/fs/protected_hardlinks"); err != nil || string(on) != "1\n" {
		t.Skipf("wanted fs.protected_hardlinks=1, found %q", on)
	}
	w := newWorld(t)
	spec, config := w.sheltered()
	check(t, os.Chown(config, 0, 0))
	b := open(t, spec)
	enforced, err := b.Check(soon(t))
	check(t, err)
	said := false
	for _, f := range enforced {
		said = said || f.Strength == sandbox.Weaker && strings.Contains(f.Detail, config+" ")
	}
	if !said {
		t.Errorf("nothing says that it is weaker: %+v", enforced)
	}
	if _, exit := sh(t, b, "rm -f "+config+" || mv "+config+" /tmp/x || echo x >> "+config); exit.Code == 0 {
		t.Error("it could be changed")
	}
	check(t, b.Remove(soon(t)))
	w.asBefore("not moved", "[core]\n")
}

// TestShelterRefuses what is no plain file of one name.
func TestShelterRefuses(t *testing.T) {
	for name, make := range map[string]func(config string) error{
		"a link elsewhere":  func(c string) error { return errors.Join(os.Remove(c), os.Symlink("hooks/x", c)) },
		"a directory":       func(c string) error { return errors.Join(os.Remove(c), os.Mkdir(c, 0o755)) },
		"a second name":     func(c string) error { return os.Link(c, filepath.Dir(c)+"/hooks/second") },
		"a file in its way": func(c string) error { return os.WriteFile(c+".held", nil, 0o644) },
	} {
		w := newWorld(t)
		spec, config := w.sheltered()
		check(t, make(config))
		b, err := engine(t).Prepare(soon(t), spec)
		if err == nil {
			_ = b.Remove(soon(t))
			t.Errorf("%s was accepted", name)
		}
		var stage *child.StageError
		if errors.As(err, &stage) {
			t.Errorf("%s was found by the helper only: %v", name, err)
		}
		if _, err := os.Lstat(config + ".held/config"); !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.ENOTDIR) {
			t.Errorf("%s: something is left: %v", name, err)
		}
	}
}
