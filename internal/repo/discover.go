package repo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// maxPointer bounds the small files that git keeps paths in.
const maxPointer = 16 << 10

// discover walks up from a real directory as git does, and stops where git
// stops: at the top of the file system that it began on.
func discover(start string) (Repository, error) {
	info, err := os.Lstat(start)
	if err != nil {
		return Repository{}, unreadable(start, err)
	}
	device, _, _ := identity(info)
	for dir := start; ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return Repository{}, unreadable(dir, err)
		}
		if d, _, _ := identity(info); d != device {
			break
		}
		r, found, err := at(dir)
		if found || err != nil {
			return r, err
		}
		if dir == "/" {
			break
		}
	}
	return Repository{Layout: None, Top: start}, nil
}

// at looks whether dir is the top of a work tree.
func at(dir string) (Repository, bool, error) {
	dotgit := filepath.Join(dir, ".git")
	info, err := os.Lstat(dotgit)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if isGitDir(dir) {
			return Repository{}, false, &Error{Path: dir, Reason: "is a git directory, not a working tree",
				Advice: "start in a working tree; git worktree add makes one"}
		}
		return Repository{}, false, nil
	case err != nil:
		return Repository{}, false, unreadable(dotgit, err)
	case info.Mode()&fs.ModeSymlink != 0:
		return Repository{}, false, &Error{Path: dotgit, Reason: "is a symbolic link, which could be made to point elsewhere",
			Advice: "replace it by a file with the line: gitdir: PATH"}
	case info.IsDir():
		if !isGitDir(dotgit) {
			return Repository{}, false, nil // as git does: an empty .git is no repository
		}
		r, err := mainTree(dir, dotgit)
		return r, true, err
	case info.Mode().IsRegular():
		r, err := pointed(dir, dotgit)
		return r, true, err
	default:
		return Repository{}, false, &Error{Path: dotgit, Reason: "is neither a file nor a directory", Advice: "remove it"}
	}
}

// isGitDir reports whether git would take dir for a git directory.
func isGitDir(dir string) bool {
	if _, err := os.Lstat(filepath.Join(dir, "HEAD")); err != nil {
		return false
	}
	if _, err := os.Lstat(filepath.Join(dir, "commondir")); err == nil {
		return true // objects and refs are elsewhere
	}
	for _, name := range []string{"objects", "refs"} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || !info.IsDir() {
			return false
		}
	}
	return true
}

// mainTree is a work tree whose git directory belongs to it alone.
func mainTree(top, gitDir string) (Repository, error) {
	r := Repository{Layout: Main, Top: top, GitDir: gitDir, CommonDir: gitDir}
	if err := ownCommondir(gitDir); err != nil {
		return r, err
	}
	return r, r.checkWorkTree()
}

// ownCommondir refuses a commondir file in a git directory that is nobody's
// linked worktree: git never makes one, and it redirects config and hooks. The
// one that says "." is the node's own placeholder.
func ownCommondir(gitDir string) error {
	path := filepath.Join(gitDir, "commondir")
	content, err := pointer(path)
	if errors.Is(err, fs.ErrNotExist) || err == nil && content == "." {
		return nil
	}
	if err != nil {
		return unreadable(path, err)
	}
	return &Error{Path: path, Reason: "sends git to the config and hooks of another directory, which git itself never sets up here",
		Advice: "look at the file, and remove it if you did not make it"}
}

// checkWorkTree refuses a repository whose configuration puts the work tree
// elsewhere: git's commands and the mounts would mean different directories.
func (r *Repository) checkWorkTree() error {
	_, err := r.pointsBack()
	return err
}

// pointsBack reports whether the git directory names this work tree as its
// own. One that names another is an error.
func (r *Repository) pointsBack() (bool, error) {
	c, err := readGitConfig(filepath.Join(r.CommonDir, "config"))
	if err != nil {
		return false, err
	}
	if c.Bool("extensions.worktreeconfig") {
		if c, err = c.with(filepath.Join(r.GitDir, "config.worktree")); err != nil {
			return false, err
		}
	}
	tree, ok := c.Last("core.worktree")
	if !ok {
		return false, nil
	}
	if !filepath.IsAbs(tree) {
		tree = filepath.Join(r.GitDir, tree)
	}
	if real, err := filepath.EvalSymlinks(tree); err == nil && real == r.Top {
		return true, nil
	}
	return false, &Error{Path: r.Top, Reason: "is not the working tree that its git directory names (core.worktree = " + printable(tree) + ")",
		Advice: "start in that directory, or correct core.worktree"}
}

// pointed follows a .git file.
func pointed(top, dotgit string) (Repository, error) {
	line, err := pointer(dotgit)
	if err != nil {
		return Repository{}, unreadable(dotgit, err)
	}
	target, ok := strings.CutPrefix(line, "gitdir: ")
	if !ok || target == "" {
		return Repository{}, &Error{Path: dotgit, Reason: `does not hold the line "gitdir: PATH"`, Advice: "run git worktree repair, or remove it"}
	}
	spelled := absolute(top, target)
	gitDir, err := filepath.EvalSymlinks(spelled)
	if err != nil {
		return Repository{}, &Error{Path: dotgit, Reason: "points to " + printable(spelled) + ", which cannot be read: " + cause(err), Err: err,
			Advice: "run git worktree repair in the main working tree"}
	}
	if !isGitDir(gitDir) {
		return Repository{}, &Error{Path: dotgit, Reason: "points to " + printable(gitDir) + ", which is not a git directory", Advice: "run git worktree repair"}
	}
	var r Repository
	if _, err := os.Lstat(filepath.Join(gitDir, "commondir")); err == nil && filepath.Base(filepath.Dir(gitDir)) == "worktrees" {
		r, err = linked(top, dotgit, gitDir)
		if err != nil {
			return r, err
		}
	} else if r, err = separate(top, dotgit, gitDir); err != nil {
		return r, err
	}
	r.Tree.GitFile = true
	r.addLinks(spelled)
	return r, nil
}

// linked is a worktree made by git worktree add. It is believed only where
// the repository knows it too: a .git file alone could name anybody's.
func linked(top, dotgit, gitDir string) (Repository, error) {
	r := Repository{Layout: Worktree, Top: top, GitDir: gitDir, Worktree: filepath.Base(gitDir)}
	common, err := pointer(filepath.Join(gitDir, "commondir"))
	if err != nil {
		return r, unreadable(filepath.Join(gitDir, "commondir"), err)
	}
	if r.CommonDir, err = filepath.EvalSymlinks(absolute(gitDir, common)); err != nil {
		return r, unreadable(absolute(gitDir, common), err)
	}
	if filepath.Join(r.CommonDir, "worktrees", r.Worktree) != gitDir {
		return r, &Error{Path: filepath.Join(gitDir, "commondir"), Reason: "points to " + printable(r.CommonDir) + ", which is not the repository that the worktree lies in",
			Advice: "look at the file; git worktree add would have written ../.."}
	}
	if err := ownCommondir(r.CommonDir); err != nil {
		return r, err
	}
	back, err := pointer(filepath.Join(gitDir, "gitdir"))
	if err != nil {
		return r, unreadable(filepath.Join(gitDir, "gitdir"), err)
	}
	spelled := absolute(gitDir, back)
	real, err := filepath.EvalSymlinks(spelled)
	if err != nil || real != dotgit {
		return r, &Error{Path: dotgit, Reason: "points to a worktree that belongs to " + printable(filepath.Dir(spelled)),
			Advice: "if this worktree was moved, run git worktree repair in it"}
	}
	r.addLinks(spelled)
	return r, nil
}

// separate is a git directory of its own somewhere else: a submodule's, or one
// made with --separate-git-dir. It becomes a mount that may be written, and the
// .git file may be a session's work: it is believed only where the directory
// names this tree too, and nowhere in the tree of another repository, but for
// that one's submodules.
func separate(top, dotgit, gitDir string) (Repository, error) {
	r := Repository{Layout: Separate, Top: top, GitDir: gitDir, CommonDir: gitDir}
	if err := ownCommondir(gitDir); err != nil {
		return r, err
	}
	back, err := r.pointsBack()
	if err != nil {
		return r, err
	}
	outer := repositoryAbove(top)
	switch {
	case back && outer != "" && under(gitDir, outer) && strings.Contains(gitDir[len(outer):], "/modules/"):
		r.Layout = Submodule
	case outer != "":
		return r, &Error{Path: dotgit, Reason: "points to " + printable(gitDir) + ", which is no submodule of the repository that the file lies in: a session there could have written it",
			Advice: "remove the file if you did not make it; else move " + printable(top) + " out of the other repository's tree"}
	case !back:
		return r, notBack(top, dotgit, gitDir)
	}
	if r.Layout == Separate {
		r.Notes = append(r.Notes, "the git directory "+printable(gitDir)+" is outside the working tree and is writable too")
	}
	return r, nil
}

// notBack refuses a git directory that does not name the tree.
func notBack(top, dotgit, gitDir string) error {
	c, _ := readGitConfig(filepath.Join(gitDir, "config"))
	if filepath.Base(gitDir) == ".git" && filepath.Dir(gitDir) != top || c.Bool("core.bare") {
		return &Error{Path: dotgit, Reason: "points to " + printable(gitDir) + ", the git directory of another repository",
			Advice: "set core.worktree in " + printable(gitDir) + "/config if this is meant, or remove the file"}
	}
	return &Error{Path: dotgit, Reason: "points to " + printable(gitDir) + ", which does not name this working tree in turn, so anybody could have written the file",
		Advice: "if you made it with --separate-git-dir, run on the host: git --git-dir=" + fault.Quoted(gitDir) + " config core.worktree " + fault.Quoted(top) + "; else remove the file"}
}

// repositoryAbove is the git directory that the nearest work tree above top
// shares with its others, empty where top lies in none.
func repositoryAbove(top string) string {
	for dir := top; dir != "/"; {
		dir = filepath.Dir(dir)
		dotgit := filepath.Join(dir, ".git")
		info, err := os.Lstat(dotgit)
		switch {
		case err != nil:
			continue
		case info.IsDir() && isGitDir(dotgit):
			return dotgit
		case info.Mode().IsRegular():
			if r, err := pointed(dir, dotgit); err == nil {
				return r.CommonDir
			}
			return dotgit // whatever it is: no git directory lies below a file
		}
	}
	return ""
}

func absolute(dir, path string) string {
	if filepath.IsAbs(path) {
		return filepath.Clean(path)
	}
	return filepath.Join(dir, path)
}

// pointer reads a file that holds one path, as git does: the line ends at the
// end of the file, and only line breaks are cut off.
func pointer(path string) (string, error) {
	b, err := readSmall(path, maxPointer)
	return strings.TrimRight(string(b), "\r\n"), err
}

// errTooLarge says that a file holds more than was to be read.
var errTooLarge = errors.New("too large")

// readSmall reads a regular file of at most limit bytes, and neither follows a
// link in its last element nor waits for a pipe's writer.
func readSmall(path string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("not a regular file")}
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errTooLarge}
	}
	return b, err
}
