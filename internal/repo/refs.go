package repo

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

const (
	// maxRefs is how many loose references are read, maxPacked how many bytes
	// of packed ones: they are held while a session lives.
	maxRefs   = 5000
	maxPacked = 1 << 20
)

// Refs are the names of a repository's history and where they point, as its
// files say it.
type Refs struct {
	at       map[string]string // full name to commit; HEAD where it names no branch
	complete bool
	table    string // what tells a change of a reftable, whose content is not read
}

// A Move is one reference that points elsewhere than before. Was is empty for a
// new one, Is for one that was deleted.
type Move struct{ Name, Was, Is string }

// Refs reads them. Where the files lie is git's gitrepository-layout(5).
func (r Repository) Refs() Refs {
	s := Refs{at: map[string]string{}, complete: true}
	if r.GitDir == "" {
		return s
	}
	if info, err := os.Lstat(filepath.Join(r.CommonDir, "reftable", "tables.list")); err == nil {
		s.complete, s.table = false, info.ModTime().String()
		return s
	}
	s.packed(filepath.Join(r.CommonDir, "packed-refs"))
	s.loose(r.CommonDir)
	if text, err := readSmall(filepath.Join(r.GitDir, "HEAD"), maxPointer); err == nil {
		if id := commit(strings.TrimSpace(string(text))); id != "" {
			s.at["HEAD"] = id
		}
	}
	return s
}

func (s *Refs) packed(path string) {
	text, err := readSmall(path, maxPacked)
	if err != nil {
		_, err := os.Lstat(path)
		s.complete = s.complete && err != nil // there is none
		return
	}
	for line := range bytes.Lines(text) {
		id, name, ok := strings.Cut(strings.TrimRight(string(line), "\n"), " ")
		if id = commit(id); ok && id != "" {
			s.at[name] = id
		}
	}
}

func (s *Refs) loose(common string) {
	left := maxRefs
	_ = filepath.WalkDir(filepath.Join(common, "refs"), func(path string, d fs.DirEntry, err error) error {
		if left--; left < 0 {
			s.complete = false
			return fs.SkipAll
		}
		if err != nil || !d.Type().IsRegular() {
			return nil
		}
		text, err := readSmall(path, maxPointer)
		name, errName := filepath.Rel(common, path)
		if id := commit(strings.TrimSpace(string(text))); err == nil && errName == nil && id != "" {
			s.at[name] = id
		}
		return nil
	})
}

// Known reports whether all references are known.
func (s Refs) Known() bool { return s.complete }

// Same reports whether nothing has moved, as far as it is known.
func (s Refs) Same(after Refs) bool {
	return s.table == after.table && len(s.Moves(after)) == 0
}

// Moves are the references that point elsewhere, by their names. Where not all
// are known none counts as deleted.
func (s Refs) Moves(after Refs) []Move {
	var out []Move
	for _, name := range slices.Sorted(maps.Keys(after.at)) {
		if was, is := s.at[name], after.at[name]; was != is {
			out = append(out, Move{name, was, is})
		}
	}
	if !s.complete || !after.complete {
		return out
	}
	for _, name := range slices.Sorted(maps.Keys(s.at)) {
		if after.at[name] == "" && name != "HEAD" { // which names a branch now
			out = append(out, Move{name, s.at[name], ""})
		}
	}
	return out
}

// Commits are those that the references point to, each once.
func (s Refs) Commits() []string {
	return slices.Compact(slices.Sorted(maps.Values(s.at)))
}

// ciPaths are obeyed by servers that hold the repository's secrets.
var ciPaths = []string{".circleci", ".forgejo/workflows", ".gitea/workflows", ".github/actions", ".github/workflows", ".gitlab-ci.yml"}

// ObeyedPaths are the places in a tree that somebody's machine obeys without
// being told to: protected paths, those that are watched, and what servers run.
// They are names from the top of the tree.
func (r Repository) ObeyedPaths() []string {
	paths := slices.Concat(ciPaths, watchedFiles, watchedDirs)
	for _, path := range sandbox.Frozen(r.Tree) {
		rel, err := filepath.Rel(r.Top, path)
		if err == nil && filepath.IsLocal(rel) && rel != "." && !slices.Contains(strings.Split(rel, "/"), ".git") {
			paths = append(paths, rel)
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}
