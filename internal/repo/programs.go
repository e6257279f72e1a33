package repo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// programKeys are the settings of git-config(1), and of the manuals that it
// refers to, that name a program; * is a subsection of any name.
var programKeys = []string{
	"alias.*", "browser.*.cmd", "browser.*.path", "core.alternaterefscommand", "core.askpass", "core.editor", "core.fsmonitor", "core.gitproxy",
	"core.pager", "core.sshcommand", "credential.*.helper", "credential.helper", "diff.*.command", "diff.*.textconv", "diff.external",
	"difftool.*.cmd", "difftool.*.path", "filter.*.clean", "filter.*.process", "filter.*.smudge", "gpg.*.defaultkeycommand", "gpg.*.program",
	"gpg.program", "guitool.*.cmd", "hook.*.command", "interactive.difffilter", "lfs.customtransfer.*.path", "man.*.cmd", "man.*.path",
	"merge.*.driver", "mergetool.*.cmd", "mergetool.*.path", "pager.*", "remote.*.receivepack", "remote.*.uploadpack", "sendemail.sendmailcmd",
	"sequence.editor", "submodule.*.update", "tar.*.command", "trailer.*.cmd", "trailer.*.command", "uploadpack.packobjectshook",
}

// shells run the word behind -c, runners the first file that they are given.
var (
	shells  = []string{"ash", "bash", "dash", "ksh", "sh", "zsh"}
	runners = []string{".", "bun", "deno", "env", "lua", "node", "perl", "php", "python", "python3", "ruby", "source", "sudo"}
	// readers take names and patterns that need not be files.
	readers = []string{"awk", "cat", "cut", "git", "grep", "head", "jq", "less", "sed", "sort", "tail", "tr"}
	// builders run what the tree holds, without a word of it.
	builders = []string{
		"bundle", "cargo", "composer", "eval", "go", "gradle", "just", "make", "mvn", "nox", "npm", "npx", "pnpm", "poetry", "pre-commit", "rake", "task",
		"tox", "uv", "uvx", "yarn",
	}
	keywords = []string{"{", "}", "!", "case", "do", "done", "elif", "else", "esac", "exec", "fi", "if", "then", "time", "until", "while"}
)

// given are the variables of a command line that git or the person fills in,
// as words after the program.
var givenVariables = []string{"@", "*", "#", "1", "2", "3", "4", "5", "6", "7", "8", "9", "LOCAL", "REMOTE", "BASE", "MERGED", "GIT_PREFIX", "ARG", "ARGS"}

// command is the command line that a setting has git run, if it is one.
func (s setting) command() (string, bool) {
	known := slices.ContainsFunc(programKeys, func(pattern string) bool {
		before, after, any := strings.Cut(pattern, "*")
		return s.key == pattern || any && len(s.key) > len(before)+len(after) && strings.HasPrefix(s.key, before) && strings.HasSuffix(s.key, after)
	})
	shell, marked := strings.CutPrefix(s.value, "!")
	switch {
	case !known || s.value == "" || s.implicit:
		return "", false
	case strings.HasPrefix(s.key, "alias."), strings.HasPrefix(s.key, "submodule."):
		return shell, marked
	case strings.HasPrefix(s.key, "credential.") && !marked && !strings.HasPrefix(s.value, "/"):
		return "git credential-" + s.value, true
	case s.key == "core.fsmonitor", strings.HasPrefix(s.key, "pager."):
		switch strings.ToLower(s.value) {
		case "true", "yes", "on", "1", "false", "no", "off", "0":
			return "", false
		}
	}
	return shell, true
}

// programs are what a command line runs, as far as it can be told by reading.
type programs struct {
	r     *Repository
	base  string // where git runs it
	found []string
	// unclear says that it may run something else that a session could write.
	unclear bool
}

// read goes through a command line word by word. Every word that is a file of
// the tree counts: which of them are run, only the program before knows.
func (p *programs) read(line string) {
	if path, ok := expand(p.base, line); ok && strings.ContainsAny(line, " \t") && strings.Contains(line, "/") && isFile(path) {
		p.file(path) // git.path and the like take a name with spaces as it is
		return
	}
	l := words{text: line}
	command, args := "", 0
	for {
		w, ok := l.next()
		if !ok {
			break
		}
		switch {
		case w.end:
			command = ""
		case command == "" && (!w.quoted && slices.Contains(keywords, w.text) || assigns(w.text)):
		case command == "":
			command, args = filepath.Base(w.text), 0
			p.unclear = p.unclear || w.variable || slices.Contains(builders, command)
			if strings.Contains(w.text, "/") { // else it is found in PATH
				p.word(w, command, true)
			}
		case command == "env" && assigns(w.text):
		case strings.HasPrefix(w.text, "-"):
			if _, value, ok := strings.Cut(w.text, "="); ok {
				w.text = value
				p.word(w, command, false)
			}
		case slices.Contains(shells, command) && strings.ContainsAny(w.text, " ;|&$`"):
			p.read(w.text)
		default:
			args++
			runs := args == 1 && (slices.Contains(shells, command) || slices.Contains(runners, command))
			p.word(w, command, runs || strings.Contains(w.text, "/") && !slices.Contains(readers, command))
		}
	}
	p.unclear = p.unclear || l.unclear
}

// assigns reports whether a word sets a variable for the command behind it.
func assigns(word string) bool {
	name, _, ok := strings.Cut(word, "=")
	return ok && name != "" && !strings.ContainsFunc(name, func(c rune) bool { return c > 0x7f || !letter(byte(c)) && !digit(byte(c)) && c != '_' })
}

// word looks what one word names; needed says that it names a file even where
// there is none yet, which a session could make then.
func (p *programs) word(w word, command string, needed bool) {
	if w.variable {
		p.unclear = p.unclear || strings.Contains(w.text, "/")
		return
	}
	path, ok := expand(p.base, w.text)
	if !ok {
		p.unclear = p.unclear || strings.HasPrefix(w.text, "~")
		return
	}
	if p.r.inTop(path) == "" || p.r.isGits(path) {
		p.unclear = p.unclear || p.r.isGits(path) && !under(path, filepath.Join(p.r.CommonDir, "hooks"))
		return
	}
	info, err := os.Lstat(path)
	switch {
	case w.glob:
		p.unclear = p.unclear || command != "git"
	case err != nil:
		p.unclear = p.unclear || needed
	case info.IsDir():
		p.unclear = p.unclear || command != "git" && p.r.inTop(path) != p.r.Top && strings.Contains(w.text, "/")
	case command == "git" && info.Mode()&0o111 == 0:
		// an argument of git's, and nothing that could be run
	default:
		p.file(path)
	}
}

// file notes a program in the tree. One that a mount cannot hold, since it is
// a link or has another name, is unclear: it does not refuse the session.
func (p *programs) file(path string) {
	if p.r.inTop(path) == "" {
		return
	}
	info, err := os.Lstat(path)
	real, rerr := filepath.EvalSymlinks(path)
	if err != nil || rerr != nil || !info.Mode().IsRegular() || p.r.inTop(path) != real {
		p.unclear = true
		return
	}
	if _, _, links := identity(info); links > 1 {
		p.unclear = true
		return
	}
	p.found = append(p.found, path)
}

// isGits reports whether path lies in a git directory of the repository.
func (r *Repository) isGits(path string) bool {
	return under(path, r.GitDir) || under(path, r.CommonDir) && !under(path, r.Top) || under(path, r.CommonDir) && under(r.CommonDir, r.Top)
}

// inTop is path by the real name of the tree, empty where it is not in it.
func (r *Repository) inTop(path string) string {
	for _, top := range []string{r.Top, r.Given} {
		if rel, err := filepath.Rel(top, path); top != "" && err == nil && filepath.IsLocal(rel) {
			return filepath.Join(r.Top, rel)
		}
	}
	return ""
}

// addProgram notes what a setting has git run in the tree, and its key where
// that cannot be told.
func (r *Repository) addProgram(base string, s setting) {
	line, ok := s.command()
	if !ok {
		return
	}
	p := programs{r: r, base: base}
	p.read(line)
	for _, path := range p.found {
		r.target(path)
	}
	if key := printable(s.key); p.unclear && !slices.Contains(r.Tree.Unclear, key) {
		r.Tree.Unclear = append(r.Tree.Unclear, key)
	}
}

// A word is one of a command line, without its quotes.
type word struct {
	text     string
	quoted   bool
	glob     bool // holds a pattern of names
	variable bool // holds a variable that the person or git fills in
	end      bool // no word, but the end of a command
}

// words splits a command line as a shell does, as far as this needs no shell.
type words struct {
	text    string
	unclear bool // there is what only a shell can tell
}

// next is the next word.
func (l *words) next() (word, bool) {
	l.text = strings.TrimLeft(l.text, " \t\r<>")
	if l.text == "" {
		return word{}, false
	}
	if strings.ContainsRune(";|&()\n", rune(l.text[0])) {
		l.text = l.text[1:]
		return word{end: true}, true
	}
	var w word
	var b strings.Builder
	quote := byte(0)
	for l.text != "" {
		c := l.text[0]
		if quote == 0 && strings.IndexByte(" \t\r\n;|&()<>", c) >= 0 {
			break
		}
		l.text = l.text[1:]
		switch {
		case c == quote:
			quote = 0
		case quote == 0 && (c == '\'' || c == '"'):
			quote, w.quoted = c, true
		case quote == '\'':
			b.WriteByte(c)
		case c == '\\' && l.text != "":
			b.WriteByte(l.text[0])
			l.text = l.text[1:]
		case c == '`':
			l.unclear = true
		case c == '$':
			l.variable(&w, &b)
		default:
			w.glob = w.glob || quote == 0 && strings.IndexByte("*?[", c) >= 0
			b.WriteByte(c)
		}
	}
	l.unclear = l.unclear || quote != 0
	w.text = b.String()
	return w, true
}

// variable takes what stands behind a dollar sign.
func (l *words) variable(w *word, b *strings.Builder) {
	rest, braced := strings.CutPrefix(l.text, "{")
	n := 0
	for n < len(rest) && (letter(rest[n]) || digit(rest[n]) || rest[n] == '_') {
		n++
	}
	if n == 0 && rest != "" && strings.IndexByte("@*#", rest[0]) >= 0 {
		n = 1
	}
	name := rest[:n]
	if rest = rest[n:]; braced {
		var closed bool
		if rest, closed = strings.CutPrefix(rest, "}"); !closed {
			l.unclear = true
			return
		}
	}
	switch {
	case name == "HOME" && b.Len() == 0:
		b.WriteByte('~')
	case slices.Contains(givenVariables, name):
		w.variable = true
	default:
		l.unclear = true
	}
	l.text = rest
}
