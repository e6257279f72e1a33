package sandbox

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the golden files anew")

// tree is a repository in which everything that [Watched] names is a
// directory or a file, as its name suggests, but for what change says.
func tree(t Tree, change map[string]Entry) Tree {
	t.At = map[string]Entry{}
	for _, path := range Watched(t) {
		e := Entry{Is: Missing}
		switch filepath.Base(path) {
		case "config", "gitdir":
			e.Is = RegularFile
		case "commondir":
			if t.Linked() {
				e.Is = RegularFile
			}
		case ".git":
			e.Is = Directory
			if t.GitFile {
				e.Is = RegularFile
			}
		case "hooks", "info", "objects", "refs", "logs":
			e.Is = Directory
		}
		if path == t.GitDir || path == t.CommonDir {
			e.Is = Directory
		}
		if c, ok := change[path]; ok {
			e = c
		}
		t.At[path] = e
	}
	return t
}

var (
	mainRepo   = Tree{Top: "/w/repo", GitDir: "/w/repo/.git", CommonDir: "/w/repo/.git"}
	linkedRepo = Tree{Top: "/w/a", GitDir: "/w/repo/.git/worktrees/a", CommonDir: "/w/repo/.git", GitFile: true}
	noRepo     = Tree{Top: "/w/plain"}
)

func with(t Tree, targets ...string) Tree { t.Targets = targets; return t }

// guardName spells a guard in golden files.
var guardName = map[Guard]string{Pin: "pin", Freeze: "freeze", Thaw: "thaw", HoldDir: "hold dir", HoldFile: "hold file", Shelter: "shelter"}

func TestGuardsGolden(t *testing.T) {
	dir := Entry{Is: Directory}
	for name, in := range map[string]Tree{
		"main":     tree(mainRepo, nil),
		"linked":   tree(linkedRepo, nil),
		"none":     tree(noRepo, nil),
		"separate": tree(Tree{Top: "/w/top", GitDir: "/w/git/x.git", CommonDir: "/w/git/x.git", GitFile: true}, nil),
		"bare worktree without logs": tree(Tree{Top: "/w/a", GitDir: "/w/b.git/worktrees/a", CommonDir: "/w/b.git", GitFile: true},
			map[string]Entry{"/w/b.git/logs": {Is: Missing}}),
		"settings there": tree(mainRepo, map[string]Entry{
			"/w/repo/.mojoup": dir, "/w/repo/.vscode": dir, "/w/repo/.mcp.json": {Is: RegularFile},
			"/w/repo/.idea": {Is: Directory, Shared: "/w/repo/.idea/workspace.xml"},
		}),
		"somebody else's": tree(mainRepo, map[string]Entry{
			"/w/repo/.git": {Is: Directory, Closed: true}, "/w/repo/.mojoup": {Is: Missing, Closed: true}, "/w/repo/.vscode": {Is: Directory, Closed: true},
			"/w/repo/.git/hooks": {Is: Directory, Closed: true}, "/w/repo/.git/commondir": {Is: Missing, Closed: true},
		}),
		"another session's": tree(mainRepo, map[string]Entry{
			"/w/repo/.mojoup": {Is: Directory, Held: true}, "/w/repo/.git/config.worktree": {Is: RegularFile, Held: true},
		}),
		"worktree in a bare repository": tree(Tree{
			Top: "/w/b.git/wt", GitDir: "/w/b.git/worktrees/wt", CommonDir: "/w/b.git", GitFile: true, Protect: []string{"/w/b.git/wt/x/y"},
		}, map[string]Entry{"/w/b.git/wt": dir, "/w/b.git/wt/x": dir}),
		"several repositories": tree(Tree{Top: "/w/plain", Nested: []string{"/w/plain/a/.git", "/w/plain/b/c/.git"}}, map[string]Entry{
			"/w/plain/a": dir, "/w/plain/a/.git": dir, "/w/plain/b": dir, "/w/plain/b/c": dir, "/w/plain/b/c/.git": dir,
		}),
		"of the policy": tree(Tree{
			Top: "/w/repo", GitDir: "/w/repo/.git", CommonDir: "/w/repo/.git", Targets: []string{"/w/repo/ci/hooks"},
			Protect: []string{"/w/repo/.github", "/w/repo/ci", "/w/repo/a/b/Makefile", "/w/repo/.vscode/tasks.json"},
		}, map[string]Entry{
			"/w/repo/ci": dir, "/w/repo/a": dir, "/w/repo/a/b": dir, "/w/repo/a/b/Makefile": {Is: RegularFile},
			"/w/repo/.vscode": dir,
		}),
		"hooks in the tree": tree(with(mainRepo, "/w/repo/tools/git/hooks", "/w/repo/.husky", "/w/repo/.git/hooks/x", "/elsewhere"), map[string]Entry{
			"/w/repo/tools": dir, "/w/repo/tools/git": dir, "/w/repo/tools/git/hooks": dir,
		}),
	} {
		t.Run(name, func(t *testing.T) {
			protect, facts, err := Guards(in)
			if err != nil {
				t.Fatal(err)
			}
			var b strings.Builder
			for _, p := range protect {
				fmt.Fprintf(&b, "%-9s %-36s %s\n", guardName[p.Guard], p.Path, p.Reason)
				if p.Guard == HoldFile {
					fmt.Fprintf(&b, "%-9s %q\n", "", p.Content)
				}
			}
			for _, f := range facts {
				fmt.Fprintf(&b, "\n%s: %s: %s\n", f.Name, f.Strength, f.Detail)
			}
			golden(t, filepath.Join("testdata", "guards", strings.ReplaceAll(name, " ", "-")+".txt"), b.String())
		})
	}
}

func golden(t *testing.T, path, got string) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got; -update writes it anew):\n%s", path, diff)
	}
}

// TestB53_ProtectedPathsThatAreLinksAreRefused: a link could be made to point
// elsewhere, and a second name of a file writes through.
func TestB53_ProtectedPathsThatAreLinksAreRefused(t *testing.T) {
	link, pipe := Entry{Is: SymbolicLink}, Entry{Is: SpecialFile}
	shared := Entry{Is: RegularFile, Shared: "/w/repo/.git/config"}
	for _, c := range []struct {
		name string
		tree Tree
		path string
		at   Entry
	}{
		{"hooks", mainRepo, "/w/repo/.git/hooks", link},
		{"git directory", mainRepo, "/w/repo/.git", link},
		{"policy", mainRepo, "/w/repo/.mojoup", link},
		{"settings", mainRepo, "/w/repo/.vscode", link},
		{"settings pipe", noRepo, "/w/plain/.mcp.json", pipe},
		{"common directory's objects", linkedRepo, "/w/repo/.git/objects", link},
		{"worktree's gitdir", linkedRepo, "/w/repo/.git/worktrees/a/gitdir", link},
		{"hard link", mainRepo, "/w/repo/.git/config", shared},
		{"hard link below", mainRepo, "/w/repo/.git/hooks", Entry{Is: Directory, Shared: "/w/repo/.git/hooks/pre-commit"}},
		{"file for a directory", linkedRepo, "/w/repo/.git/refs", Entry{Is: RegularFile}},
		{"way to a target", with(mainRepo, "/w/repo/tools/hooks"), "/w/repo/tools", link},
		{"missing way to a target", with(mainRepo, "/w/repo/tools/hooks"), "/w/repo/tools", Entry{Is: Missing}},
		{"nobody looked", mainRepo, "/w/repo/.git/hooks", Entry{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			protect, _, err := Guards(tree(c.tree, map[string]Entry{c.path: c.at}))
			var g *GuardError
			if !errors.As(err, &g) || protect != nil {
				t.Fatalf("got %v, %d protections", err, len(protect))
			}
			if c.at.Is != Unknown && (g.Hint() == "" || strings.Contains(g.Error(), "BUG")) {
				t.Errorf("no next step: %v", g)
			}
		})
	}
}

// TestH6_EveryAncestorOfAProtectedPathIsAMountOrReadOnly keeps the rule for
// rows that somebody adds: what could be renamed above a protected path would
// take the protection with it.
func TestH6_EveryAncestorOfAProtectedPathIsAMountOrReadOnly(t *testing.T) {
	checked := 0
	for _, in := range []Tree{mainRepo, linkedRepo, with(mainRepo, "/w/repo/a/b/c/d"), with(linkedRepo, "/w/a/x/y")} {
		in = tree(in, map[string]Entry{
			"/w/repo/a": {Is: Directory}, "/w/repo/a/b": {Is: Directory}, "/w/repo/a/b/c": {Is: Directory}, "/w/a/x": {Is: Directory},
		})
		protect, _, err := Guards(in)
		if err != nil {
			t.Fatal(err)
		}
		at := map[string]Guard{}
		frozen := ""
		for _, p := range protect {
			for _, dir := range ancestors(in, p.Path) {
				checked++
				if _, ok := at[dir]; !ok && !(frozen != "" && under(dir, frozen)) {
					t.Errorf("%s: %s comes later or never", p.Path, dir)
				}
			}
			if p.Guard == Freeze && frozen == "" && p.Path == in.CommonDir {
				frozen = p.Path
			}
			if _, twice := at[p.Path]; twice {
				t.Errorf("%s is named twice", p.Path)
			}
			at[p.Path] = p.Guard
		}
	}
	if checked < 20 {
		t.Errorf("only %d ancestors were looked at", checked)
	}
}

// TestClaims: what each fact rests on, and that the names are those of facts.
func TestClaims(t *testing.T) {
	in := tree(Tree{
		Top: "/w/repo", GitDir: "/w/repo/.git", CommonDir: "/w/repo/.git", Targets: []string{"/w/repo/tool.sh"}, Nested: []string{"/w/repo/sub/.git"},
		Protect: []string{"/w/repo/Makefile", "/w/repo/.vscode"}, Unclear: []string{"a", "b"},
	}, map[string]Entry{"/w/repo/tool.sh": {Is: RegularFile}, "/w/repo/sub": {Is: Directory}})
	for path, want := range map[string][]string{
		"/w/repo/.idea": {FactPaths, FactSettings}, "/w/repo/.mcp.json": {FactPaths, FactSettings}, "/w/repo/.mojoup": {FactPaths, FactSettings},
		"/w/repo/.git/hooks": {FactPaths, FactGit}, "/w/repo/.git/config": {FactPaths, FactGit}, "/w/repo/.git/config.held": {FactPaths, FactGit},
		"/w/repo/.git": {FactPaths, FactGit}, "/w/repo/sub/.git/hooks": {FactPaths, FactGit}, "/w/repo/tool.sh": {FactPaths, FactGit},
		"/w/repo/Makefile": {FactPaths}, "/w/repo/sub": {FactPaths},
	} {
		if diff := cmp.Diff(want, Claims(in, path)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
	_, facts, err := Guards(in)
	if err != nil || len(facts) < 2 || facts[0].Name != FactGit || facts[1].Name != FactSettings {
		t.Fatalf("%+v, %v", facts, err)
	}
	if facts[0].Strength != Weaker || !strings.Contains(facts[0].Detail, "that a, b of the host's git configuration names") {
		t.Errorf("what is unclear is not said: %+v", facts[0])
	}
}
