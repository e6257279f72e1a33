// Package tomlwords promises that whoever wrote a file of TOML that cannot be
// read is told what is wrong in plain words, where, and what to write instead,
// without having to know TOML. What it suggests, it has read itself.
package tomlwords

import (
	"errors"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// A Mistake is why a text is no TOML.
type Mistake struct {
	Line, Column int // from 1
	// Message says what is wrong, Hint what to write instead. What somebody
	// wrote is quoted in them, cut, and cannot draw on a terminal.
	Message, Hint string
}

// Explain puts the reader's error about a text into words.
func Explain(text []byte, err error) Mistake {
	m := Mistake{Line: 1, Column: 1}
	if at, ok := errors.AsType[*toml.DecodeError](err); ok {
		m.Line, m.Column = at.Position()
	}
	m.Message, m.Hint = words(place(text, m.Line, m.Column))
	if m.Message == "" {
		// What is right by itself is wrong beside the rest: a name that is
		// there already. The reader says which.
		m.Message = shown(strings.TrimPrefix(err.Error(), "toml: "))
	}
	return m
}

// A spot is a place in a text: the line as it stands, split at the place, and
// the list or table in braces that is open there.
type spot struct {
	before, after string
	open          byte // '[' or '{', 0 where nothing is open
	since         int  // the line in which that began
	line          int
}

func place(text []byte, line, column int) spot {
	lines := strings.SplitAfter(string(text), "\n")
	line = min(max(line, 1), len(lines))
	start := len(strings.Join(lines[:line-1], ""))
	at := strings.TrimRight(lines[line-1], "\r\n")
	column = min(max(column-1, 0), len(at))
	s := spot{before: at[:column], after: at[column:], line: line}
	s.open, s.since = opened(string(text[:start+column]))
	return s
}

// opened finds the list or table that a text leaves open, and its line.
func opened(text string) (open byte, since int) {
	type begun struct {
		what byte
		line int
	}
	var stack []begun
	line, value := 1, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case c == '\n':
			line++
			value = value && len(stack) > 0
		case c == '#':
			for i+1 < len(text) && text[i+1] != '\n' {
				i++
			}
		case c == '"' || c == '\'':
			end := endOfText(text, i)
			line += strings.Count(text[i:end], "\n")
			i = end - 1
		case c == '=':
			value = true
		case value && (c == '[' || c == '{'):
			stack = append(stack, begun{c, line})
		case (c == ']' || c == '}') && len(stack) > 0:
			stack = stack[:len(stack)-1]
		}
	}
	if len(stack) == 0 {
		return 0, 0
	}
	last := stack[len(stack)-1]
	return last.what, last.line
}

// endOfText is the offset behind the quoted text that begins at i: behind its
// line where it does not end there, or behind everything for one of many lines.
func endOfText(text string, i int) int {
	quote := text[i : i+1]
	if strings.HasPrefix(text[i:], strings.Repeat(quote, 3)) {
		quote = strings.Repeat(quote, 3)
	}
	for j := i + len(quote); j < len(text); j++ {
		switch {
		case quote[0] == '"' && text[j] == '\\':
			j++
		case strings.HasPrefix(text[j:], quote):
			return j + len(quote)
		case text[j] == '\n' && len(quote) == 1:
			return j
		}
	}
	return len(text)
}

const example = `a line is name = "text", with the text in quotes`

func words(s spot) (message, hint string) {
	whole := strings.TrimSpace(s.before + s.after)
	name, value, isValue := cutValue(s.before + s.after)
	switch {
	case hasAny(whole, "//", ";", "/*", "--", "<!--"):
		return shown(whole) + " is no comment", "a comment begins with #"
	case s.open == '[' && s.since < s.line && isValue, s.open == '{' && s.since < s.line:
		return unclosed(s)
	case s.open == '[' && s.since < s.line:
		return element(s)
	case strings.HasPrefix(whole, "["):
		if reads(whole) {
			return "", "a table stands in a file once; put its lines below the first one"
		}
		return shown(whole) + " is no header of a table", "write [name], or [[name]] for one of several, alone in its line"
	case !isValue && hasAny(whole, "{", "}"):
		return "this is not TOML", example + "; JSON is read elsewhere"
	case !isValue:
		return fmt.Sprintf("there is no = behind %s", shown(firstWord(whole))), suggestion(strings.Replace(whole, ":", "=", 1), example)
	case name == "":
		return "there is no name before the =", example
	case !reads(name + ` = ""`):
		return fmt.Sprintf("%s cannot be a name", shown(name)), "a name is letters, digits, _ and -, in quotes where there is anything else; " + example
	}
	return valued(name, value)
}

// valued is about a line with a name that is right.
func valued(name, value string) (message, hint string) {
	switch {
	case value == "":
		return "there is no value behind " + shown(name+" ="), "write one, or take the line out; " + example
	case strings.HasPrefix(value, "="):
		return "there is one = too many", suggestion(name+" "+value, example)
	case hasAny(value, ">"):
		return "a name and its value are joined by = alone", suggestion(name+" = "+strings.TrimSpace(value[1:]), example)
	case reads(name + " = " + value):
		return "", "a name stands in a file once; take one of the two out"
	case hasAny(value, "“", "”", "„", "‘", "’", "«"):
		return shown(value) + " does not stand in plain quotes", suggestion(name+" = "+quoted(strings.Trim(value, "“”„‘’«»")), `plain quotes are "`)
	case hasAny(value, `"`, `'`):
		return text(name, value)
	case hasAny(value, "["):
		return "this is no list: " + shown(value), `a list is ["one", "two"]: each text in quotes, commas between, and ] at the end`
	case hasAny(value, "{"):
		return "this is no table: " + shown(value), `a table in one line is { ONE = "1", TWO = "2" }`
	case isOneOf(value, "True", "TRUE", "yes", "Yes", "YES"):
		return shown(value) + " is no value", fmt.Sprintf("write %s = true, or %s where a text is meant", shown(name), quoted(value))
	case isOneOf(value, "False", "FALSE", "no", "No", "NO"):
		return shown(value) + " is no value", fmt.Sprintf("write %s = false, or %s where a text is meant", shown(name), quoted(value))
	}
	return shown(bare(value)) + " stands without quotes, and is neither a number nor true or false", suggestion(name+" = "+quoted(bare(value)), "put it in quotes")
}

// text is about a value that begins with a quote.
func text(name, value string) (message, hint string) {
	if strings.HasPrefix(value, strings.Repeat(value[:1], 3)) {
		return "the text of several lines does not end", "end it with " + strings.Repeat(value[:1], 3)
	}
	end := endOfText(value, 0)
	first := value[:end]
	switch {
	case len(first) == 1 || first[len(first)-1] != value[0] || escaped(first):
		return "the text does not end in its line", suggestion(name+" = "+value+value[:1], "end it with "+value[:1]+" in the same line")
	case !reads(name + " = " + first):
		if value[0] == '"' && strings.Contains(first, `\`) {
			return shown(first) + ` has a \ that means nothing`, suggestion(name+" = '"+first[1:end-1]+"'", `write \\ for a \`)
		}
		return shown(first) + " holds what cannot be written so", `take the character out, or write it as "\u0001"`
	}
	return shown(strings.TrimSpace(value[end:])) + " stands behind the value", `a name has one value; a list is ["one", "two"], and a comment begins with #`
}

// escaped reports whether the quote at the end of a text belongs to it.
func escaped(s string) bool {
	body := s[:len(s)-1]
	return s[0] == '"' && (len(body)-len(strings.TrimRight(body, `\`)))%2 == 1
}

// element is about a line within a list of several.
func element(s spot) (message, hint string) {
	item := strings.TrimSpace(s.after)
	item, _, _ = strings.Cut(item, ",")
	item = strings.TrimSpace(strings.TrimRight(bare(item), "]"))
	if item == "" || hasAny(item, `"`, `'`, "[", "{") || reads("x = "+item) {
		return unclosed(s)
	}
	return shown(item) + " stands without quotes, and is neither a number nor true or false", suggestedValue(quoted(item))
}

func unclosed(s spot) (message, hint string) {
	if s.open == '{' {
		return fmt.Sprintf("the table that begins in line %d does not go on so", s.since), `a table in one line is { ONE = "1", TWO = "2" }`
	}
	return fmt.Sprintf("the list that begins in line %d does not go on so", s.since), `a list is ["one", "two"]: each text in quotes, commas between, and ] at the end`
}

// cutValue splits a line at the = that is in no quotes.
func cutValue(line string) (name, value string, found bool) {
	for i := 0; i < len(line); i++ {
		switch line[i] {
		case '"', '\'':
			i = endOfText(line, i) - 1
		case '#':
			return "", "", false
		case '=':
			value = strings.TrimSpace(line[i+1:])
			if strings.HasPrefix(value, "#") {
				value = ""
			}
			return strings.TrimSpace(line[:i]), value, true
		}
	}
	return "", "", false
}

// bare is a value without quotes, and without the comment behind it.
func bare(value string) string {
	value, _, _ = strings.Cut(value, "#")
	return strings.TrimSpace(value)
}

func quoted(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`
}

// reads reports whether a line is TOML by itself.
func reads(line string) bool {
	var into map[string]any
	return toml.Unmarshal([]byte(line), &into) == nil
}

// suggestion is a line that can be read, or else what is to be kept in mind.
func suggestion(line, otherwise string) string {
	if len(line) > 200 || !reads(line) || strings.ContainsFunc(line, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return otherwise
	}
	return "write " + line
}

func suggestedValue(value string) string {
	if !strings.HasPrefix(suggestion("x = "+value, ""), "write") {
		return "put it in quotes"
	}
	return "write " + value
}

func hasAny(s string, beginnings ...string) bool {
	for _, b := range beginnings {
		if strings.HasPrefix(s, b) {
			return true
		}
	}
	return false
}

func isOneOf(s string, words ...string) bool {
	for _, w := range words {
		if bare(s) == w {
			return true
		}
	}
	return false
}

func firstWord(s string) string {
	if f := strings.FieldsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || r == ':' }); len(f) > 0 {
		return f[0]
	}
	return s
}

// shown is what somebody wrote, cut, so that it cannot draw on a terminal.
func shown(s string) string {
	s = cut(s)
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s)
}

func cut(s string) string {
	const most = 60
	if utf8.RuneCountInString(s) > most {
		return string([]rune(s)[:most]) + "…"
	}
	return s
}
