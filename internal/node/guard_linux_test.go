package node

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	weaker := false
	for _, f := range rows[0].Enforced {
		weaker = weaker || f.Name == "protected path" && strings.Contains(f.Detail, ".mcp.json")
	}
	if !weaker {
		t.Errorf("the listing does not say weaker: %+v", rows[0].Enforced)
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
