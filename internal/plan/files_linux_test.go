package plan_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// writeAll makes files below dir.
func writeAll(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// refused tries scripts inside, each of which must fail.
func (s *session) refused(when string, scripts ...string) {
	s.t.Helper()
	for _, script := range scripts {
		if out, code := s.sh(script); code == 0 {
			s.t.Errorf("%s%s worked: %s", when, script, out)
		}
	}
}

// renaming is the system call alone: mv copies and deletes where it is refused.
func renaming(from, to string) string {
	return fmt.Sprintf("perl -e 'rename(%q, %q) or exit 1'", from, to)
}

// TestPolicyProtectsAndHides: patterns hold what is there at the start, and
// what is missing where a path is named without wildcards.
func TestPolicyProtectsAndHides(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		t.Run(p.name, func(t *testing.T) {
			dir := p.place(t)
			top := newRepo(t, dir+"/repo")
			writeAll(t, top, map[string]string{
				"tracked.pem": "PUBLIC\n", ".env": "SECRET=1\n", ".gitignore": ".env\nkeys\n", "keys/a/key.pem": "SECRET\n", "deploy/prod.yml": "x\n", "deploy/stage.yml": "x\n", "src/a/Makefile": "all:\n", "src/b/Makefile": "all:\n",
			})
			if err := os.Symlink("keys/a/key.pem", top+"/shortcut"); err != nil {
				t.Fatal(err)
			}
			run(t, top, "git", "add", "-A")
			run(t, top, "git", "commit", "-q", "-m", "files")
			p.own(t, dir)
			before := names(t, dir)
			t.Run("session", func(t *testing.T) {
				s := start(t, e, p, top, func(in *plan.Input) {
					protect := []string{".github/workflows/**", "deploy/*.yml", "src/**/Makefile", "LICENCE"}
					if err := in.Repository.AddPolicy(protect, []string{".env", "keys/", "**/*.pem", "shortcut", "not/there"}); err != nil {
						t.Fatal(err)
					}
				})
				if notes := strings.Join(s.plan.Notes, "\n"); strings.Contains(notes, ".env is hidden, but") || !strings.Contains(notes, "tracked.pem is hidden, but git tracks it") || !strings.Contains(notes, "src/a, src/b cannot be renamed") {
					t.Errorf("notes: %s", notes)
				}
				s.refused("", "mkdir -p .github/workflows", "echo x > .github/x", "echo x > deploy/prod.yml", "rm -f deploy/stage.yml", renaming("deploy", "d"), renaming("src", "s"),
					"echo x > src/b/Makefile", renaming("src/a", "src/c"), "echo x > LICENCE", "echo x > .env", renaming(".env", "e"), "cp -L shortcut /tmp/x && grep SECRET /tmp/x", "grep -r SECRET . --exclude-dir=.git", "ln .env /tmp/e && cat /tmp/e")
				s.must("test -f .env && test ! -s .env && test -d keys && test -z \"$(ls keys)\" && echo x > deploy/new.yml && echo x > src/new && rm deploy/new.yml src/new")
				if out := s.must("git status --porcelain"); out != " M tracked.pem\n" {
					t.Errorf("git inside shows %q", out)
				}
				if out := run(t, top, "git", "status", "--porcelain"); out != "" {
					t.Errorf("git on the host shows %q", out)
				}
			})
			if after := names(t, dir); after != before {
				t.Errorf("before:\n%s\nafter:\n%s", before, after)
			}
		})
	}
}

// TestNestedRepositoriesAreProtected: in a directory of several repositories
// each has its configuration, hooks and pointers held, whatever git on the
// host does there meanwhile.
func TestNestedRepositoriesAreProtected(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		t.Run(p.name, func(t *testing.T) {
			dir := p.place(t)
			top := dir + "/all"
			newRepo(t, top+"/one")
			newRepo(t, top+"/deep/er/two")
			run(t, top+"/one", "git", "worktree", "add", "-q", "../tree")
			p.own(t, dir)
			before := names(t, dir)
			t.Run("session", func(t *testing.T) {
				s := start(t, e, p, top, nil)
				for _, git := range []string{"one/.git", "deep/er/two/.git"} {
					attempts := []string{
						"echo x > " + git + "/hooks/pre-commit", "echo '[core] fsmonitor = x' >> " + git + "/config", "echo x > " + git + "/commondir && false",
						"echo x > c && mv -f c " + git + "/config", renaming(git, "x"), renaming(filepath.Dir(git), "x"), "git -C $(dirname " + git + ") config a.b c", "echo x > " + git + "/worktrees/x",
					}
					s.refused("", attempts...)
					run(t, filepath.Join(top, filepath.Dir(git)), "git", "config", "a.b", "d")
					s.refused("after git config on the host, ", attempts...)
				}
				s.refused("", "echo 'gitdir: /tmp' > tree/.git", renaming("tree/.git", "x"), "rm -f tree/.git")
				s.must("cd one && echo y >> file && git -c safe.directory='*' commit -qam inside && git -c safe.directory='*' log -1 --format=%s | grep inside")
			})
			// A commit and a setting are there now, and nothing else.
			after := names(t, dir)
			for line := range strings.Lines(after) {
				if !strings.Contains(before, line) && !strings.Contains(line, "/objects/") && !strings.Contains(line, "COMMIT_EDITMSG") && !strings.HasSuffix(line, "/all/c\n") {
					t.Errorf("new: %s", line)
				}
			}
			if out := run(t, top+"/one", "git", "config", "a.b"); out != "d" {
				t.Errorf("what was set on the host meanwhile is %q", out)
			}
		})
	}
}

// TestHostActsMeanwhile: in every arrangement, what people's programs do to
// git's files on the host opens nothing to the session.
func TestHostActsMeanwhile(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		for _, a := range arrangements {
			t.Run(p.name+"/"+a.name, func(t *testing.T) {
				if a.name != "main working tree" {
					kerneltest.Long(t)
				}
				dir := p.place(t)
				top := a.make(t, dir)
				run(t, top, "git", "config", "extensions.worktreeConfig", "true")
				p.own(t, dir)
				s := start(t, e, p, top, nil)
				host := func(script string) {
					t.Helper()
					run(t, top, "sh", "-ec", script)
				}
				prune := "git worktree prune && git gc -q"
				if a.name == "worktree with relative pointers" {
					prune = "true" // a git before 2.48 takes such a worktree for gone
				}
				for _, script := range []string{
					"git config user.x y", "git remote add up /nowhere && git branch side && git config branch.side.remote up && git branch -m side aside && git branch -D aside",
					"git config --worktree user.w v", prune,
					`f=$(readlink -f "$(git rev-parse --git-path config)"); cp "$f" "$f.new"; mv "$f.new" "$f"`,
				} {
					host(script)
					s.refused("after "+script+" on the host, ",
						"git config user.x z", "git config --worktree user.w z",
						`c="$(git rev-parse --path-format=absolute --git-path config)"; rm -f "$c"`,
						`c="$(git rev-parse --path-format=absolute --git-path config)"; echo x > /tmp/x; cp --remove-destination /tmp/x "$c"`,
						`c="$(git rev-parse --path-format=absolute --git-path config.worktree)"; echo x >> "$c"`,
						`c="$(git rev-parse --path-format=absolute --git-path config.worktree)"; ln -sf /tmp/x "$c"`,
						`h="$(git rev-parse --path-format=absolute --git-path hooks)"; echo x > "$h/pre-commit"`)
				}
				if _, err := exec.LookPath("vim"); err == nil {
					host(`vim -es -u NONE -c 'set backupcopy=auto' -c 'normal Go# edited' -c wq "$(git rev-parse --git-path config)"`)
					s.refused("after vim on the host, ", "git config user.x z")
				}
				if out := s.must("git config user.x; git config user.w"); out != "y\nv\n" {
					t.Errorf("inside git sees %q", out)
				}
			})
		}
	}
}
