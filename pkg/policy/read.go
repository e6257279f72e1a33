package policy

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// kind is what a JSON value is.
type kind uint8

const (
	kindNull kind = iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
)

func (k kind) String() string {
	return [...]string{"null", "true or false", "a number", "a string", "a list", "an object"}[k]
}

// A node is a JSON value with its place in the source.
type node struct {
	kind    kind
	pos     Position
	text    string // of a string: decoded; of a number: as written; of a bool: true or false
	members []member
	items   []*node
}

type member struct {
	name  string
	pos   Position
	value *node
}

// maxDepth is far above what a policy needs (5) and far below what a stack holds.
const maxDepth = 32

// A reader reads JSON with comments and trailing commas, and is otherwise as
// strict as RFC 8259: encoding/json forgives duplicate keys, other case and
// broken UTF-8, each of which lets a file mean something else than a person
// reads in it. The first fault ends the reading: what follows is guesswork.
type reader struct {
	src   string
	at    int
	depth int
	line  int
	// col is the column of the byte at colAt, so that the columns of a long
	// line cost no second walk over it.
	colAt, col int
}

type syntaxError struct {
	pos     Position
	message string
	hint    string
}

func (e *syntaxError) Error() string { return e.message }

// readJSON returns the value that src holds, or the first fault in it.
func readJSON(src []byte) (*node, *syntaxError) {
	r := &reader{src: string(src), line: 1, col: 1}
	if !utf8.ValidString(r.src) {
		for i, c := range r.src {
			if c == utf8.RuneError && !strings.HasPrefix(r.src[i:], "\uFFFD") {
				return nil, r.faultAt(i, "the text is not valid UTF-8 here", "save the file as UTF-8")
			}
		}
	}
	if strings.HasPrefix(r.src, "\uFEFF") {
		return nil, r.fault("the file starts with a byte order mark", "save the file as UTF-8 without one")
	}
	if err := r.space(); err != nil {
		return nil, err
	}
	if r.at == len(r.src) {
		return nil, r.fault("the file holds no value", "write {} for a policy that says nothing")
	}
	n, err := r.value()
	if err != nil {
		return nil, err
	}
	if err := r.space(); err != nil {
		return nil, err
	}
	if r.at < len(r.src) {
		return nil, r.fault(r.found()+" after the end of the document", "a policy is one object: { … }")
	}
	return n, nil
}

// pos is the place of the next byte. Places are asked for in rising order.
func (r *reader) pos() Position {
	r.col += utf8.RuneCountInString(r.src[r.colAt:r.at])
	r.colAt = r.at
	return Position{r.line, r.col}
}

func (r *reader) newline() {
	r.line++
	r.colAt, r.col = r.at, 1
}

func (r *reader) fault(message, hint string) *syntaxError {
	return &syntaxError{r.pos(), message, hint}
}

// faultAt counts lines itself: offset may lie anywhere.
func (r *reader) faultAt(offset int, message, hint string) *syntaxError {
	before := r.src[:offset]
	start := strings.LastIndexByte(before, '\n') + 1
	return &syntaxError{Position{1 + strings.Count(before, "\n"), 1 + utf8.RuneCountInString(before[start:])}, message, hint}
}

// found names the next character for a message, never raw: it may be a
// control character of somebody's terminal.
func (r *reader) found() string {
	if r.at >= len(r.src) {
		return "the end of the file"
	}
	c, _ := utf8.DecodeRuneInString(r.src[r.at:])
	return strconv.QuoteRuneToASCII(c)
}

// space skips blanks and comments.
func (r *reader) space() *syntaxError {
	for r.at < len(r.src) {
		switch r.src[r.at] {
		case ' ', '\t':
			r.at++
		case '\n':
			r.at++
			r.newline()
		case '\r':
			if err := r.carriageReturn(); err != nil {
				return err
			}
		case '/':
			if err := r.comment(); err != nil {
				return err
			}
		default:
			return nil
		}
	}
	return nil
}

// carriageReturn accepts it before a newline only: editors show a lone one as
// the end of a line, and what they show after it would still be a comment.
func (r *reader) carriageReturn() *syntaxError {
	if !strings.HasPrefix(r.src[r.at:], "\r\n") {
		return r.fault("a carriage return that does not end a line", "end lines with a newline")
	}
	r.at++
	return nil
}

func (r *reader) comment() *syntaxError {
	rest := r.src[r.at:]
	switch {
	case strings.HasPrefix(rest, "//"):
		for r.at < len(r.src) && r.src[r.at] != '\n' {
			if err := r.commentByte(); err != nil {
				return err
			}
		}
	case strings.HasPrefix(rest, "/*"):
		start := r.at
		for r.at += 2; !strings.HasPrefix(r.src[r.at:], "*/"); {
			if r.at >= len(r.src) {
				return r.faultAt(start, "a comment that never ends", "close it with */")
			}
			if err := r.commentByte(); err != nil {
				return err
			}
		}
		r.at += 2
	default:
		return r.fault("found "+r.found()+", expected a value", "a comment starts with // or /*")
	}
	return nil
}

func (r *reader) commentByte() *syntaxError {
	switch c := r.src[r.at]; {
	case c == '\n':
		r.at++
		r.newline()
		return nil
	case c == '\r':
		return r.carriageReturn()
	case c < ' ' && c != '\t':
		return r.fault("the control character "+r.found()+" in a comment", "take it out")
	}
	r.at++
	return nil
}

func (r *reader) value() (*node, *syntaxError) {
	n := &node{pos: r.pos()}
	if r.at >= len(r.src) {
		return nil, r.fault("the file ends where a value is expected", "write one, and close what is open")
	}
	switch c := r.src[r.at]; {
	case c == '{':
		return n, r.object(n)
	case c == '[':
		return n, r.array(n)
	case c == '"':
		var err *syntaxError
		n.kind = kindString
		n.text, err = r.str()
		return n, err
	case c == '-' || '0' <= c && c <= '9':
		return n, r.number(n)
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z':
		return n, r.word(n)
	case c == '\'':
		return nil, r.fault("found "+r.found()+", expected a value", `strings stand in double quotes: "…"`)
	}
	return nil, r.fault("found "+r.found()+", expected a value", `a value is "text", a number, true, false, [ … ] or { … }`)
}

func (r *reader) enter() *syntaxError {
	if r.depth++; r.depth > maxDepth {
		return r.fault(fmt.Sprintf("nested deeper than %d levels", maxDepth), "no policy needs that")
	}
	return nil
}

func (r *reader) array(n *node) *syntaxError {
	n.kind = kindArray
	if err := r.enter(); err != nil {
		return err
	}
	r.at++
	for {
		if err := r.space(); err != nil {
			return err
		}
		if r.next(']') {
			r.depth--
			return nil
		}
		item, err := r.value()
		if err != nil {
			return err
		}
		n.items = append(n.items, item)
		if err := r.comma(']', "list"); err != nil {
			return err
		}
	}
}

func (r *reader) object(n *node) *syntaxError {
	n.kind = kindObject
	if err := r.enter(); err != nil {
		return err
	}
	r.at++
	for {
		if err := r.space(); err != nil {
			return err
		}
		if r.next('}') {
			r.depth--
			return nil
		}
		if err := r.member(n); err != nil {
			return err
		}
		if err := r.comma('}', "object"); err != nil {
			return err
		}
	}
}

func (r *reader) member(n *node) *syntaxError {
	pos := r.pos()
	if r.at >= len(r.src) || r.src[r.at] != '"' {
		return r.fault("found "+r.found()+", expected a key", `keys stand in double quotes: "…"`)
	}
	name, err := r.str()
	if err != nil {
		return err
	}
	if err := r.space(); err != nil {
		return err
	}
	if !r.next(':') {
		return r.fault("found "+r.found()+", expected a colon", `a key and its value are joined by one: "key": …`)
	}
	if err := r.space(); err != nil {
		return err
	}
	v, err := r.value()
	if err != nil {
		return err
	}
	n.members = append(n.members, member{name, pos, v})
	return nil
}

func (r *reader) next(c byte) bool {
	if r.at < len(r.src) && r.src[r.at] == c {
		r.at++
		return true
	}
	return false
}

// comma takes a comma, or looks at the end of what is being read.
func (r *reader) comma(end byte, what string) *syntaxError {
	if err := r.space(); err != nil {
		return err
	}
	if r.next(',') || r.at < len(r.src) && r.src[r.at] == end {
		return nil
	}
	return r.fault(fmt.Sprintf("found %s, expected a comma or the end of the %s", r.found(), what), fmt.Sprintf("put a comma between two entries, and %c behind the last one", end))
}
