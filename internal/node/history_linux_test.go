package node

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// committed makes the world's repository one with a history: a main and a
// topic branch, and a tag.
func (w world) committed(t *testing.T) {
	t.Helper()
	git(t, w.repo, "config", "user.name", "ada")
	git(t, w.repo, "config", "user.email", "ada@x.example")
	git(t, w.repo, "config", "gc.auto", "0")
	must(t, os.MkdirAll(filepath.Join(w.repo, ".github/workflows"), 0o755))
	must(t, os.WriteFile(filepath.Join(w.repo, ".github/workflows/ci.yml"), []byte("on: push\n"), 0o644))
	git(t, w.repo, "checkout", "-q", "-b", "main")
	git(t, w.repo, "add", "-A")
	git(t, w.repo, "commit", "-q", "-m", "one")
	git(t, w.repo, "branch", "topic")
	git(t, w.repo, "tag", "v1")
	git(t, w.repo, "commit", "-q", "--allow-empty", "-m", "two")
}

// kept1 is the last session as it is shown.
func (w world) last(t *testing.T, c *client.Client) api.Session {
	t.Helper()
	all, err := c.Sessions(t.Context(), true)
	must(t, err)
	s, err := c.Session(t.Context(), all[0].ID)
	must(t, err)
	return s
}

// sly puts a commit together without ever touching the file: what is read-only
// in the work tree is not so in the history.
const sly = `sly() { # PATH CONTENT MESSAGE
	blob=$(printf %s "$2" | git hash-object -w --stdin)
	git update-index --add --cacheinfo "100644,$blob,$1" && git commit -q -m "$3"
}
`

// TestH18_CommitsThatTouchProtectedPaths are named in the closing line and kept.
func TestH18_CommitsThatTouchProtectedPaths(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.committed(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	const policy = `{"version": 1, "files": {"protect": ["deploy/*.sh", "odd"]}}`
	for name, c := range map[string]struct {
		script string
		want   []api.Commit // without their ids
		lines  []string
	}{
		"nothing but work": {script: "echo x >f; git add f; git commit -q -m work; git switch -q -c new; git commit -q --allow-empty -m more"},
		"policy":           {script: `sly .mojoup/policy.json '{}' innocent`, want: []api.Commit{{Reference: "main", Paths: []string{".mojoup/policy.json"}}}, lines: []string{"new commits change what is protected", "main ", ".mojoup/policy.json"}},
		"workflow, on a branch that is not checked out": {
			script: `git switch -q topic; sly .github/workflows/ci.yml 'on: evil' x; git checkout -q -f main`,
			want:   []api.Commit{{Reference: "topic", Paths: []string{".github/workflows/ci.yml"}}},
		},
		"settings, hooks and what the policy names": {
			script: `for p in .vscode/tasks.json .husky/pre-commit deploy/x.sh odd .claude/settings.json .envrc; do sly "$p" x x; done; sly deploy/x.txt x x; sly odd1 x x`,
			want: []api.Commit{
				{Reference: "main", Paths: []string{".envrc"}}, {Reference: "main", Paths: []string{".claude/settings.json"}}, {Reference: "main", Paths: []string{"odd"}},
				{Reference: "main", Paths: []string{"deploy/x.sh"}}, {Reference: "main", Paths: []string{".husky/pre-commit"}}, {Reference: "main", Paths: []string{".vscode/tasks.json"}},
			},
			lines: []string{"and 1 more"},
		},
		"undone in the next one": {
			script: `sly .mojoup/x a a; git rm -q --cached .mojoup/x; git commit -q -m undo`,
			want:   []api.Commit{{Reference: "main", Paths: []string{".mojoup/x"}}, {Reference: "main", Paths: []string{".mojoup/x"}}},
		},
		"in a merge itself": {
			script: `git switch -q topic; git commit -q --allow-empty -m side; git switch -q main; git merge -q --no-ff --no-commit topic; sly .mojoup/evil x merged`,
			want:   []api.Commit{{Reference: "main", Paths: []string{".mojoup/evil"}}},
		},
		"a tag, a stash, no branch": {
			script: `git checkout -q --detach; sly .mojoup/x x x; git tag t; git checkout -q main`,
			want:   []api.Commit{{Reference: "t", Paths: []string{".mojoup/x"}}},
		},
		"as if it were fetched": {
			script: `git checkout -q --detach; sly .mojoup/x x x; git update-ref refs/remotes/origin/main HEAD; git checkout -q main`,
			want:   []api.Commit{{Reference: "origin/main", Paths: []string{".mojoup/x"}}},
		},
		"behind a replaced object": {
			script: `good=$(git commit-tree -p HEAD -m good HEAD^{tree}); sly .mojoup/x x x; git replace HEAD $good`,
			want:   []api.Commit{{Reference: "main", Paths: []string{".mojoup/x"}}},
		},
		"names that draw": {
			script: `sly ".mojoup/$(printf 'a\033[2J\nb, c')" x x`,
			want:   []api.Commit{{Reference: "main", Paths: []string{".mojoup/a\x1b[2J\nb, c"}}},
			lines:  []string{`".mojoup/a\x1b[2J\nb, c"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-ec", sly + c.script}, PolicyName: "p.json", Policy: policy})
			end, err := a.end(t)
			must(t, err)
			if end.Code != 0 {
				t.Fatalf("%d: %s %+v", end.Code, a.out, end.Problem)
			}
			s := w.last(t, r.client)
			if diff := cmp.Diff(c.want, s.Commits, cmpopts.IgnoreFields(api.Commit{}, "ID"), cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s\n%q", diff, end.Notices)
			}
			said := strings.Join(end.Notices, "\n")
			if strings.Contains(said, "new commits change") != (len(c.want) > 0) || strings.Contains(said, "\x1b") {
				t.Errorf("closing lines %q", end.Notices)
			}
			for _, want := range c.lines {
				if !strings.Contains(said, want) || !strings.Contains(strings.Join(s.Notices, "\n"), want) {
					t.Errorf("no %q in %q and %q", want, end.Notices, s.Notices)
				}
			}
			for _, commit := range s.Commits {
				git(t, w.repo, "cat-file", "-e", commit.ID+"^{commit}")
			}
			git(t, w.repo, "checkout", "-q", "-f", "main")
			git(t, w.repo, "reset", "-q", "--hard", "v1")
			git(t, w.repo, "commit", "-q", "--allow-empty", "-m", "two")
			git(t, w.repo, "branch", "-q", "-f", "topic", "v1")
			git(t, w.repo, "clean", "-q", "-f", "-d", "-x")
			for _, ref := range strings.Fields(git(t, w.repo, "for-each-ref", "--format=%(refname)")) {
				if ref != "refs/heads/main" && ref != "refs/heads/topic" && ref != "refs/tags/v1" {
					git(t, w.repo, "update-ref", "-d", ref)
				}
			}
		})
	}
}

// TestH18_LostReferences: what was deleted or rewritten is named, with what
// brings it back; new work is not.
func TestH18_LostReferences(t *testing.T) {
	w := newWorld(t)
	w.committed(t)
	git(t, w.repo, "branch", "packed")
	git(t, w.repo, "pack-refs", "--all")
	main, topic := strings.TrimSpace(git(t, w.repo, "rev-parse", "main")), strings.TrimSpace(git(t, w.repo, "rev-parse", "topic"))
	r := w.serve(t, w.options(t, nativeEngine(t)))
	end, said := w.whole(t, r.client, "sh", "-ec", "git commit -q --amend --allow-empty -m other; git branch -q -D topic; git tag -d v1; git branch -q -D packed; git branch fresh; git pack-refs --all; git update-ref refs/remotes/origin/x HEAD")
	if end.Code != 0 {
		t.Fatal(said)
	}
	s := w.last(t, r.client)
	want := []api.Reference{{Name: "packed", Was: main}, {Name: "topic", Was: topic}, {Name: "v1", Was: topic}, {Name: "main", Was: main}}
	if diff := cmp.Diff(want, s.References, cmpopts.IgnoreFields(api.Reference{}, "Is")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := strings.Join(end.Notices, "\n"); !strings.Contains(got, "deleted, which `git branch NAME COMMIT` brings back: packed (was "+main[:10]+"), topic") || !strings.Contains(got, "history was rewritten") || !strings.Contains(got, "main (was "+main[:10]+", is ") {
		t.Errorf("closing lines %q", end.Notices)
	}
	git(t, w.repo, "branch", "topic", topic)
	if end, _ := w.whole(t, r.client, "git", "commit", "-q", "--allow-empty", "-m", "work"); len(end.Notices) != 0 {
		t.Errorf("new work is named: %q", end.Notices)
	}
	// What it takes: nothing where nothing moved.
	if end, _ := w.whole(t, r.client, "git", "status"); len(end.Notices) != 0 {
		t.Errorf("closing lines %q", end.Notices)
	}
}

// TestH18_AForgedIndexOfTheHistory: git keeps a file that says which commit may
// have changed which path, and believes it. The session may write that too.
func TestH18_AForgedIndexOfTheHistory(t *testing.T) {
	w := newWorld(t)
	w.committed(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-ec", sly + `sly .mojoup/x x x; git -c core.commitGraph=true commit-graph write --reachable --changed-paths --no-progress; echo written; until test -e go; do sleep 0.05; done`}})
	a.out.await(t, "written")
	forgeGraph(t, filepath.Join(w.repo, ".git/objects/info/commit-graph"))
	if out := git(t, w.repo, "log", "--format=%s", "--", ".mojoup"); out != "" {
		t.Fatalf("the forgery deceives nobody: %q", out)
	}
	must(t, os.WriteFile(filepath.Join(w.repo, "go"), nil, 0o644))
	end, err := a.end(t)
	must(t, err)
	if !strings.Contains(strings.Join(end.Notices, "\n"), ".mojoup/x") {
		t.Errorf("closing lines %q", end.Notices)
	}
}

// forgeGraph empties the filters of a commit graph, so that no commit seems to
// have changed anything; see gitformat-commit-graph(5).
func forgeGraph(t *testing.T, path string) {
	t.Helper()
	b, err := os.ReadFile(path)
	must(t, err)
	for entry := b[8:]; string(entry[:4]) != "\x00\x00\x00\x00"; entry = entry[12:] {
		if string(entry[:4]) == "BDAT" {
			from, to := binary.BigEndian.Uint64(entry[4:]), binary.BigEndian.Uint64(entry[16:])
			clear(b[from+12 : to])
		}
	}
	must(t, os.Chmod(path, 0o644))
	must(t, os.WriteFile(path, b, 0o644))
}
