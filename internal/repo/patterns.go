package repo

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// maxLooked is how many directory entries the patterns of a policy may
	// lead through, maxMatches how many paths they may name: each is a mount.
	maxLooked  = 200_000
	maxMatches = 500
)

// A Hidden is a path below the work tree of which a session sees an empty
// file or directory only.
type Hidden struct {
	Path string // real
	Dir  bool
}

// AddPolicy adds what the patterns of an effective policy name in the tree as
// it is now: a protected path joins the table, a hidden one [Repository.Hide].
// In a pattern * stands for anything within a name and ** for any number of
// names. A protected path without wildcards that is missing is held.
func (r *Repository) AddPolicy(protect, hide []string) error {
	if len(protect)+len(hide) == 0 {
		return nil
	}
	f := finder{top: r.Top, left: maxLooked}
	found, err := f.all(protect, true)
	if err != nil {
		return err
	}
	for _, path := range found {
		if !slices.Contains(r.Tree.Protect, path) {
			r.Tree.Protect = append(r.Tree.Protect, path)
		}
	}
	if found, err = f.all(hide, false); err != nil {
		return err
	}
	for _, path := range found {
		r.hide(path)
	}
	slices.SortFunc(r.Hide, func(a, b Hidden) int { return strings.Compare(a.Path, b.Path) })
	var outer []Hidden
	for _, h := range r.Hide { // what lies below another goes with it
		if !slices.ContainsFunc(outer, func(o Hidden) bool { return under(h.Path, o.Path) }) {
			outer = append(outer, h)
		}
	}
	r.Hide = outer
	r.Notes = append(r.Notes, f.notes...)
	return r.lookAll()
}

// hide follows links: what stands behind one has a name of its own.
func (r *Repository) hide(path string) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil || real == r.Top || !under(real, r.Top) || r.GitDir != "" && (under(real, r.GitDir) || under(r.GitDir, real)) {
		return // not there inside, or git's own
	}
	info, err := os.Lstat(real)
	if err != nil {
		return
	}
	if _, _, links := identity(info); links > 1 && !info.IsDir() {
		r.Notes = append(r.Notes, printable(path)+" is hidden, but has another hard link")
	}
	if r.tracked(real, info.IsDir()) {
		r.Notes = append(r.Notes, printable(path)+" is hidden, but git tracks it: its content can be read from git's objects, and a commit of all changes inside would empty it")
	}
	r.Hide = append(r.Hide, Hidden{Path: real, Dir: info.IsDir()})
}

// maxIndex is how much of git's index is searched.
const maxIndex = 64 << 20

// tracked reports whether a path, or something below it, stands in git's
// index. Its entries end with the whole path and a zero byte up to version 3
// (gitformat-index(5)); what a newer one shortens is not found.
func (r *Repository) tracked(path string, dir bool) bool {
	rel, err := filepath.Rel(r.Top, path)
	if err != nil || r.GitDir == "" {
		return false
	}
	end := "\x00"
	if dir {
		end = "/"
	}
	index, err := readSmall(filepath.Join(r.GitDir, "index"), maxIndex)
	return err == nil && bytes.Contains(index, []byte(rel+end))
}

// finder looks for what patterns name.
type finder struct {
	top   string
	left  int
	out   []string
	notes []string
}

func (f *finder) all(patterns []string, missing bool) ([]string, error) {
	f.out = nil
	for _, p := range patterns {
		p = strings.TrimSuffix(strings.TrimSuffix(p, "/"), "/**")
		segments := strings.Split(p, "/")
		if p == "**" || segments[0] == ".git" {
			f.notes = append(f.notes, "the pattern "+printable(p)+" of the policy is left out: git's own files have rules of their own")
			if p != "**" {
				continue
			}
			segments = []string{"*"}
		}
		if err := f.below(f.top, segments, missing && !strings.Contains(p, "*")); err != nil {
			return nil, err
		}
	}
	slices.Sort(f.out)
	f.out = slices.Compact(f.out)
	// What lies below another match goes with it.
	var out []string
	for _, path := range f.out {
		if !underAny(path, out) {
			out = append(out, path)
		}
	}
	if len(out) > maxMatches {
		return nil, f.tooMany("match more than 500 paths")
	}
	return out, nil
}

func (f *finder) tooMany(what string) error {
	return &Error{Path: f.top, Reason: "has too many files for the policy's patterns: they " + what,
		Advice: "name directories instead of files in files.protect and files.hide"}
}

// below follows the rest of a pattern from dir.
func (f *finder) below(dir string, segments []string, hold bool) error {
	name, rest := segments[0], segments[1:]
	if !strings.Contains(name, "*") {
		return f.at(filepath.Join(dir, name), rest, hold, true)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, fs.ErrPermission) {
			return nil // what the person cannot read, the session cannot either
		}
		return unreadable(dir, err)
	}
	if name == "**" && len(rest) > 0 {
		if err := f.below(dir, rest, false); err != nil {
			return err
		}
	}
	for _, e := range entries {
		if f.left--; f.left < 0 {
			return f.tooMany("lead through more than 200 000 files")
		}
		if dir == f.top && e.Name() == ".git" {
			continue
		}
		path := filepath.Join(dir, e.Name())
		switch {
		case name == "**" && e.IsDir():
			err = f.below(path, segments, false)
		case name != "**" && matches(name, e.Name()):
			err = f.at(path, rest, false, false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// at takes path, or goes on below it.
func (f *finder) at(path string, rest []string, hold, named bool) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist), err == nil && len(rest) > 0 && !info.IsDir():
		if hold {
			f.out = append(f.out, path) // held, nothing can appear below it
		}
		return nil
	case errors.Is(err, fs.ErrPermission):
		return nil
	case err != nil:
		return unreadable(path, err)
	case len(rest) > 0:
		return f.below(path, rest, hold)
	case info.Mode()&fs.ModeSymlink != 0 && !named:
		f.notes = append(f.notes, printable(path)+" is a symbolic link: a pattern does not protect where it leads")
		return nil
	}
	f.out = append(f.out, path)
	return nil
}

// matches reports whether a name fits a pattern, in which * stands for any
// characters.
func matches(pattern, name string) bool {
	parts := strings.Split(pattern, "*")
	if !strings.HasPrefix(name, parts[0]) {
		return false
	}
	name = name[len(parts[0]):]
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(name, part)
		if i < 0 {
			return false
		}
		name = name[i+len(part):]
	}
	return strings.HasSuffix(name, parts[last])
}
