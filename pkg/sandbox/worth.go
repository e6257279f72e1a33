package sandbox

import (
	"fmt"
	"slices"
	"strings"
)

// Names of facts that rest on the table of protected paths. Engines say the
// first one.
const (
	FactPaths    = "protected paths"
	FactGit      = "git control files"
	FactSettings = "editor and agent settings"
)

// Claims names the facts that are not true any more once the protection of
// path has ended.
func Claims(t Tree, path string) []string {
	out := []string{FactPaths}
	for _, g := range table(t) {
		if in := g.in(t); in != path && (g.do != Shelter || ShelterDir(in) != path) || slices.Contains(t.Protect, path) {
			continue
		}
		if g.base == inTree && g.when == always && slices.ContainsFunc(guards, func(o guard) bool { return o.base == inTree && o.when == always && o.path == g.path }) {
			return append(out, FactSettings)
		}
		return append(out, FactGit)
	}
	return out
}

// A worth collects what the protection is worth less than one might think.
type worth struct {
	shared []string // can be written by another name
	single []string // files, whose protection ends when the host replaces them
	free   []string // missing, and not held
}

// facts says so for people.
func (w worth) facts(t Tree) []Fact {
	git := Fact{Name: FactGit, Strength: Held,
		Detail: "the common git directory is read-only but for objects, refs, logs and this worktree's own state"}
	switch {
	case t.GitDir == "":
		git.Strength, git.Detail = Weaker, "no git repository here: one made inside brings its own hooks"
	case !t.Linked():
		git.Detail = "read-only: hooks, info, modules, worktrees, and config, which stands in a directory of its own meanwhile so that git on the host may replace it"
	}
	settings := Fact{Name: FactSettings, Strength: Held, Detail: "read-only; missing directories are held by empty ones"}
	if len(w.free) > 0 {
		settings.Strength = Weaker
		settings.Detail += "; a file that is missing can be made, which is said when the session ends: " + shown(strings.Join(w.free, ", "))
	}
	if len(w.shared) > 0 {
		settings.Strength = Weaker
		settings.Detail += "; " + shown(strings.Join(w.shared, ", ")) + " can be written through another hard link"
	}
	if len(t.Unclear) > 0 && t.GitDir != "" {
		git.Strength = Weaker
		git.Detail += "; but of the programs that " + some(t.Unclear) + " of the host's git configuration names cannot be told whether the session could write them"
	}
	facts := []Fact{git, settings}
	if len(w.single) > 0 {
		facts = append(facts, Fact{Name: "protected files", Strength: Weaker, Detail: fmt.Sprintf(
			"%s (%d in all): a program of the host that replaces such a file, as editors do, ends its protection, which is said at once; a directory does not have this gap", some(w.single), len(w.single))})
	}
	return facts
}

// some are the first of these names.
func some(names []string) string {
	const most = 5
	if len(names) > most {
		return shown(strings.Join(names[:most], ", ")) + ", …"
	}
	return shown(strings.Join(names, ", "))
}
