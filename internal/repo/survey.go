package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

const (
	// maxSurvey is how many directory entries are looked at after a session,
	// maxLinks how many of git's own directories before them; maxTodo how many
	// bytes of a rebase list are read.
	maxSurvey = 200_000
	maxLinks  = 100_000
	maxTodo   = 1 << 20
	// maxNamed is how many paths one sentence names.
	maxNamed = 5
	// tick is how far a file's times may be behind: they are those of the
	// kernel's last one.
	tick = 50 * time.Millisecond
)

// A Survey is what no mount can hold: things in a tree that make programs of
// the host run what a session wrote, as they stood at one moment.
type Survey struct {
	at       time.Time     // by the clock that people see
	counted  time.Duration // by one that nobody can set
	complete bool
	nested   map[string]bool   // repositories inside the tree
	shut     map[string]bool   // directories that this person may not look into
	rebases  map[string]string // lists of a rebase that would run commands, with those
	watched  map[string]string // files that tools obey or run, with what tells a change
	named    []string          // what git's configuration names in the tree
	remotes  []string          // remotes that stand in no configuration
	inGit
}

// watchedFiles are at the top of a tree and obeyed by tools of the host that
// nobody starts for that purpose. Build files, which people run on purpose,
// are not among them.
var watchedFiles = []string{
	".devcontainer/devcontainer.json", ".devcontainer.json", ".envrc", ".lefthook.yaml", ".lefthook.yml", ".mcp.json", ".mise.toml", ".overcommit.yml",
	".pre-commit-config.yaml", "kilo.json", "kilo.jsonc", "lefthook.yaml", "lefthook.yml", "mise.toml", "opencode.json", "opencode.jsonc",
}

// watchedDirs hold programs that git hooks run by their name.
var watchedDirs = []string{".githooks", ".git-hooks", ".hooks", ".husky", ".lefthook"}

// IsZero reports whether nothing was surveyed.
func (s Survey) IsZero() bool { return s.at.IsZero() }

// Before is the survey of the tree as [Look] found it.
func (r Repository) Before() Survey {
	s := now()
	s.complete, s.nested, s.shut = r.WholeTree, setOf(r.Inside), setOf(r.Shut)
	r.surveyFiles(&s)
	return s
}

// After surveys the tree once its session has ended. It runs no git, follows
// no link, and stops where ctx ends or after so many files.
func (r Repository) After(ctx context.Context) Survey {
	s := now()
	s.inGit = r.searchGit(ctx, maxLinks) // their times tell what is new
	s.remotes = r.oldRemotes()
	found, shut, complete := r.repositories(maxSurvey, ctx.Done())
	s.nested, s.shut, s.complete = setOf(found), setOf(shut), complete
	r.surveyFiles(&s)
	return s
}

func setOf(paths []string) map[string]bool {
	set := map[string]bool{}
	for _, path := range paths {
		set[path] = true
	}
	return set
}

func (r Repository) surveyFiles(s *Survey) {
	s.named = r.namedNow()
	s.rebases, s.watched = map[string]string{}, map[string]string{}
	for _, git := range append([]string{r.GitDir}, r.Tree.Nested...) {
		if git == "" {
			continue
		}
		list := filepath.Join(git, "rebase-merge", "git-rebase-todo")
		if commands := execLines(list); commands != "" {
			s.rebases[list] = commands
		}
	}
	for _, name := range watchedFiles {
		s.watch(filepath.Join(r.Top, name), false)
	}
	for _, name := range watchedDirs {
		dir := filepath.Join(r.Top, name)
		entries, err := readSome(dir, maxMatches)
		if errors.Is(err, errTooMany) { // no way to hide one of them
			s.watched[dir] = "more than was looked at"
		}
		for _, e := range entries {
			s.watch(filepath.Join(dir, e.Name()), true)
		}
	}
}

// namedNow are the paths in the tree that git's configuration makes it run or
// obey at this moment. What cannot be read names nothing.
func (r Repository) namedNow() []string {
	if r.GitDir == "" {
		return nil
	}
	now := Repository{Top: r.Top, Given: r.Given, GitDir: r.GitDir, CommonDir: r.CommonDir}
	files := []string{filepath.Join(r.CommonDir, "config"), filepath.Join(r.GitDir, "config.worktree")}
	for _, file := range append(files, r.HostConfig...) {
		_ = now.addTargets(now.Top, file, 0)
	}
	return now.Tree.Targets
}

// watch notes a file by what changes with it.
func (s *Survey) watch(path string, program bool) {
	info, err := os.Lstat(path)
	if err != nil || info.IsDir() || program && info.Mode()&fs.ModeSymlink == 0 && info.Mode()&0o111 == 0 {
		return
	}
	_, inode, _ := identity(info)
	s.watched[path] = fmt.Sprint(inode, info.Size(), info.Mode(), info.ModTime().UnixNano(), changed(info))
}

// execLines are the commands in a rebase's list, see git-rebase(1),
// "INTERACTIVE MODE".
func execLines(list string) string {
	b, err := readSmall(list, maxTodo)
	switch {
	case errors.Is(err, errTooLarge):
		return fmt.Sprintf("whatever stands in a list of more than %d MiB, which was not read", maxTodo>>20)
	case err != nil:
		return ""
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		line = strings.TrimSpace(line)
		verb := line
		if end := strings.IndexAny(line, " \t\r"); end >= 0 { // as git ends it
			verb = line[:end]
		}
		if verb == "exec" || verb == "x" {
			out = append(out, strings.TrimSpace(line[len(verb):]))
		}
	}
	return strings.Join(out, "; ")
}

// repositories finds what git takes for a repository inside the tree: all that
// is called .git, and directories that look like a bare one. What is nearest
// to the top comes first, installed dependencies last. It ends after so many
// entries, or once done is closed, and reports whether it saw everything but
// what is shut: directories that this person may not look into.
func (r Repository) repositories(limit int, done <-chan struct{}) (found, shut []string, complete bool) {
	queue, later, unseen := []string{r.Top}, []string(nil), false
	for len(queue)+len(later) > 0 {
		if len(queue) == 0 {
			queue, later = later, nil
		}
		dir := queue[0]
		queue = queue[1:]
		select {
		case <-done:
			return found, shut, false
		default:
		}
		entries, err := readSome(dir, limit)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrPermission):
			shut = append(shut, dir)
			continue
		case err != nil: // too many entries, or a path too long for the kernel
			unseen = true
			continue
		}
		limit -= len(entries)
		parts := 0
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch e.Name() {
			case ".git":
				if dir != r.Top || r.GitDir == "" {
					found = append(found, path)
				}
				continue
			case "HEAD", "objects", "refs", "commondir":
				parts++
			}
			switch {
			case !e.IsDir(), path == r.GitDir, path == r.CommonDir:
			case dependencies[e.Name()]:
				later = append(later, path)
			default:
				queue = append(queue, path)
			}
		}
		if parts > 1 && dir != r.Top && isGitDir(dir) {
			found = append(found, dir)
		}
	}
	return found, shut, !unseen
}

// errTooMany says that a directory holds more than was to be read.
var errTooMany = errors.New("too many entries")

// readSome reads a directory of at most limit entries, sorted, and follows no
// link to it.
func readSome(dir string, limit int) ([]fs.DirEntry, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	entries, err := f.ReadDir(limit + 1)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if len(entries) > limit {
		return nil, errTooMany
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return entries, nil
}

// Changes says in sentences what a session, or somebody meanwhile, left in the
// tree between two surveys that the host would run or obey unasked.
func (r Repository) Changes(before, after Survey) []string {
	var out []string
	if names := r.fresh(before, after); len(names) > 0 {
		out = append(out, "new repositories inside the tree: "+list(names)+": git there obeys a configuration that the session wrote; look before you run git, or an editor, in them")
	}
	for _, path := range sorted(after.rebases) {
		if before.rebases[path] != after.rebases[path] {
			out = append(out, "a rebase is under way that runs commands when it is continued: "+printable(cut(after.rebases[path]))+": look with git rebase --edit-todo, or end it with git rebase --abort")
		}
	}
	var names []string
	for _, path := range sorted(after.shut) {
		if !before.shut[path] && (before.complete || after.turnedBack(before) || changedAfter(path, before.at)) {
			names = append(names, r.Short(path))
		}
	}
	if len(names) > 0 {
		out = append(out, "directories that were closed to you, and were not searched: "+list(names)+": chmod u+rwx opens them")
	}
	names = nil
	for _, path := range sorted(after.watched) {
		if before.watched[path] != after.watched[path] {
			names = append(names, r.Short(path))
		}
	}
	if len(names) > 0 {
		out = append(out, "new or changed, and obeyed by tools of the host: "+list(names))
	}
	names = nil
	for _, path := range after.named {
		if !slices.Contains(before.named, path) {
			names = append(names, r.Short(path))
		}
	}
	if len(names) > 0 {
		out = append(out, "git's configuration now names what the session could write: "+list(names)+": look before you run git")
	}
	if names := r.newOf(after.links, before, after); len(names) > 0 {
		out = append(out, "links in git's own directory: "+list(names)+": git on the host writes where they lead; remove them")
	}
	if names := r.newOf(after.pipes, before, after); len(names) > 0 {
		out = append(out, "named pipes in git's own directory: "+list(names)+": git on the host would wait for ever where it reads one; remove them")
	}
	if names := r.newOf(after.remotes, before, after); len(names) > 0 {
		out = append(out, "remotes that stand in no configuration: "+list(names)+": git push goes where they say, and runs hooks there; remove them")
	}
	if after.unseen != "" {
		out = append(out, "git's own directory was not searched whole for links, through which git on the host would write elsewhere: the search ended at "+r.Short(after.unseen)+": find -type l shows them there")
	}
	if !after.complete {
		out = append(out, "the tree is too large to be searched whole for new repositories")
	}
	return out
}

// fresh are the repositories of after that were not there before. Where the
// first look did not reach everything, what is older than it is not new.
func (r Repository) fresh(before, after Survey) []string {
	var out []string
	for _, path := range sorted(after.nested) {
		if before.nested[path] || !before.complete && !after.turnedBack(before) && !bornAfter(path, before.at) {
			continue
		}
		if filepath.Base(path) == ".git" {
			path = filepath.Dir(path)
		}
		out = append(out, r.Short(path))
	}
	return out
}

// turnedBack reports whether the clock was set back between two surveys: then
// the times of files tell nothing. A machine that slept has the opposite.
func (s Survey) turnedBack(before Survey) bool {
	return s.at.Sub(before.at) < s.counted-before.counted-tick
}

var begun = time.Now()

func now() Survey {
	at := time.Now()
	return Survey{at: at.Round(0), counted: at.Sub(begun)}
}

// changedAfter reports whether a path's attributes are newer than t, as far as
// is known: where it is not, everything is.
func changedAfter(path string, t time.Time) bool {
	info, err := os.Lstat(path)
	if err != nil {
		return true
	}
	at := changed(info)
	return at == 0 || at > t.Add(-tick).UnixNano()
}

// Short is a path as seen from the top of the tree, safe to print.
func (r Repository) Short(path string) string {
	if rel, err := filepath.Rel(r.Top, path); err == nil {
		path = rel
	}
	return printable(path)
}

func list(names []string) string {
	if n := len(names) - maxNamed; n > 0 {
		return strings.Join(names[:maxNamed], ", ") + fmt.Sprintf(" and %d more", n)
	}
	return strings.Join(names, ", ")
}

func cut(s string) string {
	const most = 120
	if len(s) > most {
		return s[:most] + "…"
	}
	return s
}

func sorted[V any](m map[string]V) []string {
	out := make([]string, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
