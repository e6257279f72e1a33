// Package searchpath promises the directories of a PATH from which the node may run
// programs outside of sandboxes: none in which a session could put one.
package searchpath

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Outside is a PATH without its directories that are relative, lie in one of avoid,
// or lie in a repository, whichever: a shell that has "activated" one has its .venv or
// node_modules in front, and a session in that repository, now or a week ago, could
// write there. A home directory that is a repository itself counts for none.
func Outside(path, home string, avoid ...string) string {
	var out []string
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		dir = filepath.Clean(dir)
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			real = dir // it may come yet
		}
		if !slices.ContainsFunc([]string{dir, real}, func(d string) bool { return within(d, avoid) || inRepository(d, home) }) {
			out = append(out, dir)
		}
	}
	return strings.Join(out, string(filepath.ListSeparator))
}

// Find finds a program in a PATH that Outside has made, "" where it is not there.
// An absolute path is the program itself, of which [Leads] tells where it lies; any
// other path would be another program in each directory.
func Find(path, name string) string {
	if strings.ContainsRune(name, filepath.Separator) {
		if program, err := exec.LookPath(name); err == nil && filepath.IsAbs(name) {
			return program
		}
		return ""
	}
	for _, dir := range filepath.SplitList(path) {
		if program, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return program
		}
	}
	return ""
}

// Leads reports whether a program, where links lead to, lies in one of avoid or in a
// repository.
func Leads(program, home string, avoid ...string) bool {
	real, err := filepath.EvalSymlinks(program)
	return err == nil && (within(real, avoid) || inRepository(filepath.Dir(real), home))
}

func within(dir string, avoid []string) bool {
	return slices.ContainsFunc(avoid, func(a string) bool {
		rel, err := filepath.Rel(a, dir)
		return a != "" && err == nil && filepath.IsLocal(rel)
	})
}

// inRepository looks for git's directory, or the file of a worktree, at a directory
// and at all above it.
func inRepository(dir, home string) bool {
	for ; dir != "/" && dir != "."; dir = filepath.Dir(dir) {
		if dir == filepath.Clean(home) {
			continue
		}
		if _, err := os.Lstat(filepath.Join(dir, ".git")); err == nil {
			return true
		}
	}
	return false
}
