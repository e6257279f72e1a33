package repo

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestH9_WhatNoMountHolds: what a session can plant in every layout is named
// when it ends; what was there before is not.
func TestH9_WhatNoMountHolds(t *testing.T) {
	for _, c := range []struct {
		name, before, during string
		want                 []string // parts of each sentence; none for none
	}{
		{"nothing", "echo x > a", "echo y > a; echo 'all:' > Makefile; chmod +x Makefile; git commit -qam x", nil},
		{"a repository", "", "git init -q sub", []string{"new repositories inside the tree: sub:"}},
		{"repositories of all kinds", "", "mkdir -p b/deep c node_modules/d && git init -q --bare b/deep/x && echo 'gitdir: /tmp' > c/.git && ln -s /tmp node_modules/d/.git",
			[]string{"b/deep/x, c, node_modules/d"}},
		{"an old repository", "git init -q sub; git init -q node_modules/y", "git -C sub commit -q --allow-empty -m x", nil},
		{"many", "", "for i in 1 2 3 4 5 6 7; do git init -q s$i; done", []string{"s5 and 2 more"}},
		{"names that draw", "", `git init -q "$(printf 'a\033[31mb')"`, []string{`"a\x1b[31mb"`}},
		{"a rebase", "git commit -q --allow-empty -m two", `GIT_SEQUENCE_EDITOR='printf "break\nexec touch pwned\nx rm\\033 -rf\n" >' git rebase -q -i HEAD~1 || true`,
			[]string{`a rebase is under way that runs commands when it is continued: "touch pwned; rm\x1b -rf"`}},
		{"a rebase without commands", "git commit -q --allow-empty -m two", `GIT_SEQUENCE_EDITOR='printf "break\n" >' git rebase -q -i HEAD~1 || true`, nil},
		{"a list by hand", "", "mkdir .git/rebase-merge; echo 'exec touch pwned' > .git/rebase-merge/git-rebase-todo", []string{"touch pwned"}},
		{"a list with tabs", "git commit -q --allow-empty -m two", `GIT_SEQUENCE_EDITOR='printf "break\n\texec\ttouch a\nx\t touch b\nexecute c\n" >' git rebase -q -i HEAD~1 || true`, []string{"touch a; touch b: look"}},
		{"a long list", "", "mkdir .git/rebase-merge; { yes '# nothing' | head -c 1100000; echo 'exec touch pwned'; } > .git/rebase-merge/git-rebase-todo", []string{"whatever stands in a list of more than 1 MiB, which was not read"}},
		{"among very many", "", "mkdir -p .husky .git/remotes; (cd .husky; seq 600 | xargs touch; chmod +x 7); cd .git/remotes; seq 600 | xargs touch", []string{"tools of the host: .husky", "no configuration: .git/remotes:"}},
		{"hooks in the tree", "git config include.path ../.gitconfig; mkdir .husky; git config core.hooksPath .husky", "git config core.hooksPath tools/hooks; mkdir -p tools/hooks",
			[]string{"names what the session could write: tools/hooks"}},
		{"the same hooks", "mkdir .husky; git config core.hooksPath .husky", "git config a.b c", nil},
		{"files of tools", "mkdir .husky; echo x > .husky/pre-push; chmod +x .husky/pre-push; echo x > .envrc; echo x > mise.toml",
			"echo y > .envrc; echo x > .mcp.json; cp .husky/pre-push .husky/pre-commit; echo x > .husky/notes; touch -r a .envrc", []string{"tools of the host: .envrc, .husky/pre-commit, .mcp.json"}},
		{"links where git writes", "", "ln -sf /tmp/x .git/COMMIT_EDITMSG; rm .git/logs/HEAD; ln -s /tmp/y .git/logs/HEAD; ln -s /tmp/z .git/logs/refs/heads/z",
			[]string{"links in git's own directory: .git/COMMIT_EDITMSG, .git/logs/HEAD, .git/logs/refs/heads/z:"}},
		{"links below them", "git init -q sub; mkdir -p .git/modules/lib/x; cp -r sub/.git/. .git/modules/lib/x",
			"for d in refs/heads rebase-merge rebase-apply/deep sequencer objects objects/pack objects/info/commit-graphs modules/lib/x/logs modules/lib/x/objects/pack rr-cache/a; do mkdir -p .git/$d; ln -s /tmp/x .git/$d/l; done",
			[]string{"own directory: .git/objects/l, .git/rebase-merge/l, .git/sequencer/l, .git/objects/pack/l, .git/rebase-apply/deep/l and 5 more:"}},
		{"links where git does not write", "mkdir .git/modules; git init -q --separate-git-dir=$PWD/.git/modules/m m", "mkdir -p .git/objects/aa .git/other; ln -s x .git/objects/aa/l; ln -s x .git/other/l; ln -s x .git/hooks/l; ln -s x .git/info/l; ln -s x .git/modules/m/hooks/l; ln -sf x .git/modules/m/config", nil},
		{"all logs are a link", "", "mv .git/logs .git/x; ln -s x .git/logs", []string{"own directory: .git/logs:"}},
		{"old remotes", "", "mkdir -p .git/remotes .git/branches; echo 'URL: /tmp' > .git/remotes/origin; echo /tmp > .git/branches/b",
			[]string{"no configuration: .git/remotes/origin, .git/branches/b:"}},
		{"named pipes", "", "mkfifo .git/objects/info/alternates", []string{"named pipes in git's own directory: .git/objects/info/alternates:"}},
		{"too many", "", "mkdir many; cd many; seq 3000 | xargs touch; seq 3001 6000 | xargs touch", nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			top, err := filepath.EvalSymlinks(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			sh := func(script string) {
				t.Helper()
				cmd := exec.Command("sh", "-ec", script)
				cmd.Dir = top
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com"}
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Fatalf("%s: %v %s", script, err, out)
				}
			}
			sh("git init -q -b main . && echo x > a && git add a && git commit -qm one\n" + c.before)
			r, err := Look(top)
			if err != nil {
				t.Fatal(err)
			}
			before := r.Before()
			sh(c.during)
			got := r.Changes(before, r.After(t.Context()))
			if len(got) != len(c.want) {
				t.Errorf("%d sentences, want %d: %q", len(got), len(c.want), got)
			}
			for i := range min(len(got), len(c.want)) {
				if !strings.Contains(got[i], c.want[i]) {
					t.Errorf("%q does not say %q", got[i], c.want[i])
				}
			}
		})
	}
}

// TestOldLinksAreNotNamed: their age tells, and where a clock was set back
// nothing does.
func TestOldLinksAreNotNamed(t *testing.T) {
	top := t.TempDir()
	for _, dir := range []string{"objects", "refs", "logs", "remotes"} {
		if err := os.MkdirAll(filepath.Join(top, ".git", dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	err := errors.Join(os.WriteFile(filepath.Join(top, ".git/HEAD"), []byte("ref: refs/heads/main\n"), 0o644),
		os.WriteFile(filepath.Join(top, ".git/remotes/old"), []byte("URL: /tmp\n"), 0o644), os.Symlink("/tmp/x", filepath.Join(top, ".git/logs/HEAD")))
	if err != nil {
		t.Fatal(err)
	}
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Before()
	if got := r.Changes(later(before, time.Hour), later(r.After(t.Context()), time.Hour)); len(got) != 0 {
		t.Errorf("what is old is called new: %q", got)
	}
	after := r.After(t.Context())
	after.at = after.at.Add(-time.Hour)
	if got := r.Changes(before, after); len(got) != 2 {
		t.Errorf("where the clock was set back: %q", got)
	}
}

// TestLinksBehindTheLimit: a search that ends early says where, and what is
// nearest to the top was looked at.
func TestLinksBehindTheLimit(t *testing.T) {
	top := t.TempDir()
	r := Repository{Top: top, GitDir: filepath.Join(top, ".git"), CommonDir: filepath.Join(top, ".git")}
	heads := filepath.Join(r.GitDir, "refs/heads")
	if err := errors.Join(os.MkdirAll(heads, 0o755), os.Symlink("x", filepath.Join(r.GitDir, "index"))); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "b", "c", "d"} {
		if err := os.Symlink("x", filepath.Join(heads, name)); err != nil {
			t.Fatal(err)
		}
	}
	if found := r.searchGit(t.Context(), 6); len(found.links) != 1 || found.unseen != heads {
		t.Errorf("found %+v", found)
	}
	if found := r.searchGit(t.Context(), 7); len(found.links) != 5 || found.unseen != "" {
		t.Errorf("with room for all: %+v", found)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	got := r.Changes(r.Before(), r.After(ended))
	if want := "the search ended at .git: find -type l shows them there"; len(got) != 2 || !strings.HasSuffix(got[0], want) {
		t.Errorf("a search without time says %q", got)
	}
}

// TestLinksOfALinkedWorktree: of the directory that worktrees have in common
// that is looked at which a session may write to.
func TestLinksOfALinkedWorktree(t *testing.T) {
	top := t.TempDir()
	common := filepath.Join(top, "main/.git")
	r := Repository{Top: filepath.Join(top, "wt"), CommonDir: common, GitDir: filepath.Join(common, "worktrees/wt")}
	var want []string
	for _, dir := range []string{"worktrees/wt/rebase-merge", "logs/refs", "objects/info", "refs/heads"} {
		link := filepath.Join(common, dir, "l")
		if err := errors.Join(os.MkdirAll(filepath.Dir(link), 0o755), os.Symlink("x", link)); err != nil {
			t.Fatal(err)
		}
		want = append(want, link)
	}
	if err := os.Symlink("x", filepath.Join(common, "read-only")); err != nil {
		t.Fatal(err)
	}
	found := r.searchGit(t.Context(), maxLinks)
	if slices.Sort(found.links); !slices.Equal(found.links, slices.Sorted(slices.Values(want))) || found.unseen != "" {
		t.Errorf("found %+v", found)
	}
}

// TestB52_ClosedDirectoriesAreNamed: what nobody could look into may hold a
// repository, and cannot be removed as usual.
func TestB52_ClosedDirectoriesAreNamed(t *testing.T) {
	top := t.TempDir()
	if os.Geteuid() == 0 { // to whom nothing is closed
		const nobody = 65534
		runtime.LockOSThread() // and never unlocked: the thread ends with the test
		t.Cleanup(func() { _ = unix.Setfsuid(0) })
		if err := errors.Join(os.Chown(top, nobody, nobody), os.Chmod(filepath.Dir(top), 0o755), unix.Setfsuid(nobody)); err != nil {
			t.Fatal(err)
		}
	}
	closed := func(name string) {
		t.Helper()
		dir := filepath.Join(top, name)
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Chmod(dir, 0)); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.Chmod(dir, 0o755) }) // #nosec: a directory is listed
	}
	closed("old")
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	before := r.Before()
	closed("new")
	got := r.Changes(before, r.After(t.Context()))
	if len(got) != 1 || !strings.HasPrefix(got[0], "directories that were closed to you, and were not searched: new: ") {
		t.Errorf("said: %q", got)
	}
	// Where the first look did not reach it, age tells.
	before.shut, before.complete = nil, false
	before = later(before, time.Hour)
	if got := r.Changes(before, r.After(t.Context())); len(got) != 0 {
		t.Errorf("what is old is called new: %q", got)
	}
}

// later is a survey that was made so much later.
func later(s Survey, by time.Duration) Survey {
	s.at, s.counted = s.at.Add(by), s.counted+by
	return s
}

// TestSurveyOfALargeTree: where the look before a session did not reach, age
// tells what is new, and an end that comes first is said.
func TestSurveyOfALargeTree(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "a/b/old/.git"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Repository{Top: top}
	r.Inside, r.Shut, r.WholeTree = r.repositories(2, nil)
	if r.WholeTree {
		t.Fatal("two entries were enough")
	}
	before := r.Before()
	before = later(before, 100*time.Millisecond) // file times are those of the kernel's last tick
	if bornAfter(filepath.Join(top, "a/b/old/.git"), before.at) {
		t.Skip("wanted a file system with birth times, found none")
	}
	if got := r.Changes(before, r.After(t.Context())); len(got) != 0 {
		t.Errorf("what is old is called new: %q", got)
	}
	// The clock was set back by an hour meanwhile: no file's age counts.
	after := r.After(t.Context())
	after.at = after.at.Add(-time.Hour)
	if got := r.Changes(before, after); len(got) != 1 {
		t.Errorf("by a clock that was set back: %q", got)
	}
	before = later(before, -time.Hour)
	if got := r.Changes(before, r.After(t.Context())); len(got) != 1 {
		t.Errorf("what is new is not named: %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Changes(before, r.After(ended)); len(got) != 1 || !strings.Contains(got[0], "too large") {
		t.Errorf("a survey that was cut short says %q", got)
	}
}
