// Package repo promises to say what a repository is on this disk, before a
// session and after it, by reading and without running git: git obeys the
// configuration of the tree that it looks at, and a session may have written
// that tree.
//
// Every read happens as the uid of the process. Pointers that git follows
// (.git files, commondir, gitdir) are believed only where they point back.
package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Layout says how a work tree hangs together with its git directory.
type Layout string

const (
	None      Layout = "none"      // not a git repository
	Main      Layout = "main"      // .git is a directory here
	Separate  Layout = "separate"  // .git is a file, the directory is elsewhere
	Submodule Layout = "submodule" // the directory is below another repository's modules
	Worktree  Layout = "worktree"  // a linked worktree
)

// A Repository is what [Look] found.
type Repository struct {
	Layout Layout
	// Top is the real path of the work tree's top. Given is the same
	// directory as the person spelled it; it equals Top unless the way there
	// leads through a symbolic link.
	Top, Given string
	// Dir is the real directory that was looked at, at or below Top.
	Dir string
	// GitDir and CommonDir are real paths, empty without git. They differ in a
	// linked worktree, whose name is Worktree.
	GitDir, CommonDir string
	Worktree          string
	// Device and Inode identify Top.
	Device, Inode uint64
	// Reader is the uid that looked: Writable and what the Tree says to be
	// closed hold for that one only, and count no right beyond a user's own.
	Reader int
	// Writable reports whether the reader may make files in Top.
	Writable bool
	// Links are the symbolic links that the spelled paths and git's own
	// pointers lead through, so that the same spellings work elsewhere.
	Links []Link
	// Hide are the paths that the policy hides, see [Repository.AddPolicy].
	Hide []Hidden
	// HostConfig are the configuration files of the person's git that were
	// asked, see [Repository.AddHostConfig].
	HostConfig []string
	// Tree is what the table of protected paths has to know.
	Tree sandbox.Tree
	// Inside are the repositories within the tree, by what makes git take them
	// for one, as far as it was looked at; WholeTree says that all of it was,
	// but for what is Shut: directories that the reader may not look into.
	Inside, Shut []string
	WholeTree    bool
	// Notes are for people: what is unusual here.
	Notes []string
}

// A Link is one symbolic link: At is its own path, To the real path of what it
// points to.
type Link struct{ At, To string }

// An Error says why a directory cannot be a session's repository.
type Error struct {
	Path   string
	Reason string // "is …", "cannot be read: …"
	Advice string
	Err    error // what lies behind it, may be nil
}

func (e *Error) Error() string { return fmt.Sprintf("%s %s", printable(e.Path), e.Reason) }
func (e *Error) Unwrap() error { return e.Err }

// Hint is the next step for people.
func (e *Error) Hint() string { return e.Advice }

// printable quotes a path that would draw on somebody's terminal.
func printable(path string) string {
	if plain(path) {
		return path
	}
	return fmt.Sprintf("%q", path)
}

func plain(path string) bool {
	return utf8.ValidString(path) && !strings.ContainsFunc(path, func(r rune) bool { return r < 0x20 || r >= 0x7f && r < 0xa0 })
}

func unreadable(path string, err error) *Error {
	return &Error{Path: path, Reason: "cannot be read: " + cause(err), Err: err,
		Advice: "check that it exists and that you may read it"}
}

// cause is the last part of a file error, without the path that the sentence
// already holds.
func cause(err error) string {
	if pe, ok := errors.AsType[*fs.PathError](err); ok {
		return pe.Err.Error()
	}
	return err.Error()
}

// Look finds the repository that dir, an absolute path, belongs to. A
// directory outside any repository is taken as it is. What git would follow
// but what does not point back is an [*Error].
func Look(dir string) (Repository, error) {
	if !filepath.IsAbs(dir) {
		return Repository{}, &Error{Path: dir, Reason: "is not an absolute path", Advice: "name the directory from /"}
	}
	dir = filepath.Clean(dir)
	if !plain(dir) {
		return Repository{}, &Error{Path: dir, Reason: "has control characters or broken letters in its name", Advice: "rename the directory"}
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return Repository{}, unreadable(dir, err)
	}
	if info, err := os.Lstat(real); err != nil {
		return Repository{}, unreadable(real, err)
	} else if !info.IsDir() {
		return Repository{}, &Error{Path: real, Reason: "is not a directory", Advice: "name the repository's directory"}
	}
	r, err := discover(real)
	if err != nil {
		return Repository{}, err
	}
	if !plain(r.Top) {
		return Repository{}, &Error{Path: r.Top, Reason: "has control characters or broken letters in its name", Advice: "rename the directory"}
	}
	r.Dir = real
	r.Given = given(dir, real, r.Top)
	r.addLinks(dir)
	info, err := os.Lstat(r.Top)
	if err != nil {
		return Repository{}, unreadable(r.Top, err)
	}
	r.Device, r.Inode, _ = identity(info)
	r.Reader, r.Writable = os.Geteuid(), writable(r.Top, info)
	return r, r.facts()
}

// given spells top as the person spelled dir, where dir's last elements are
// the same as its real ones below top.
func given(dir, real, top string) string {
	below := strings.TrimPrefix(strings.TrimPrefix(real, top), "/")
	if below == "" {
		return dir
	}
	if spelled, ok := strings.CutSuffix(dir, "/"+below); ok {
		return spelled
	}
	return top
}

// addLinks notes every symbolic link on the way to path.
func (r *Repository) addLinks(path string) {
	for _, link := range Links(path) {
		if !slices.Contains(r.Links, link) {
			r.Links = append(r.Links, link)
		}
	}
}

// Links are the symbolic links that a path leads through, outermost first,
// itself included; those before the first name that is missing.
func Links(path string) []Link {
	var out []Link
	cur := "/"
	for name := range strings.SplitSeq(strings.Trim(filepath.Clean(path), "/"), "/") {
		at := filepath.Join(cur, name)
		info, err := os.Lstat(at)
		if err != nil {
			return out
		}
		cur = at
		if info.Mode()&fs.ModeSymlink == 0 {
			continue
		}
		if cur, err = filepath.EvalSymlinks(at); err != nil {
			return out
		}
		out = append(out, Link{At: at, To: cur})
	}
	return out
}
