package source

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Paths are the files by which the key is read, as far as that can be told by
// reading: the file itself, or whatever a word of the command may name, and all
// that links lead through. Words without a slash are looked for in search, a PATH,
// or in this process' own where that is empty. Whoever can change one of them
// decides what runs, or what is sent; whoever can read the file has the key. A
// command that puts a name together is not seen through.
func (r Reference) Paths(home, search string) []string {
	var out []string
	add := func(path string) {
		for range 40 { // links that lead to links, as many as the kernel follows
			if slices.Contains(out, path) {
				return
			}
			out = append(out, path)
			if real, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil && !slices.Contains(out, filepath.Join(real, filepath.Base(path))) {
				out = append(out, filepath.Join(real, filepath.Base(path)))
			}
			to, err := os.Readlink(path)
			if err != nil {
				return
			}
			if !filepath.IsAbs(to) {
				to = filepath.Join(filepath.Dir(path), to)
			}
			path = filepath.Clean(to)
		}
	}
	switch r.Kind {
	case File:
		add(filepath.Clean(r.At))
	case Command:
		line := strings.NewReplacer("${HOME}", home, "$HOME", home).Replace(r.At)
		for _, word := range strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t'\"`;|&()<>{}=,$", c) }) {
			if rest, ok := strings.CutPrefix(word, "~/"); ok {
				word = filepath.Join(home, rest)
			}
			if !strings.Contains(word, "/") {
				word = lookIn(search, word)
			}
			relative := !filepath.IsAbs(word)
			path, err := filepath.Abs(word)
			if relative && err == nil { // op://vault/item and the like are no files
				_, err = os.Lstat(path)
			}
			if err == nil && word != "" {
				add(path)
			}
		}
	}
	return out
}

// lookIn finds a program in a PATH, "" where it is not there.
func lookIn(path, name string) string {
	if path == "" || name == "" {
		found, _ := exec.LookPath(name)
		return found
	}
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found
		}
	}
	return ""
}
