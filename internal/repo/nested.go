package repo

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

const (
	// maxNestedLook is how many directory entries are looked at for nested
	// repositories before a session, nearest to the top first: the person
	// waits for it. maxNested is how many of them get protections of their own.
	maxNestedLook = 4000
	maxNested     = 16
)

// dependencies are directories of installed ones: large, and no place where
// people run git.
var dependencies = map[string]bool{"node_modules": true, "__pycache__": true, ".venv": true, ".tox": true}

// addNested notes the repositories inside the tree: whoever enters one on the
// host has git obey its configuration too.
func (r *Repository) addNested() {
	found, shut, complete := r.repositories(maxNestedLook, nil)
	r.Inside, r.Shut, r.WholeTree = found, shut, complete
	var git []string
	for _, path := range found {
		info, err := os.Lstat(path)
		switch {
		case err != nil, filepath.Base(path) != ".git":
			// What only looks like one may be tracked, and git would show what
			// is done to it.
		case info.Mode().IsRegular():
			r.target(path) // a worktree or submodule: it says whose configuration counts
		case info.IsDir() && isGitDir(path):
			if why := r.unprotectable(path); why != nil {
				r.Notes = append(r.Notes, "the repository in "+printable(filepath.Dir(path))+" has no protection of its own: "+why.Error())
				continue
			}
			git = append(git, path)
		}
	}
	if len(git) > maxNested {
		git, complete = git[:maxNested], false
	}
	r.Tree.Nested = git
	for _, path := range git {
		for _, name := range []string{"config", "config.worktree"} {
			if err := r.addTargets(filepath.Dir(path), filepath.Join(path, name), 0); err != nil {
				r.Notes = append(r.Notes, "what git runs in "+printable(filepath.Dir(path))+" is not known: "+err.Error())
			}
		}
	}
	if !complete {
		r.Notes = append(r.Notes, "the tree is large: repositories deep inside it, if there are any, have no protection of their own")
	}
}

// unprotectable says what keeps a nested repository from being protected. It
// is not the one that the session is for, so it does not refuse the session.
func (r *Repository) unprotectable(git string) error {
	t := Repository{Top: r.Top, GitDir: r.GitDir, CommonDir: r.CommonDir, Tree: sandbox.Tree{Top: r.Top, Nested: []string{git}}}
	if err := t.lookAll(); err != nil {
		return err
	}
	_, _, err := sandbox.Guards(t.Tree)
	if refused, ok := errors.AsType[*sandbox.GuardError](err); ok && (under(refused.Path, git) || under(git, refused.Path)) {
		return refused
	}
	return nil
}
