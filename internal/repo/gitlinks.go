package repo

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// A kind says what git has in a directory of its own.
type kind uint8

const (
	written kind = iota // files and directories, at any depth
	gitTop              // the top of a git directory
	gitTops             // further git directories, at any depth
	objects             // what is named by its content: of its directories only the named ones are written in place
)

// gitDirs are the directories below the top of a git directory that git writes
// in: see gitrepository-layout(5). Not among them are hooks and info, which a
// session cannot change and people link, and what is not git's own.
var gitDirs = map[string]kind{
	"NOTES_MERGE_WORKTREE": written, "logs": written, "lost-found": written, "modules": gitTops, "objects": objects, "rebase-apply": written,
	"rebase-merge": written, "refs": written, "reftable": written, "rr-cache": written, "sequencer": written, "worktrees": gitTops,
}

// objectDirs are those of objects in which files have names of their own.
var objectDirs = []string{"info", "pack"}

// behindLinks are behind a link while a session lives, and no session can
// change these.
var behindLinks = []string{"config", "config.worktree"}

// A gitDir is one of git's directories that is to be looked at.
type gitDir struct {
	path string
	kind kind
}

// inGit is what lies where git has files that it writes in place, or replaces
// where a link leads, and directories that it makes files in. What is nearest to a
// top comes first.
type inGit struct {
	links []string // symbolic ones: git on the host would write where they lead
	pipes []string // and devices: git would wait for them instead of reading
	// unseen is the first directory that was not looked at because of the limit,
	// the end of ctx, or its rights; "" where all were.
	unseen string
}

// searchGit looks at what git has in directories of its own.
func (r Repository) searchGit(ctx context.Context, limit int) (found inGit) {
	queue := r.gitDirs()
	for i := 0; i < len(queue); i++ {
		at := queue[i]
		if ctx.Err() != nil {
			found.unseen = cmp.Or(found.unseen, at.path)
			return found
		}
		entries, err := readSome(at.path, limit)
		if err != nil {
			if found.unseen == "" && !errors.Is(err, fs.ErrNotExist) && isDir(at.path) { // a link is named where it lies
				found.unseen = at.path
			}
			continue
		}
		limit -= len(entries)
		at.kind = at.kind.of(entries)
		for _, e := range entries {
			switch below, ok := at.kind.below(e.Name()); {
			case e.Type()&fs.ModeSymlink != 0 && !(at.kind == gitTop && slices.Contains(behindLinks, e.Name())):
				found.links = append(found.links, filepath.Join(at.path, e.Name()))
			case e.Type()&(fs.ModeNamedPipe|fs.ModeDevice) != 0:
				found.pipes = append(found.pipes, filepath.Join(at.path, e.Name()))
			case e.IsDir() && ok:
				queue = append(queue, gitDir{filepath.Join(at.path, e.Name()), below})
			}
		}
	}
	return found
}

// gitDirs are where the search for links begins. Of what linked worktrees have
// in common, all but the directories that commits are written to is read-only.
func (r Repository) gitDirs() (tops []gitDir) {
	for _, git := range append([]string{r.GitDir}, r.Tree.Nested...) {
		if git != "" {
			tops = append(tops, gitDir{git, gitTop})
		}
	}
	if r.CommonDir != r.GitDir && r.CommonDir != "" {
		for _, name := range []string{"logs", "objects", "refs", "reftable"} {
			tops = append(tops, gitDir{filepath.Join(r.CommonDir, name), gitDirs[name]})
		}
	}
	return tops
}

// of is what a directory is once it is known what lies in it.
func (k kind) of(entries []fs.DirEntry) kind {
	if k == gitTops && slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == "HEAD" && !e.IsDir() }) {
		return gitTop
	}
	return k
}

// below is what git has in a directory of that name, if it is to be looked at.
func (k kind) below(name string) (kind, bool) {
	switch k {
	case gitTop:
		below, ok := gitDirs[name]
		return below, ok
	case objects:
		return written, slices.Contains(objectDirs, name)
	}
	return k, true
}

func isDir(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}

// oldRemotes are files by which git knew remotes once, and still does where its
// configuration has none of that name: see gitrepository-layout(5), "remotes"
// and "branches". They say where git push goes, and hooks there run.
func (r Repository) oldRemotes() (found []string) {
	for _, git := range append([]string{r.CommonDir}, r.Tree.Nested...) {
		for _, name := range []string{"remotes", "branches"} {
			dir := filepath.Join(git, name)
			if git == "" {
				continue
			}
			entries, err := readSome(dir, maxMatches)
			if errors.Is(err, errTooMany) { // no way to hide one of them
				found = append(found, dir)
			}
			for _, e := range entries {
				found = append(found, filepath.Join(dir, e.Name()))
			}
		}
	}
	return found
}

// newOf are those of the paths that have changed since a survey, as they are
// shown.
func (r Repository) newOf(paths []string, before, after Survey) (names []string) {
	for _, path := range paths {
		if after.turnedBack(before) || changedAfter(path, before.at) {
			names = append(names, r.Short(path))
		}
	}
	return names
}
