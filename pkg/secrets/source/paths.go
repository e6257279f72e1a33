package source

import (
	"bufio"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Paths are the files by which the key is read, as far as that can be told by
// reading: the file itself, or whatever a word of the command may name, and all
// that links lead through, also those that stand for a directory on the way. Words
// without a slash are looked for in search, a PATH, or in this process' own where
// that is empty; those that are relative also in every directory that the command
// names. What a script names in its first line counts, too. Whoever can change one
// of them decides what runs, or what is sent; whoever can read the file has the
// key. A command that puts a name together is not seen through, nor what a program
// reads on its own.
func (r Reference) Paths(home, search string) []string {
	t := &trail{search: search}
	switch r.Kind {
	case File:
		t.follow(r.At)
	case Command:
		for _, h := range slices.Compact([]string{home, os.Getenv("HOME")}) {
			t.command(r.At, h)
		}
	}
	return t.paths
}

// A trail is what a key is read by.
type trail struct {
	search string
	paths  []string
}

func (t *trail) add(path string) {
	if !slices.Contains(t.paths, path) {
		t.paths = append(t.paths, path)
	}
}

// maxLinks is how many links to links the kernel follows.
const maxLinks = 40

// follow adds a path, each link on its way, and what it leads to, which it returns.
func (t *trail) follow(path string) (end string) {
	t.add(filepath.Clean(path))
	at, rest := "/", strings.Split(path, "/")
	for links := 0; len(rest) > 0 && links <= maxLinks; {
		name := rest[0]
		rest = rest[1:]
		switch name {
		case "", ".":
			continue
		case "..":
			at = filepath.Dir(at)
			continue
		}
		at = filepath.Join(at, name)
		to, err := os.Readlink(at)
		if err != nil {
			continue
		}
		t.add(at)
		links++
		rest = append(strings.Split(to, "/"), rest...)
		if at = filepath.Dir(at); filepath.IsAbs(to) {
			at = "/"
		}
	}
	t.add(at)
	return at
}

// run adds a file that may be run, with what runs it.
func (t *trail) run(path string) {
	if slices.Contains(t.paths, path) {
		return
	}
	for _, word := range interpreter(t.follow(path)) {
		if !strings.Contains(word, "/") {
			word = lookIn(t.search, word)
		}
		if filepath.IsAbs(word) {
			t.run(word)
		}
	}
}

// command adds what a command line names.
func (t *trail) command(line, home string) {
	var dirs, relative []string
	if wd, err := os.Getwd(); err == nil {
		dirs = append(dirs, wd)
	}
	for _, word := range words(expanded(line, home)) {
		if word == "~" || strings.HasPrefix(word, "~/") {
			word = home + word[1:]
		}
		if !filepath.IsAbs(word) {
			relative = append(relative, word)
			continue
		}
		t.run(word)
		if info, err := os.Stat(word); err == nil && info.IsDir() {
			dirs = append(dirs, word)
		}
	}
	for _, word := range relative {
		if found := lookIn(t.search, word); found != "" && !strings.Contains(word, "/") {
			t.run(found)
		}
		for _, dir := range dirs { // op://vault/item and the like are in none
			if _, err := os.Lstat(dir + "/" + word); err == nil {
				t.run(dir + "/" + word)
			}
		}
	}
}

// expanded is a command line with the variables that its shell finds set.
func expanded(line, home string) string {
	return os.Expand(line, func(name string) string {
		if name == "HOME" {
			return home
		}
		if v, set := os.LookupEnv(name); set {
			return v
		}
		return "${" + name + "}"
	})
}

const (
	// apart are what ends a word outside of quotes, dividers what may stand between
	// two paths, or before one, in a word.
	apart    = " \t`;|&()<>{}$"
	dividers = "=:,@"
)

// words are what a shell, or a program that it runs, may take for a word or a path:
// the words without their quotes, the words of those, as `sh -c` has them, and the
// parts of each.
func words(line string) (out []string) {
	add := func(word string) {
		if word != "" && !slices.Contains(out, word) {
			out = append(out, word)
		}
	}
	split := func(s, at string) []string {
		return strings.FieldsFunc(s, func(c rune) bool { return strings.ContainsRune(at, c) })
	}
	done := map[string]bool{}
	for some := []string{line}; len(some) > 0; {
		word := some[0]
		some = some[1:]
		if done[word] {
			continue
		}
		done[word] = true
		some = append(some, unquoted(word)...)
		for _, begin := range []string{"$(", "`"} { // in quotes, quotes begin anew
			if _, inner, ok := strings.Cut(word, begin); ok {
				some = append(some, inner)
			}
		}
		for _, part := range append([]string{word}, split(word, dividers)...) {
			add(part)
			// As in -I/dir and --file=/some:where: what is before is no path.
			if at := strings.Index(part, "/"); at > 0 && (part[0] == '-' || strings.ContainsAny(part[:at], dividers)) {
				add(part[at:])
			}
		}
	}
	for _, word := range split(line, apart+dividers+`'"`) { // quotes that are not closed
		add(word)
	}
	return out
}

// unquoted are the words of a command line, without quotes.
func unquoted(line string) (out []string) {
	var word strings.Builder
	end := func() {
		if word.Len() > 0 {
			out = append(out, word.String())
		}
		word.Reset()
	}
	quote, escaped := rune(0), false
	for _, c := range line {
		switch {
		case escaped:
			escaped = false
			word.WriteRune(c)
		case c == '\\' && quote != '\'':
			escaped = true
		case quote != 0 && c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote = c
		case quote == 0 && strings.ContainsRune(apart, c):
			end()
		default:
			word.WriteRune(c)
		}
	}
	end()
	return out
}

// interpreter is what the first line of a script says that runs it.
func interpreter(path string) []string {
	if info, err := os.Stat(path); err != nil || !info.Mode().IsRegular() {
		return nil // a pipe would be waited for
	}
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	line, _ := bufio.NewReader(io.LimitReader(f, 256)).ReadString('\n')
	rest, ok := strings.CutPrefix(line, "#!")
	if !ok {
		return nil
	}
	return strings.Fields(rest)
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
