package profile

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/mojoup/mojoup-node/pkg/tomlwords"
)

// MaxSize bounds a profile's text, in bytes.
const MaxSize = 64 << 10

// A Problem is one thing that is wrong in a profile.
type Problem struct {
	// File is the name that was given to [Parse]; Line starts at 1, 0 means the
	// whole file. Key leads to the value: "key[1].hosts[0]".
	File string `json:"file"`
	Line int    `json:"line,omitempty"`
	Key  string `json:"key,omitempty"`
	// Message says what is wrong, Hint what to write instead, or is empty.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
}

// String is one line: file:line: key: message.
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Key != "" {
		s += ": " + p.Key
	}
	return s + ": " + p.Message
}

// maxProblems bounds what a person is made to read.
const maxProblems = 20

// Errors is every problem of a profile, at most twenty. It is the type of the
// errors of [Parse].
type Errors struct{ Problems []Problem }

// Error is a line for each problem, with its hint.
func (e *Errors) Error() string {
	lines := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		lines[i] = p.String()
		if p.Hint != "" {
			lines[i] += " (" + p.Hint + ")"
		}
	}
	return strings.Join(lines, "\n")
}

// Hint is the next step for people.
func (e *Errors) Hint() string {
	return "correct the profile, then look at it with `mojoup-node tool check " + e.Problems[0].File + "`"
}

// Parse reads a profile. file is its name for messages; the profile's own name
// must be that of the file. The error is an [*Errors].
func Parse(file string, text []byte) (*Profile, error) {
	c := &checker{file: file}
	if len(text) > MaxSize {
		c.problem("", "a profile has a few KiB", "the file has %d bytes, %d at most are read", len(text), MaxSize)
		return nil, c.orNil()
	}
	if !utf8.Valid(text) {
		c.problem("", "save it as UTF-8", "the file is not valid UTF-8")
		return nil, c.orNil()
	}
	p := &Profile{}
	dec := toml.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		c.syntax(text, err)
		return nil, c.orNil()
	}
	c.lines = index(text)
	c.profile(p)
	if err := c.orNil(); err != nil {
		return nil, err
	}
	p.Source = file
	return p, nil
}

type checker struct {
	file     string
	lines    map[string]int // by key
	problems []Problem
}

func (c *checker) orNil() error {
	if len(c.problems) == 0 {
		return nil
	}
	slices.SortStableFunc(c.problems, func(a, b Problem) int { return a.Line - b.Line })
	return &Errors{c.problems[:min(len(c.problems), maxProblems)]}
}

func (c *checker) problem(key, hint, format string, args ...any) {
	c.problems = append(c.problems, Problem{File: c.file, Line: c.line(key), Key: key, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// line is that of a key, or of what it belongs to.
func (c *checker) line(key string) int {
	for key != "" {
		if n := c.lines[key]; n > 0 {
			return n
		}
		key = key[:max(0, strings.LastIndexAny(key, ".["))]
	}
	return 0
}

// syntax tells what the reader of TOML found: what is no TOML, a key that there
// is not, or a value of another type.
func (c *checker) syntax(text []byte, err error) {
	add := func(line int, key, message, hint string) {
		c.problems = append(c.problems, Problem{File: c.file, Line: line, Key: printable(key), Message: printable(message), Hint: hint})
	}
	var into map[string]any
	if wrong := toml.Unmarshal(text, &into); wrong != nil {
		m := tomlwords.Explain(text, wrong)
		add(m.Line, "", m.Message, m.Hint)
		return
	}
	if unknown, ok := errors.AsType[*toml.StrictMissingError](err); ok {
		for i := range unknown.Errors {
			d := &unknown.Errors[i]
			line, _ := d.Position()
			key := strings.Join(d.Key(), ".")
			add(line, key, "there is no such key", "here: "+strings.Join(siblings(key), ", ")+"; docs/tools.md says what each means")
		}
		return
	}
	if wrong, ok := errors.AsType[*toml.DecodeError](err); ok {
		line, _ := wrong.Position()
		key := strings.Join(wrong.Key(), ".")
		message, hint := wants(key)
		add(line, key, cmp.Or(message, strings.TrimPrefix(wrong.Error(), "toml: ")), hint)
		return
	}
	add(0, "", strings.TrimPrefix(err.Error(), "toml: "), "")
}

// printable keeps what somebody wrote from drawing on a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

// index finds the line of every key: "key[1].hosts", "env.set.HOME". A text
// that has been read is read once more, for its places alone.
func index(text []byte) map[string]int {
	lines, tables := map[string]int{}, map[string]int{}
	var p unstable.Parser
	p.Reset(text)
	prefix := ""
	for p.NextExpression() {
		e := p.Expression()
		key, line := "", 0
		for it := e.Key(); it.Next(); {
			n := it.Node()
			key = joined(key, string(n.Data))
			line = p.Shape(n.Raw).Start.Line
			if i, many := tables[key]; many && (!it.IsLast() || e.Kind == unstable.Table) {
				key += "[" + strconv.Itoa(i) + "]"
			}
		}
		switch e.Kind {
		case unstable.ArrayTable:
			at, seen := tables[key]
			if seen {
				at++
			}
			tables[key] = at
			prefix = key + "[" + strconv.Itoa(at) + "]"
			lines[prefix] = line
		case unstable.Table:
			prefix = key
			lines[prefix] = line
		case unstable.KeyValue:
			indexValue(lines, &p, joined(prefix, key), line, e.Value())
		}
	}
	return lines
}

func joined(prefix, key string) string {
	if prefix == "" {
		return key
	}
	return prefix + "." + key
}

// indexValue notes a value and what lies in it, each with the line of its own
// where that is known.
func indexValue(lines map[string]int, p *unstable.Parser, key string, line int, v *unstable.Node) {
	if v.Kind != unstable.InlineTable && v.Kind != unstable.Array && v.Raw.Length > 0 {
		line = p.Shape(v.Raw).Start.Line
	}
	lines[key] = line
	at := 0
	for it := v.Children(); it.Next(); {
		child := it.Node()
		switch {
		case v.Kind == unstable.Array && child.Kind != unstable.Comment:
			indexValue(lines, p, key+"["+strconv.Itoa(at)+"]", line, child)
			at++
		case v.Kind == unstable.InlineTable && child.Kind == unstable.KeyValue:
			name := ""
			for k := child.Key(); k.Next(); {
				name = joined(name, string(k.Node().Data))
			}
			indexValue(lines, p, joined(key, name), line, child.Value())
		}
	}
}

// fileName is what a profile's file is called.
func fileName(name string) string { return name + ".toml" }

// named reports whether a file is that of a profile.
func named(file, name string) bool { return path.Base(file) == fileName(name) }
