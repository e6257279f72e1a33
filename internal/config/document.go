package config

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"
	"github.com/pelletier/go-toml/v2/unstable"

	"github.com/mojoup/mojoup-node/pkg/tomlwords"
)

// A document is a file of settings with the place of everything in it.
type document struct {
	file     string
	text     []byte
	data     map[string]any
	sections []section // the first one stands before every header
}

// A section is a table header and what follows it up to the next one.
type section struct {
	path    []string
	array   bool // [[…]]
	start   int  // offset of the header's line
	end     int  // offset after the header's line
	entries []entry
}

// An entry is one key with its value.
type entry struct {
	path       []string // with the section's
	start, end int      // offsets of key and value together
	value      int      // offset of the value
	inline     bool     // stands in an inline table
}

// parseDocument refuses what is no TOML, keys given twice included.
func parseDocument(file string, text []byte) (*document, error) {
	d := &document{file: file, text: text, data: map[string]any{}}
	if err := toml.Unmarshal(text, &d.data); err != nil {
		return nil, d.syntax(err)
	}
	d.sections = []section{{}}
	p := unstable.Parser{}
	p.Reset(text)
	for p.NextExpression() {
		node := p.Expression()
		if node.Kind == unstable.KeyValue {
			s := &d.sections[len(d.sections)-1]
			s.entries = append(s.entries, d.entries(node, s.path, false)...)
			continue
		}
		path, first, last := keyOf(node)
		d.sections = append(d.sections, section{
			path: path, array: node.Kind == unstable.ArrayTable,
			start: d.lineStart(first), end: d.lineEnd(last),
		})
	}
	if err := p.Error(); err != nil {
		return nil, fmt.Errorf("BUG: parsing %s a second time: %w", file, err)
	}
	return d, nil
}

// syntax gives a parser's error its place, and says it in words.
func (d *document) syntax(err error) error {
	m := tomlwords.Explain(d.text, err)
	return &SyntaxError{File: d.file, Line: m.Line, Column: m.Column, Reason: m.Message, Advice: m.Hint}
}

// entries lists a key with its value, or those inside where the value is an
// inline table that is not empty.
func (d *document) entries(node *unstable.Node, above []string, inline bool) []entry {
	own, _, last := keyOf(node)
	path := append(slices.Clone(above), own...)
	value := node.Value()
	if value.Kind == unstable.InlineTable {
		var out []entry
		for it := value.Children(); it.Next(); {
			if it.Node().Kind == unstable.KeyValue {
				out = append(out, d.entries(it.Node(), path, true)...)
			}
		}
		if len(out) > 0 {
			return out
		}
	}
	start := int(node.Raw.Offset)
	e := entry{path: path, start: start, end: start + int(node.Raw.Length), inline: inline}
	e.value = last + bytes.IndexByte(d.text[last:], '=') + 1
	for d.text[e.value] == ' ' || d.text[e.value] == '\t' {
		e.value++
	}
	return []entry{e}
}

// keyOf returns the parts of a key and the offsets where it begins and ends.
func keyOf(node *unstable.Node) (path []string, first, last int) {
	first = -1
	for it := node.Key(); it.Next(); {
		part := it.Node()
		if part.Kind != unstable.Key {
			continue
		}
		path = append(path, string(part.Data))
		if first < 0 {
			first = int(part.Raw.Offset)
		}
		last = int(part.Raw.Offset + part.Raw.Length)
	}
	return path, first, last
}

// check refuses every key and table that no setting of t has.
func (d *document) check(t table) error {
	keys := map[string]bool{}
	tables := map[string]bool{}
	for _, s := range t.settings {
		keys[s.Key] = true
		for i, r := range s.Key {
			if r == '.' {
				tables[s.Key[:i]] = true
			}
		}
	}
	var bad []error
	refuse := func(at int, key string) {
		bad = append(bad, &PlaceError{Place: fmt.Sprintf("%s:%d", d.file, d.line(at)), Err: t.unknown(key)})
	}
	for _, s := range d.sections {
		if key := joinKey(s.path); s.array || len(s.path) > 0 && !tables[key] {
			refuse(s.start, key)
			continue
		}
		for _, e := range s.entries {
			if key := joinKey(e.path); !keys[key] {
				refuse(e.start, key)
			}
		}
	}
	return firstOf(bad)
}

// joinKey writes a key as `config set` takes it. A part that is no bare word
// keeps its quotes: "a.b" is not a.b.
func joinKey(path []string) string {
	parts := make([]string, len(path))
	for i, p := range path {
		parts[i] = p
		if p == "" || strings.Trim(p, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "" {
			parts[i] = encodeString(p)
		}
	}
	return strings.Join(parts, ".")
}

// find returns the entry of a key, or nil.
func (d *document) find(key string) *entry {
	for i := range d.sections {
		s := &d.sections[i]
		if s.array {
			continue
		}
		for j := range s.entries {
			if joinKey(s.entries[j].path) == key {
				return &s.entries[j]
			}
		}
	}
	return nil
}

// line returns the number of the line that holds an offset, from 1.
func (d *document) line(offset int) int { return bytes.Count(d.text[:offset], []byte("\n")) + 1 }

// lineStart returns the offset of the line that holds an offset.
func (d *document) lineStart(offset int) int {
	return bytes.LastIndexByte(d.text[:offset], '\n') + 1
}

// lineEnd returns the offset after the line that holds an offset.
func (d *document) lineEnd(offset int) int {
	if i := bytes.IndexByte(d.text[offset:], '\n'); i >= 0 {
		return offset + i + 1
	}
	return len(d.text)
}
