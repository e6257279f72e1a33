package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestHeadIsGits compares with what git says, in every place where a ref may lie.
func TestHeadIsGits(t *testing.T) {
	top := filepath.Join(t.TempDir(), "r")
	run := func(dir string, args ...string) string {
		t.Helper()
		cmd := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=a", "-c", "user.email=a@b"}, args...)...)
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("git %v: %v", args, err)
		}
		return strings.TrimSpace(string(out))
	}
	run(".", "init", "-q", top)
	same := func(where, dir string) {
		t.Helper()
		r, err := Look(dir)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := r.Head(), run(dir, "rev-parse", "HEAD"); got != want {
			t.Errorf("%s: %q, git says %q", where, got, want)
		}
	}
	r, err := Look(top)
	if err != nil || r.Head() != "" {
		t.Errorf("no commit yet: %q, %v", r.Head(), err)
	}
	run(top, "commit", "-q", "--allow-empty", "-m", "one")
	same("loose", top)
	run(top, "pack-refs", "--all")
	same("packed", top)
	linked := filepath.Join(filepath.Dir(top), "linked")
	run(top, "worktree", "add", "-q", "-b", "other", linked)
	run(linked, "commit", "-q", "--allow-empty", "-m", "two")
	same("linked worktree", linked)
	run(top, "checkout", "-q", "--detach")
	same("detached", top)

	for _, bad := range []string{"ref: /etc/passwd", "ref: refs/../../x", "ref: ", "xyz", "ref: refs/heads/none"} {
		if err := os.WriteFile(filepath.Join(top, ".git", "HEAD"), []byte(bad), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := r.Head(); got != "" {
			t.Errorf("%q gives %q", bad, got)
		}
	}
}
