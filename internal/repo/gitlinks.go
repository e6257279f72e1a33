package repo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// links finds symbolic links where git has files that it writes in place, or
// replaces where a link leads: at the top of a git directory, and all of its
// logs. Git on the host would write the target, whatever it is. Those of
// configurations are not among them: a session cannot change these. It reports
// whether it saw everything.
func (r Repository) links(ctx context.Context, limit int) (found []string, complete bool) {
	complete = true
	var queue []string
	for _, git := range append([]string{r.GitDir}, r.Tree.Nested...) {
		if git != "" {
			queue = append(queue, git, filepath.Join(git, "logs"))
		}
	}
	if r.CommonDir != r.GitDir && r.CommonDir != "" {
		queue = append(queue, filepath.Join(r.CommonDir, "logs"))
	}
	tops := len(queue)
	for i := 0; i < len(queue); i++ {
		if ctx.Err() != nil {
			return found, false
		}
		dir := queue[i]
		inLogs := i >= tops || filepath.Base(dir) == "logs"
		entries, err := readSome(dir, limit)
		if err != nil { // as at a link: it is named where it lies
			complete = complete && (errors.Is(err, fs.ErrNotExist) || isLink(dir))
			continue
		}
		limit -= len(entries)
		for _, e := range entries {
			path := filepath.Join(dir, e.Name())
			switch {
			case e.Type()&fs.ModeSymlink != 0 && (inLogs || !slices.Contains(behindLinks, e.Name())):
				found = append(found, path)
			case e.IsDir() && inLogs:
				queue = append(queue, path)
			}
		}
	}
	return found, complete
}

// behindLinks are behind a link while a session lives.
var behindLinks = []string{"config", "config.worktree"}

func isLink(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode()&fs.ModeSymlink != 0
}

// oldRemotes are files by which git knew remotes once, and still does where its
// configuration has none of that name: see gitrepository-layout(5), "remotes"
// and "branches". They say where git push goes, and hooks there run.
func (r Repository) oldRemotes() (found []string) {
	for _, git := range append([]string{r.CommonDir}, r.Tree.Nested...) {
		for _, name := range []string{"remotes", "branches"} {
			dir := filepath.Join(git, name)
			entries, err := readSome(dir, maxMatches)
			if git == "" || err != nil {
				continue
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
