package config

import (
	"bytes"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// A Change is what Set or Unset did to the file.
type Change struct {
	File    string
	Key     string
	Line    int // where the setting stands now, or stood; 0 where nothing changed
	Changed bool
	// Notices say in one sentence each why the change may not do what was
	// meant.
	Notices []string
}

// An EditError says that the file is written in a way that cannot be edited
// without touching more than the one line.
type EditError struct {
	Place  string // "file:line"
	Reason string
}

func (e *EditError) Error() string { return e.Place + ": " + e.Reason }

// Code is for programs.
func (e *EditError) Code() string { return "config-edit" }

// Exit is that of a command that cannot be carried out as given.
func (e *EditError) Exit() int { return exitUsage }

// Hint says what to do.
func (e *EditError) Hint() string { return "change that line with an editor; nothing was changed" }

// Set writes one setting into the file, on the line where it stands or on one
// that it adds, and leaves every other byte as it is. The new file replaces
// the old one whole or not at all. A file that is no TOML is refused.
func (o Origin) Set(key, text string) (Change, error) { return o.set(current, key, text) }

func (o Origin) set(t table, key, text string) (Change, error) {
	s, err := t.lookup(key)
	if err != nil {
		return Change{}, err
	}
	data, err := s.parse(text)
	if err != nil {
		return Change{}, err
	}
	ch := Change{File: o.File, Key: key}
	if s.Later != "" {
		ch.Notices = append(ch.Notices, fmt.Sprintf("%s has no effect: %s", key, s.Later))
	}
	if r := s.refused(text); r != "" {
		ch.Notices = append(ch.Notices, r)
	}
	return o.edit(t, s, ch, func(d *document) ([]byte, error) { return d.set(key, s.encode(text, data)) })
}

// Unset takes one setting out of the file, with its line. It also takes out a
// key that no setting has, so that a mistake can be undone.
func (o Origin) Unset(key string) (Change, error) { return o.unset(current, key) }

func (o Origin) unset(t table, key string) (Change, error) {
	s, unknown := t.lookup(key)
	return o.edit(t, s, Change{File: o.File, Key: key}, func(d *document) ([]byte, error) {
		if unknown != nil && d.find(key) == nil {
			return nil, unknown
		}
		return d.unset(key)
	})
}

// edit reads the file, changes it and writes it back, while no other process
// does the same.
func (o Origin) edit(t table, s Setting, ch Change, change func(*document) ([]byte, error)) (Change, error) {
	if o.File == "" {
		return Change{}, &FileError{Doing: "writing", Err: errors.New("there is no file of settings")}
	}
	f, err := lockFile(o.File)
	if err != nil {
		return Change{}, &FileError{File: o.File, Doing: "writing", Err: err}
	}
	defer f.unlock()
	before, err := o.read()
	if err != nil {
		return Change{}, err
	}
	text, err := change(before)
	if err != nil {
		return Change{}, err
	}
	after, err := parseDocument(o.File, text)
	if err != nil {
		return Change{}, fmt.Errorf("BUG: the changed file: %w", err)
	}
	ch.Changed = !bytes.Equal(before.text, text)
	if e := after.find(ch.Key); e != nil {
		ch.Line = after.line(e.start)
	} else if e := before.find(ch.Key); e != nil {
		ch.Line = before.line(e.start)
	}
	ch.Notices = append(ch.Notices, o.overridden(s)...)
	if !ch.Changed {
		return ch, nil
	}
	if err := f.replace(text); err != nil {
		return Change{}, &FileError{File: o.File, Doing: "writing", Err: err}
	}
	if _, err := t.resolve(after, nil); err != nil {
		ch.Notices = append(ch.Notices, "the file has another mistake, and no setting of it is taken: "+err.Error())
	}
	if s.Restart && s.Later == "" {
		ch.Notices = append(ch.Notices, ch.Key+" takes effect when the node starts the next time")
	}
	return ch, nil
}

// overridden says that a variable decides, whatever the file holds.
func (o Origin) overridden(s Setting) []string {
	if s.Key == "" {
		return nil
	}
	for _, kv := range o.Environ {
		if name, _, _ := strings.Cut(kv, "="); name == s.Variable() {
			return []string{fmt.Sprintf("%s is set in this environment and overrides the file", name)}
		}
	}
	return nil
}

// set returns the text with key set to a value written in TOML.
func (d *document) set(key, value string) ([]byte, error) {
	path := strings.Split(key, ".")
	if e := d.find(key); e != nil {
		text := splice(d.text, e.value, e.end, value)
		if !d.onlyChanged(text, path, true) {
			return nil, d.cannotEdit(e.start, key)
		}
		return text, nil
	}
	// Where a new line may stand depends on what TOML allows to be reopened:
	// the first place that changes nothing else is taken.
	for _, text := range d.insertions(path, value) {
		if d.onlyChanged(text, path, true) {
			return text, nil
		}
	}
	at := 0
	for _, s := range d.sections {
		for _, e := range s.entries {
			if commonParts(e.path, path) > 0 {
				at = e.start
			}
		}
	}
	return nil, d.cannotEdit(at, key)
}

// unset returns the text without key.
func (d *document) unset(key string) ([]byte, error) {
	e := d.find(key)
	if e == nil {
		return d.text, nil
	}
	text := splice(d.text, d.lineStart(e.start), d.lineEnd(e.end), "")
	if !d.onlyChanged(text, e.path, false) {
		return nil, d.cannotEdit(e.start, key)
	}
	return text, nil
}

func (d *document) cannotEdit(at int, key string) error {
	return &EditError{Place: fmt.Sprintf("%s:%d", d.file, d.line(at)), Reason: key + " cannot be changed here without rewriting other settings"}
}

// insertions lists the texts with a new line, the best place first: the
// section that shares most of the key, there after the last entry that shares
// most; else a new section at the end; else the top.
func (d *document) insertions(path []string, value string) [][]byte {
	order := []int{}
	for i, s := range d.sections {
		if !s.array && commonParts(s.path, path) == len(s.path) && len(s.path) < len(path) {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return len(d.sections[b].path) - len(d.sections[a].path) })
	var out [][]byte
	for _, i := range order {
		// Alone, the top is for files without headers: a line there would
		// stand far from its relatives.
		if i == 0 && len(d.sections) > 1 && len(d.sections[0].entries) == 0 {
			out = append(out, d.appendSection(path, value))
		}
		out = append(out, d.insertInto(d.sections[i], path, value))
	}
	return append(out, d.appendSection(path, value))
}

// insertInto adds a line to a section.
func (d *document) insertInto(s section, path []string, value string) []byte {
	at, indent, most := s.end, "", -1
	if len(s.path) == 0 && len(s.entries) == 0 {
		at = d.endOfTop()
	}
	for _, e := range s.entries {
		if e.inline {
			at = max(at, d.lineEnd(e.end))
			continue
		}
		if n := commonParts(e.path, path); n >= most {
			start := d.lineStart(e.start)
			at, indent, most = d.lineEnd(e.end), string(d.text[start:e.start]), n
		}
	}
	line := indent + strings.Join(path[len(s.path):], ".") + " = " + value + d.newline()
	if at > 0 && d.text[at-1] != '\n' { // the last line has no end
		line = d.newline() + strings.TrimSuffix(line, d.newline())
	}
	return splice(d.text, at, at, line)
}

// endOfTop is where the top ends in a file without entries there: at the end,
// or before the first header.
func (d *document) endOfTop() int {
	if len(d.sections) > 1 {
		return d.sections[1].start
	}
	return len(d.text)
}

// appendSection adds a header and a line at the end.
func (d *document) appendSection(path []string, value string) []byte {
	nl := d.newline()
	last := len(path) - 1
	text := "[" + strings.Join(path[:last], ".") + "]" + nl + path[last] + " = " + value + nl
	if n := len(d.text); n > 0 {
		text = nl + text
		if d.text[n-1] != '\n' {
			text = nl + text
		}
	}
	return splice(d.text, len(d.text), len(d.text), text)
}

// newline is the end of line that the file uses.
func (d *document) newline() string {
	if i := bytes.IndexByte(d.text, '\n'); i > 0 && d.text[i-1] == '\r' {
		return "\r\n"
	}
	return "\n"
}

// onlyChanged reports whether text means what the document means, but for the
// one key, which it has or has not.
func (d *document) onlyChanged(text []byte, path []string, has bool) bool {
	after, err := parseDocument(d.file, text)
	if err != nil || (after.find(joinKey(path)) != nil) != has {
		return false
	}
	return reflect.DeepEqual(without(d.data, path), without(after.data, path))
}

// without copies a table without one key, and without tables that are empty:
// a dotted key makes some that go with it.
func without(table map[string]any, path []string) map[string]any {
	out := map[string]any{}
	for k, v := range table {
		mine := len(path) > 0 && k == path[0]
		if mine && len(path) == 1 {
			continue
		}
		if sub, ok := v.(map[string]any); ok {
			var rest []string
			if mine {
				rest = path[1:]
			}
			if sub = without(sub, rest); len(sub) == 0 {
				continue
			}
			v = sub
		}
		out[k] = v
	}
	return out
}

// commonParts counts the parts that two keys begin with alike.
func commonParts(a, b []string) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// splice returns a copy of text with [from, to) replaced.
func splice(text []byte, from, to int, by string) []byte {
	out := make([]byte, 0, len(text)+len(by))
	out = append(out, text[:from]...)
	out = append(out, by...)
	return append(out, text[to:]...)
}
