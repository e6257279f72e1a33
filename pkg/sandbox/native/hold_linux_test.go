package native

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// TestTakenRightsLeaveTheUndo: a session that takes the rights from its own
// tree, at the top or in .git, must not have its residue forgotten.
func TestTakenRightsLeaveTheUndo(t *testing.T) {
	if os.Geteuid() == 0 {
		asNobody(t)
		return
	}
	for _, taken := range []string{"", ".git"} {
		for _, mode := range []os.FileMode{0, 0o400, 0o600, 0o500} {
			if taken == "" && mode == 0o500 {
				continue // nothing has to be written at the top here
			}
			top := filepath.Join(t.TempDir(), "repo")
			git := filepath.Join(top, ".git")
			check(t, os.MkdirAll(git, 0o755))
			check(t, os.WriteFile(filepath.Join(git, "config"), []byte("x"), 0o644))
			spec := sandbox.Spec{
				Mounts: []sandbox.Mount{{Kind: sandbox.Bind, Source: top, Target: top, Access: sandbox.ReadWrite}},
				Protect: []sandbox.Protection{
					{Path: filepath.Join(git, "config"), Guard: sandbox.Shelter}, {Path: filepath.Join(git, "hooks"), Guard: sandbox.HoldDir},
					{Path: filepath.Join(git, "commondir"), Guard: sandbox.HoldFile, Content: "."},
				},
			}
			held, err := holdAll(t.Context(), spec, nil)
			check(t, err)
			in := filepath.Join(top, taken)
			check(t, os.Chmod(in, mode))
			for i := len(held) - 1; i >= 0; i-- {
				if _, err := held[i].release(t.Context()); !errors.Is(err, unix.EACCES) {
					t.Errorf("%q with mode %o: the release of %s says %v", taken, mode, held[i].path, err)
				}
			}
			e := &Engine{groups: &cgroup.Host{}}
			undo := e.Undo(spec)
			for _, u := range undo {
				if u.Kind == undoHelper {
					continue
				}
				if did, err := e.Sweep(t.Context(), u); !errors.Is(err, unix.EACCES) {
					t.Errorf("%q with mode %o: a sweep of %s says %q, %v", taken, mode, u.Path, did, err)
				}
			}
			check(t, os.Chmod(in, 0o755))
			for _, u := range undo {
				if u.Kind == undoHelper {
					continue
				}
				if did, err := e.Sweep(t.Context(), u); did == "" || err != nil {
					t.Errorf("%q: a later sweep of %s says %q, %v", taken, u.Path, did, err)
				}
			}
			names := []string{}
			entries, err := os.ReadDir(git)
			check(t, err)
			for _, e := range entries {
				names = append(names, e.Name())
			}
			if info, err := os.Lstat(filepath.Join(git, "config")); strings.Join(names, " ") != "config" || err != nil || !info.Mode().IsRegular() {
				t.Errorf("%q with mode %o: left are %q", taken, mode, names)
			}
		}
	}
}

// asNobody runs this test again with a user's rights: root has all.
func asNobody(t *testing.T) {
	t.Helper()
	self, err := os.ReadFile("/proc/self/exe")
	check(t, err)
	bin := filepath.Join(t.TempDir(), "test")
	check(t, os.WriteFile(bin, self, 0o755))
	for dir := filepath.Dir(bin); dir != os.TempDir() && dir != "/"; dir = filepath.Dir(dir) {
		check(t, os.Chmod(dir, 0o755))
	}
	cmd := exec.CommandContext(t.Context(), bin, "-test.run", "^"+t.Name()+"$", "-test.v")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
		t.Errorf("as nobody: %v\n%s", err, out)
	}
}

// TestProtectedInParts: what is protected in one directory is carried out while
// the next one's placeholders are made, and then as well as the rest.
func TestProtectedInParts(t *testing.T) {
	w := newWorld(t)
	w.write("kept", "x")
	in := func(p string) string { return filepath.Join(w.repo, p) }
	spec := w.spec()
	spec.Protect = []sandbox.Protection{
		{Path: in(".git"), Guard: sandbox.Pin},
		{Path: in(".git/config"), Guard: sandbox.Shelter},
		{Path: in(".git/hooks"), Guard: sandbox.Freeze},
		{Path: in(".git/commondir"), Guard: sandbox.HoldFile, Content: "."},
		{Path: in(".git/modules"), Guard: sandbox.HoldDir},
		{Path: in("kept"), Guard: sandbox.Freeze},
		{Path: in(".vscode"), Guard: sandbox.HoldDir},
		{Path: in(".idea"), Guard: sandbox.HoldDir},
	}
	for held, want := range []int{1, 3, 4, 6, 7, len(spec.Protect)} {
		if got := standing(spec, held); got != want {
			t.Errorf("on %d placeholders stand the first %d protections, not %d", held, want, got)
		}
	}
	var parts []int
	held, err := holdAll(t.Context(), spec, func(held []*hold) error { parts = append(parts, len(held)); return nil })
	check(t, err)
	for i := len(held) - 1; i >= 0; i-- {
		_, err := held[i].release(t.Context())
		check(t, err)
	}
	if len(parts) != 1 || parts[0] != 3 {
		t.Errorf("heard of %v placeholders that stand, not of 3", parts)
	}
	b := open(t, spec)
	_, err = b.Check(soon(t))
	check(t, err)
	out, _ := sh(t, b, "cd "+w.repo+`; for p in .git/config .git/hooks/x .git/commondir .git/modules/x kept .vscode/x .idea/x; do
: 2>/dev/null >$p && echo $p written; mv ${p%/x} gone 2>/dev/null && echo ${p%/x} moved; done; true`)
	if out != "" {
		t.Errorf("inside: %s", out)
	}
}

// TestLostBeforeAnyoneWatched: what the host replaces once a sandbox stands has no
// mount on it any more. The look at that comes after the way out has answered, so
// that whoever watches the host begins before it.
func TestLostBeforeAnyoneWatched(t *testing.T) {
	for _, name := range []string{"frozen", "pinned", "hidden", "held"} {
		w := newWorld(t)
		in := func(p string) string { return filepath.Join(w.repo, p) }
		w.write("frozen", "x")
		w.write("hidden", "x")
		check(t, os.Mkdir(in("pinned"), 0o755))
		spec := w.spec()
		spec.Protect = []sandbox.Protection{{Path: in("frozen"), Guard: sandbox.Freeze}, {Path: in("pinned"), Guard: sandbox.Pin}, {Path: in("held"), Guard: sandbox.HoldDir}}
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Text, Target: in("hidden")})
		b, err := engine(t).Prepare(soon(t), spec)
		check(t, err)
		check(t, os.Rename(in(name), in("away")))
		check(t, os.Mkdir(in(name), 0o755))
		go serve(b.Listener())
		if _, err := b.Check(soon(t)); err == nil || !strings.Contains(err.Error(), "nothing is mounted on "+in(name)+" any more") {
			t.Errorf("%s: %v", name, err)
		}
		check(t, b.Listener().Close())
		check(t, b.Remove(soon(t)))
	}
}
