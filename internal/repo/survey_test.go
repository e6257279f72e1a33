package repo

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
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
		{"hooks in the tree", "git config include.path ../.gitconfig; mkdir .husky; git config core.hooksPath .husky", "git config core.hooksPath tools/hooks; mkdir -p tools/hooks",
			[]string{"names what the session could write: tools/hooks"}},
		{"the same hooks", "mkdir .husky; git config core.hooksPath .husky", "git config a.b c", nil},
		{"files of tools", "mkdir .husky; echo x > .husky/pre-push; chmod +x .husky/pre-push; echo x > .envrc; echo x > mise.toml",
			"echo y > .envrc; echo x > .mcp.json; cp .husky/pre-push .husky/pre-commit; echo x > .husky/notes; touch -r a .envrc", []string{"tools of the host: .envrc, .husky/pre-commit, .mcp.json"}},
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

// TestSurveyOfALargeTree: where the look before a session did not reach, age
// tells what is new, and an end that comes first is said.
func TestSurveyOfALargeTree(t *testing.T) {
	top := t.TempDir()
	if err := os.MkdirAll(filepath.Join(top, "a/b/old/.git"), 0o755); err != nil {
		t.Fatal(err)
	}
	r := Repository{Top: top}
	r.Inside, r.WholeTree = r.repositories(2, nil)
	if r.WholeTree {
		t.Fatal("two entries were enough")
	}
	before := r.Before()
	before.at = before.at.Add(100e6) // file times are those of the kernel's last tick
	if bornAfter(filepath.Join(top, "a/b/old/.git"), before.at) {
		t.Skip("wanted a file system with birth times, found none")
	}
	if got := r.Changes(before, r.After(t.Context())); len(got) != 0 {
		t.Errorf("what is old is called new: %q", got)
	}
	before.at = before.at.Add(-3600e9)
	if got := r.Changes(before, r.After(t.Context())); len(got) != 1 {
		t.Errorf("what is new is not named: %q", got)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if got := r.Changes(before, r.After(ended)); len(got) != 1 || !strings.Contains(got[0], "too large") {
		t.Errorf("a survey that was cut short says %q", got)
	}
}
