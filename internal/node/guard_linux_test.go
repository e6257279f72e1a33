package node

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestTheHostEndsAProtection: said at once, in the listing, and at the end.
func TestTheHostEndsAProtection(t *testing.T) {
	w := newWorld(t)
	must(t, os.WriteFile(filepath.Join(w.repo, ".mcp.json"), []byte("{}\n"), 0o644))
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "echo ready; until echo x 2>/dev/null >> .mcp.json; do sleep 0.05; done; git config a.b c 2>/dev/null && echo bad"}})
	a.out.await(t, "ready")
	// What git does changes nothing.
	git(t, w.repo, "config", "a.b", "d")
	git(t, w.repo, "remote", "add", "o", "/nowhere")
	must(t, os.WriteFile(filepath.Join(w.repo, "new"), []byte("{}\n"), 0o644))
	must(t, os.Rename(filepath.Join(w.repo, "new"), filepath.Join(w.repo, ".mcp.json")))
	end, err := a.end(t)
	must(t, err)
	if len(end.Notices) != 2 || !strings.HasPrefix(end.Notices[0], "warning: .mcp.json was replaced on the host at ") || !strings.Contains(end.Notices[1], "tools of the host: .mcp.json") {
		t.Errorf("closing lines %q", end.Notices)
	}
	if strings.Contains(a.out.String(), "bad") {
		t.Error("git's configuration could be written after the host had replaced it")
	}
	rows, _ := w.kept(t)
	if len(rows) != 1 || strings.Count(strings.Join(rows[0].Notices, "\n"), ".mcp.json was replaced") != 1 || !strings.Contains(strings.Join(rows[0].Notices, "\n"), "tools of the host") {
		t.Errorf("kept %+v", rows)
	}
	contradicted(t, rows[0].Enforced, "protected paths", "editor and agent settings")
}

// contradicted wants these facts, and no others, to be weaker because of what
// the host did.
func contradicted[S ~[]F, F any](t *testing.T, facts S, names ...string) {
	t.Helper()
	got := []string{}
	for _, f := range facts {
		text := fmt.Sprintf("%+v", f)
		if !strings.Contains(text, " on the host at ") {
			continue
		}
		for _, name := range names {
			if strings.Contains(text, "Name:"+name+" Strength:weaker ") {
				got = append(got, name)
			}
		}
		if strings.Contains(text, "Strength:enforced") || strings.Contains(text, "Name:protected path ") {
			t.Errorf("a fact says %s", text)
		}
	}
	if len(got) != len(names) {
		t.Errorf("weaker are %q, want %q, in %+v", got, names, facts)
	}
}

// TestARemovedPlaceholderMakesItsClaimWeaker, in what is shown of the session
// that runs, without a second row that says the contrary of the first.
func TestARemovedPlaceholderMakesItsClaimWeaker(t *testing.T) {
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "echo ready; until test -e done; do sleep 0.05; done"}})
	a.out.await(t, "ready")
	must(t, os.Remove(filepath.Join(w.repo, ".vscode")))
	for start := time.Now(); ; {
		list, err := r.client.Sessions(t.Context(), false)
		must(t, err)
		if len(list) == 1 && strings.Contains(strings.Join(list[0].Notices, "\n"), ".vscode was moved or removed on the host") {
			contradicted(t, list[0].Enforced, "protected paths", "editor and agent settings")
			break
		}
		if time.Since(start) > enough {
			t.Fatalf("nobody noticed: %+v", list)
		}
	}
	must(t, os.WriteFile(filepath.Join(w.repo, "done"), nil, 0o644))
	if _, err := a.end(t); err != nil {
		t.Error(err)
	}
}

// TestTakenRightsAreGivenBack: a session that takes the rights from its own
// tree leaves nothing behind, and no protection is called lost.
func TestTakenRightsAreGivenBack(t *testing.T) {
	w := newWorld(t)
	before, err := os.ReadDir(w.repo)
	must(t, err)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "chmod 000 .git .; true"}})
	end, err := a.end(t)
	must(t, err)
	if len(end.Notices) != 2 || !strings.Contains(strings.Join(end.Notices, "\n"), "they were given back") {
		t.Errorf("closing lines %q", end.Notices)
	}
	after, err := os.ReadDir(w.repo)
	must(t, err)
	info, err := os.Lstat(filepath.Join(w.repo, ".git", "config"))
	if err != nil || !info.Mode().IsRegular() || len(after) != len(before) {
		t.Errorf("left %v, before %v; %v", after, before, err)
	}
}

// TestH9_ClosingLines: what no mount prevents is named when the session ends.
func TestH9_ClosingLines(t *testing.T) {
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-ec", "git init -q sub; mkdir .git/rebase-merge; echo 'exec touch pwned' > .git/rebase-merge/git-rebase-todo"}})
	end, err := a.end(t)
	must(t, err)
	got := strings.Join(end.Notices, "\n")
	if len(end.Notices) != 2 || !strings.Contains(got, "new repositories inside the tree: sub:") || !strings.Contains(got, "touch pwned") {
		t.Errorf("closing lines %q", end.Notices)
	}
	a = w.ask(t, r.client, api.RunRequest{Command: []string{"true"}})
	if end, err := a.end(t); err != nil || len(end.Notices) != 0 {
		t.Errorf("what was there before is named: %q, %v", end.Notices, err)
	}
}
