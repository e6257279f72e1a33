package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// git runs the real git in dir, with no configuration but the repository's.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// tempDir is a directory by its real path.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// newRepo is a repository with one commit.
func newRepo(t *testing.T, dir string, initArgs ...string) string {
	t.Helper()
	mkdir(t, dir)
	git(t, dir, append([]string{"init", "-q"}, initArgs...)...)
	write(t, filepath.Join(dir, "sub dir", "file"), "x\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	return dir
}

// layouts makes every arrangement that a session may start in.
var layouts = []struct {
	name   string
	layout Layout
	make   func(t *testing.T, dir string) (top string)
}{
	{"plain clone", Main, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		git(t, dir, "clone", "-q", "origin", "clone")
		return dir + "/clone"
	}},
	{"worktree beside", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree inside", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", ".trees/a")
		return dir + "/main/.trees/a"
	}},
	{"worktree of a bare repository", Worktree, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		git(t, dir, "clone", "-q", "--bare", "origin", "bare.git")
		git(t, dir+"/bare.git", "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree with relative pointers", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
		// What git 2.48 writes with --relative-paths; older gits read it.
		write(t, dir+"/a/.git", "gitdir: ../main/.git/worktrees/a\n")
		write(t, dir+"/main/.git/worktrees/a/gitdir", "../../../../a/.git\n")
		return dir + "/a"
	}},
	{"separate git directory", Separate, func(t *testing.T, dir string) string {
		return newRepo(t, dir+"/top", "--separate-git-dir", dir+"/elsewhere.git")
	}},
	{"submodule", Submodule, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		git(t, newRepo(t, dir+"/super"), "submodule", "--quiet", "add", dir+"/lib", "vendor/lib")
		return dir + "/super/vendor/lib"
	}},
	{"worktree with a submodule", Worktree, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		super := newRepo(t, dir+"/super")
		git(t, super, "submodule", "--quiet", "add", dir+"/lib", "lib")
		git(t, super, "commit", "-q", "-m", "sub")
		git(t, super, "worktree", "add", "-q", "../a")
		git(t, dir+"/a", "submodule", "--quiet", "update", "--init")
		return dir + "/a"
	}},
	{"superproject", Main, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		super := newRepo(t, dir+"/super")
		git(t, super, "submodule", "--quiet", "add", dir+"/lib", "lib")
		return super
	}},
	{"no repository", None, func(t *testing.T, dir string) string { return mkdir(t, dir+"/plain/sub dir") + "/.." }},
}

var oddNames = []string{"plain", "with space", `with "quotes' `, "colon:name", "größe-日本語", "dash -rf", "back\\slash"}

// TestB47_EveryLayoutIsFoundAsGitFindsIt compares with git's own answer.
func TestB47_EveryLayoutIsFoundAsGitFindsIt(t *testing.T) {
	for _, l := range layouts {
		for _, name := range oddNames {
			t.Run(l.name+"/"+name, func(t *testing.T) {
				dir := mkdir(t, filepath.Join(tempDir(t), name))
				top := filepath.Clean(l.make(t, dir))
				for _, start := range []string{top, filepath.Join(top, "sub dir")} {
					if _, err := os.Stat(start); err != nil {
						continue
					}
					r, err := Look(start)
					if err != nil {
						t.Fatal(err)
					}
					if l.layout == None {
						if r.Layout != None || r.Top != start {
							t.Fatalf("got %s at %s", r.Layout, r.Top)
						}
						continue
					}
					want := [4]string{
						string(l.layout), git(t, start, "rev-parse", "--show-toplevel"),
						git(t, start, "rev-parse", "--absolute-git-dir"),
						git(t, start, "rev-parse", "--path-format=absolute", "--git-common-dir"),
					}
					got := [4]string{string(r.Layout), r.Top, r.GitDir, r.CommonDir}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("from %s (-git +ours):\n%s", start, diff)
					}
					if r.Dir != start || r.Given != r.Top || len(r.Links) != 0 {
						t.Errorf("Dir %q Given %q Links %v", r.Dir, r.Given, r.Links)
					}
					if _, _, err := sandbox.Guards(r.Tree); err != nil {
						t.Errorf("guards: %v", err)
					}
				}
			})
		}
	}
}
