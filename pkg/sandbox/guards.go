package sandbox

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

// A GuardError says why a path cannot be protected.
type GuardError struct {
	Path    string
	Problem string
	Advice  string
}

func (e *GuardError) Error() string { return fmt.Sprintf("protect %s: %s", shown(e.Path), e.Problem) }

// shown quotes a path that would draw on somebody's terminal.
func shown(path string) string {
	if strings.ContainsFunc(path, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(path)
	}
	return path
}

// Hint is the next step for people.
func (e *GuardError) Hint() string { return e.Advice }

// base is where the path of a guard begins.
type base uint8

const (
	inTree base = iota
	inGitDir
	inCommonDir
)

// layout says in which arrangement a guard is needed.
type layout uint8

const (
	always layout = iota
	mainTree
	linkedTree
	anyGit
	gitFile
	treeInside
)

// absence says what is done where the path is missing.
type absence uint8

const (
	holdDir  absence = iota // an empty directory, which git never shows
	holdFile                // a file, where a directory would break the host's git
	makeDir                 // Thaw makes it: git inside needs to write there
	shelter                 // a link to where the file would be
	skip                    // left alone
)

type guard struct {
	base    base
	path    string // "" is the base itself
	when    layout
	do      Guard
	missing absence
	content string // of holdFile
	lenient bool   // a hard link below makes it weaker instead of refused
	reason  string
}

// guards is the one table of protected paths, for every engine: ancestors
// stand before descendants. Why directories and shelters: a read-only mount
// over a single file is dropped by the kernel when the host replaces that file
// by rename, as git does with its config and editors do with everything.
var guards = []guard{
	// A linked worktree: all of the common directory is read-only but for what
	// a commit writes, so that no protection hangs on a file that git replaces.
	{inCommonDir, "", linkedTree, Freeze, skip, "", false, "its config and hooks make the host's git run programs"},
	{inCommonDir, "objects", linkedTree, Thaw, makeDir, "", false, "commits are written here"},
	{inCommonDir, "refs", linkedTree, Thaw, makeDir, "", false, "branches are written here"},
	{inCommonDir, "logs", linkedTree, Thaw, makeDir, "", false, "reflogs are written here, and the stash is one"},
	{inCommonDir, "reftable", linkedTree, Thaw, skip, "", false, "branches are written here"},
	{inGitDir, "", linkedTree, Thaw, skip, "", false, "HEAD and index of this worktree"},
	{inTree, "", treeInside, Thaw, skip, "", false, "the worktree itself, inside the common git directory"},
	{inGitDir, "commondir", linkedTree, Freeze, skip, "", false, "it says whose config and hooks the host's git obeys"},
	{inGitDir, "gitdir", linkedTree, Freeze, skip, "", false, "it says which directory the host's git takes for this worktree"},

	// A main working tree: its git directory must stay writable.
	{inGitDir, "", mainTree, Pin, skip, "", false, "renamed, another one with hooks could take its place"},
	{inGitDir, "config", mainTree, Shelter, shelter, "", false, "it makes the host's git run programs"},
	{inGitDir, "commondir", mainTree, HoldFile, holdFile, ".", false, "it would send the host's git to another config and other hooks"},
	{inGitDir, "hooks", mainTree, Freeze, holdDir, "", false, "the host's git runs them"},
	{inGitDir, "info", mainTree, Freeze, holdDir, "", false, "attributes choose which filters the host's git runs"},
	{inGitDir, "worktrees", mainTree, Freeze, holdDir, "", false, "each worktree's commondir, gitdir and config.worktree redirect the host's git"},

	// Both. config.worktree as a directory ends every git command on the host
	// once extensions.worktreeConfig is on; as a link to nothing it means
	// nothing.
	{inGitDir, "config.worktree", anyGit, Shelter, shelter, "", false, "it makes the host's git run programs"},
	{inGitDir, "modules", anyGit, Freeze, holdDir, "", false, "the host's git status runs in each submodule with its config"},
	{inTree, ".git", gitFile, Freeze, skip, "", false, "it says which git directory the host's git obeys"},

	{inTree, ".mojoup", always, Freeze, holdDir, "", false, "the policy of the next session"},
	{inTree, ".vscode", always, Freeze, holdDir, "", true, "an editor runs tasks and tools named there"},
	{inTree, ".idea", always, Freeze, holdDir, "", true, "an editor runs tasks and tools named there"},
	{inTree, ".zed", always, Freeze, holdDir, "", true, "an editor runs tasks and tools named there"},
	{inTree, ".cursor", always, Freeze, holdDir, "", true, "an editor runs tools and hooks named there"},
	{inTree, ".claude", always, Freeze, holdDir, "", true, "an agent on the host runs hooks named there"},
	{inTree, ".codex", always, Freeze, holdDir, "", true, "an agent on the host runs tools named there"},
	{inTree, ".gemini", always, Freeze, holdDir, "", true, "an agent on the host runs tools named there"},
	{inTree, ".opencode", always, Freeze, holdDir, "", true, "an agent on the host loads plugins from there"},
	{inTree, ".kilo", always, Freeze, holdDir, "", true, "an agent on the host loads plugins from there"},
	{inTree, ".kilocode", always, Freeze, holdDir, "", true, "an agent on the host runs tools named there"},
	{inTree, ".devcontainer", always, Freeze, holdDir, "", true, "an editor starts containers described there"},
	// Files that tools read: an empty directory of that name breaks the tool,
	// so these are protected where they exist and reported where they appear.
	{inTree, ".mcp.json", always, Freeze, skip, "", true, "an agent on the host starts servers named there"},
	{inTree, "opencode.json", always, Freeze, skip, "", true, "an agent on the host starts servers named there"},
	{inTree, "opencode.jsonc", always, Freeze, skip, "", true, "an agent on the host starts servers named there"},
	{inTree, "kilo.json", always, Freeze, skip, "", true, "an agent on the host starts servers named there"},
	{inTree, "kilo.jsonc", always, Freeze, skip, "", true, "an agent on the host starts servers named there"},
	{inTree, ".devcontainer.json", always, Freeze, skip, "", true, "an editor starts containers described there"},
}

func (g guard) applies(t Tree) bool {
	hasGit := t.GitDir != ""
	switch g.when {
	case always:
		return true
	case mainTree:
		return hasGit && !t.Linked()
	case linkedTree:
		return hasGit && t.Linked()
	case anyGit:
		return hasGit
	case gitFile:
		return hasGit && t.GitFile
	case treeInside:
		return hasGit && t.Linked() && under(t.Top, t.CommonDir)
	}
	return false
}

func (g guard) in(t Tree) string {
	switch g.base {
	case inGitDir:
		return filepath.Join(t.GitDir, g.path)
	case inCommonDir:
		return filepath.Join(t.CommonDir, g.path)
	default:
		return filepath.Join(t.Top, g.path)
	}
}

// Watched names every path whose [Entry] must be in Tree.At before [Guards] is
// asked: the protected ones, and the directories that lead to them.
func Watched(t Tree) []string {
	var paths []string
	for _, g := range table(t) {
		path := g.in(t)
		paths = append(append(paths, ancestors(t, path)...), path)
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// table is every guard that applies, with those that the tree's own
// configuration asks for.
func table(t Tree) []guard {
	var rows []guard
	for _, g := range guards {
		if g.applies(t) {
			rows = append(rows, g)
		}
	}
	for _, git := range t.Nested {
		rel, err := filepath.Rel(t.Top, git)
		for _, g := range guards {
			if err == nil && filepath.IsLocal(rel) && g.base == inGitDir && (g.when == mainTree || g.when == anyGit) {
				g.base, g.path = inTree, filepath.Join(rel, g.path)
				rows = append(rows, g)
			}
		}
	}
	named := map[string]guard{}
	for _, path := range t.Targets {
		named[path] = guard{reason: "the host's git configuration names it"}
	}
	for _, path := range t.Protect {
		named[path] = guard{missing: holdDir, lenient: true, reason: "the policy protects it"}
	}
	for _, path := range slices.Sorted(maps.Keys(named)) { // ancestors first
		rel, err := filepath.Rel(t.Top, path)
		if err != nil || !filepath.IsLocal(rel) || rel == "." {
			continue // not of this tree: not mounted, so nothing to protect
		}
		var above []Protection
		for _, g := range rows {
			above = append(above, Protection{Path: g.in(t), Guard: g.do})
		}
		if frozen(above, path) {
			continue
		}
		g := named[path]
		g.base, g.path, g.do = inTree, rel, Freeze
		rows = append(rows, g)
	}
	return rows
}

// frozen reports whether the nearest of these at or above path makes it
// read-only.
func frozen(have []Protection, path string) bool {
	nearest := Protection{}
	for _, p := range have {
		if (p.Guard == Freeze || p.Guard == Thaw) && under(path, p.Path) && len(p.Path) > len(nearest.Path) {
			nearest = p
		}
	}
	return nearest.Guard == Freeze
}

// Guards is the table of protected paths for one tree, in the order in which
// they are to be made, and what of it holds less than one might think. A path
// that is a symbolic link, a special file or (for what git obeys) has another
// hard link is refused with a [GuardError].
func Guards(t Tree) ([]Protection, []Fact, error) {
	var out []Protection
	var worth worth
	for _, g := range table(t) {
		path := g.in(t)
		pins, err := pins(t, path, out)
		if err != nil {
			return nil, nil, err
		}
		out = append(out, pins...)
		entry := t.At[path]
		if err := refuse(g, path, entry); err != nil {
			return nil, nil, err
		}
		if entry.Shared != "" {
			worth.shared = append(worth.shared, entry.Shared)
		}
		if g.missing == skip && g.base == inTree && g.when == always && entry.Is == Missing && !entry.Closed {
			worth.free = append(worth.free, g.path)
		}
		if entry.Closed && (entry.Is == Missing || g.do == Pin) {
			continue
		}
		if entry.Closed && g.do == Shelter && !entry.Sheltered {
			// Whoever runs the session can move nothing there, nor replace it.
			g.do = Freeze
		}
		if p, ok := g.protection(path, entry.Is == Missing || entry.Held); ok {
			out = append(out, p)
			if p.Guard == Freeze && entry.Is == RegularFile && g.base == inTree && filepath.Base(path) != ".git" {
				worth.single = append(worth.single, g.path)
			}
		}
	}
	return out, worth.facts(t), nil
}

func (g guard) protection(path string, missing bool) (Protection, bool) {
	p := Protection{Path: path, Guard: g.do, Reason: g.reason}
	if g.do == HoldFile {
		p.Content = g.content
		return p, true
	}
	if g.do == Shelter || !missing {
		return p, true
	}
	switch g.missing {
	case holdDir:
		p.Guard = HoldDir
	case holdFile:
		p.Guard, p.Content = HoldFile, g.content
	case skip:
		return Protection{}, false
	}
	return p, true
}

func refuse(g guard, path string, e Entry) error {
	problem, advice := "", ""
	switch {
	case e.Is == Unknown:
		problem = "BUG: nobody looked what stands there"
	case e.Is == SymbolicLink:
		problem = "it is a symbolic link, and a link can be made to point elsewhere"
		advice = "replace the link by what it points to"
	case e.Is == SpecialFile:
		problem = "it is neither a file nor a directory"
		advice = "remove it"
	case e.Is == RegularFile && (g.do == Thaw || g.do == Pin):
		problem = "it is a file where git has a directory"
		advice = "look at the repository with git fsck"
	case e.Is == Directory && g.do == Shelter:
		problem = "it is a directory where git has a file"
		advice = "remove it"
	case e.Shared != "" && !g.lenient:
		problem = fmt.Sprintf("%s has another hard link, through which it could be written", shown(e.Shared))
		advice = "replace it by a copy of itself: cp -p FILE FILE.new && mv FILE.new FILE"
	default:
		return nil
	}
	return &GuardError{Path: path, Problem: problem, Advice: advice}
}

// pins binds each directory between a mount and a protected path on itself:
// renamed, it would take the protection with it and leave its name free.
func pins(t Tree, path string, have []Protection) ([]Protection, error) {
	var out []Protection
	for _, dir := range ancestors(t, path) {
		if frozen(have, dir) || slices.ContainsFunc(have, func(p Protection) bool { return p.Path == dir }) {
			continue
		}
		switch e := t.At[dir]; e.Is {
		case Directory:
			if e.Closed {
				continue
			}
			out = append(out, Protection{Path: dir, Guard: Pin, Reason: "renamed, it would take what is protected below with it"})
		case Missing:
			// The engine's placeholder for the path itself needs its parents.
			return nil, &GuardError{Path: path, Problem: "the directory " + shown(dir) + " that should hold it is missing", Advice: "make it, or remove what names it from git's configuration"}
		default:
			return nil, refuse(guard{do: Pin}, dir, e)
		}
	}
	return out, nil
}

// ancestors are the directories between the mount that holds path and path
// itself, outermost first, without either.
func ancestors(t Tree, path string) []string {
	root := ""
	for _, r := range []string{t.Top, t.CommonDir, t.GitDir} {
		// The outermost mount counts: one inside another is no boundary.
		if r != "" && under(path, r) && (root == "" || under(root, r)) {
			root = r
		}
	}
	var out []string
	for dir := filepath.Dir(path); root != "" && dir != root && under(dir, root); dir = filepath.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}

// under reports whether path is root or lies below it.
func under(path, root string) bool {
	return root != "" && (path == root || root == "/" || strings.HasPrefix(path, root+"/"))
}

// Frozen are the paths in the work tree that the table makes read-only,
// whether they are there or not.
func Frozen(t Tree) []string {
	var out []string
	for _, g := range table(t) {
		if g.base == inTree && g.do == Freeze {
			out = append(out, g.in(t))
		}
	}
	return out
}
