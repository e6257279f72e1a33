package repo

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"syscall"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// maxGitConfig bounds a configuration file; real ones are a few kilobytes.
const maxGitConfig = 1 << 20

// gitConfig is one git configuration file, in order. Keys are in git's own
// normal form: section and name in lower case, the subsection as it is.
type gitConfig []setting

type setting struct {
	key, value string
	implicit   bool // "key" without "=": true
}

// Last is the value that git would use: the last one.
func (c gitConfig) Last(key string) (string, bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].key == key {
			return c[i].value, true
		}
	}
	return "", false
}

// Bool is git's reading of a boolean; anything else is false.
func (c gitConfig) Bool(key string) bool {
	for i := len(c) - 1; i >= 0; i-- {
		if c[i].key == key {
			switch strings.ToLower(c[i].value) {
			case "true", "yes", "on", "1":
				return true
			}
			return c[i].implicit
		}
	}
	return false
}

func (c gitConfig) with(path string) (gitConfig, error) {
	more, err := readGitConfig(path)
	return append(c[:len(c):len(c)], more...), err
}

// readGitConfig reads one file; a missing one is empty, as it is for git.
func readGitConfig(path string) (gitConfig, error) {
	b, err := readSheltered(path, maxGitConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, unreadable(path, err)
	}
	c, err := parseGitConfig(string(b))
	if err != nil {
		return nil, &Error{Path: path, Reason: "is not a git configuration: " + err.Error(), Err: err, Advice: "git config --list --file " + fault.Quoted(path) + " says more"}
	}
	return c, nil
}

// readSheltered reads a file that a session may have moved to its shelter, or
// be moving: that it stands at neither place is then not true.
func readSheltered(path string, limit int64) (b []byte, err error) {
	settled(func() (doubt bool) {
		at := sheltered(path)
		b, err = readSmall(at, limit)
		return err != nil && (at != path || sheltered(path) != at || errors.Is(err, syscall.ELOOP))
	})
	return b, err
}

// parseGitConfig parses the syntax of git-config(1), "Syntax": sections with
// quoted subsections, comments, quotes, escapes, lines continued by a
// backslash.
func parseGitConfig(text string) (gitConfig, error) {
	p := &configParser{text: strings.ReplaceAll(strings.TrimPrefix(text, "\ufeff"), "\r\n", "\n"), line: 1}
	var out gitConfig
	section := ""
	for {
		p.blank()
		switch c := p.peek(); {
		case c == 0:
			return out, nil
		case c == '[':
			var err error
			if section, err = p.section(); err != nil {
				return nil, err
			}
		case letter(c):
			s, err := p.setting(section)
			if err != nil {
				return nil, err
			}
			out = append(out, s)
		default:
			return nil, p.bad(fmt.Sprintf("unexpected %q", c))
		}
	}
}

type configParser struct {
	text string
	pos  int
	line int
}

func (p *configParser) bad(what string) error { return fmt.Errorf("line %d: %s", p.line, what) }

// peek is the next byte, 0 at the end. A NUL in the text ends it too, which is
// an error nowhere: git's own strings end there.
func (p *configParser) peek() byte {
	if p.pos < len(p.text) {
		return p.text[p.pos]
	}
	return 0
}

func (p *configParser) next() byte {
	c := p.peek()
	if p.pos < len(p.text) {
		p.pos++
	}
	if c == '\n' {
		p.line++
	}
	return c
}

// blank skips white space, line breaks and comments.
func (p *configParser) blank() {
	for {
		switch c := p.peek(); c {
		case ' ', '\t', '\n', '\r', '\v', '\f':
			p.next()
		case '#', ';':
			for c := p.peek(); c != '\n' && c != 0; c = p.peek() {
				p.next()
			}
		default:
			return
		}
	}
}

func (p *configParser) section() (string, error) {
	p.next() // [
	start := p.pos
	for c := p.peek(); letter(c) || digit(c) || c == '-' || c == '.'; c = p.peek() {
		p.next()
	}
	name := strings.ToLower(p.text[start:p.pos])
	if name == "" {
		return "", p.bad("a section without a name")
	}
	if p.peek() == ' ' || p.peek() == '\t' {
		for p.peek() == ' ' || p.peek() == '\t' {
			p.next()
		}
		sub, err := p.subsection()
		if err != nil {
			return "", err
		}
		name += "." + sub
	}
	if p.next() != ']' {
		return "", p.bad("a section that does not end")
	}
	return name, nil
}

func (p *configParser) subsection() (string, error) {
	if p.next() != '"' {
		return "", p.bad("a subsection without quotes")
	}
	var b strings.Builder
	for {
		switch c := p.next(); c {
		case 0, '\n':
			return "", p.bad("a subsection that does not end")
		case '"':
			return b.String(), nil
		case '\\':
			b.WriteByte(p.next())
		default:
			b.WriteByte(c)
		}
	}
}

func (p *configParser) setting(section string) (setting, error) {
	start := p.pos
	for c := p.peek(); letter(c) || digit(c) || c == '-'; c = p.peek() {
		p.next()
	}
	s := setting{key: strings.ToLower(p.text[start:p.pos])}
	if section != "" { // git takes a setting before the first section, too
		s.key = section + "." + s.key
	}
	for p.peek() == ' ' || p.peek() == '\t' {
		p.next()
	}
	switch p.peek() {
	case '=':
		p.next()
		var err error
		s.value, err = p.value()
		return s, err
	case '\n', '#', ';', 0:
		s.implicit = true
		return s, nil
	}
	return s, p.bad(fmt.Sprintf("unexpected %q after the name %s", p.peek(), s.key))
}

func (p *configParser) value() (string, error) {
	var b strings.Builder
	quoted := false
	trailing := 0 // unquoted white space at the end is not part of the value
	for {
		c := p.next()
		switch {
		case c == 0 || c == '\n':
			if quoted {
				return "", p.bad("a quote that does not end")
			}
			return b.String()[:b.Len()-trailing], nil
		case !quoted && (c == '#' || c == ';'):
			for c := p.peek(); c != '\n' && c != 0; c = p.peek() {
				p.next()
			}
		case !quoted && (c == ' ' || c == '\t'):
			if b.Len() > 0 {
				b.WriteByte(c)
				trailing++
			}
		case c == '"':
			quoted = !quoted
		case c == '\\':
			e, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteString(e)
			trailing = 0
		default:
			b.WriteByte(c)
			trailing = 0
		}
	}
}

func (p *configParser) escape() (string, error) {
	switch c := p.next(); c {
	case '\n', 0:
		return "", nil
	case 't':
		return "\t", nil
	case 'b':
		return "\b", nil
	case 'n':
		return "\n", nil
	case '\\', '"':
		return string(c), nil
	default:
		return "", p.bad(fmt.Sprintf("unknown escape \\%c", c))
	}
}

func letter(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' }
func digit(c byte) bool  { return c >= '0' && c <= '9' }
