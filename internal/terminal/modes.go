package terminal

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// A kind is what a parser has come to the end of.
type kind uint8

const (
	unfinished kind = iota
	character       // or a control byte
	escape          // ESC and one more, perhaps with intermediates
	control         // CSI …
	text            // OSC, DCS, APC, PM or SOS, with its end
)

// maxSequence bounds what a parser keeps of a sequence. What is longer is
// still followed to its end.
const maxSequence = 256

// parser finds the sequences in a terminal's output, a byte at a time.
type parser struct {
	seq   []byte // the sequence or character so far
	state kind   // what it will be, unfinished between two
	esc   bool   // the last byte of a text was ESC
	more  int    // continuation bytes that the character still wants
}

// next takes one byte and says what ended with it; p.seq is that.
func (p *parser) next(b byte) kind {
	if p.state == unfinished {
		p.seq = p.seq[:0]
	}
	if len(p.seq) < maxSequence {
		p.seq = append(p.seq, b)
	}
	switch p.state {
	case unfinished:
		return p.first(b)
	case character:
		if b < 0x80 || b >= 0xc0 { // cut off: this begins something else
			p.seq, p.state = append(p.seq[:0], b), unfinished
			return p.first(b)
		}
		if p.more--; p.more == 0 {
			return p.end(character)
		}
	case escape:
		return p.escape(b)
	case control:
		switch {
		case b == esc:
			p.restart()
		case b == can || b == sub, b >= 0x40 && b != 0x7f:
			return p.end(control)
		}
	case text:
		switch {
		case b == bel || b == can || b == sub, p.esc && b == '\\':
			return p.end(text)
		case p.esc:
			p.restart()
			p.seq = append(p.seq, b)
			return p.escape(b)
		}
		p.esc = b == esc
	}
	return unfinished
}

func (p *parser) first(b byte) kind {
	switch {
	case b == esc:
		p.state = escape
	case wants(b) > 0:
		p.state, p.more = character, wants(b)
	default:
		return character
	}
	return unfinished
}

func (p *parser) escape(b byte) kind {
	switch {
	case b == '[':
		p.state = control
	case bytes.IndexByte([]byte("]P_^X"), b) >= 0 && len(p.seq) == 2:
		p.state, p.esc = text, false
	case b == esc:
		p.restart()
	case b >= 0x30 && b != 0x7f, b == can, b == sub:
		return p.end(escape)
	}
	return unfinished
}

// restart begins a new sequence with the ESC that was just read.
func (p *parser) restart() {
	p.seq, p.state, p.esc = append(p.seq[:0], esc), escape, false
}

func (p *parser) end(k kind) kind {
	p.state, p.esc, p.more = unfinished, false, 0
	return k
}

// Modes follows a terminal's output and knows what it has switched on: the
// other screen, mouse reports, bracketed paste, a hidden cursor. The zero value
// is a fresh terminal.
type Modes struct {
	parser parser
	set    map[int]bool // DEC private modes that were set or reset
	kitty  int          // keyboard flags pushed
	keys   bool         // xterm's modifyOtherKeys
	keypad bool         // application keypad
	cursor bool         // another shape of cursor
	margin bool         // a scrolling region
	lines  bool         // line drawing instead of letters
}

// maxModes bounds what is remembered; more than a dozen is unheard of.
const maxModes = 64

// Write follows p. It never fails.
func (m *Modes) Write(p []byte) (int, error) {
	for _, b := range p {
		switch m.parser.next(b) {
		case escape:
			m.escape(m.parser.seq)
		case control:
			m.control(m.parser.seq)
		}
	}
	return len(p), nil
}

// Between reports whether the output stands between two sequences and
// characters, so that something else may be written there.
func (m *Modes) Between() bool { return m.parser.state == unfinished }

func (m *Modes) escape(seq []byte) {
	switch string(seq[1:]) {
	case "=":
		m.keypad = true
	case ">":
		m.keypad = false
	case "c":
		*m = Modes{}
	case "(0":
		m.lines = true
	case "(B":
		m.lines = false
	}
}

func (m *Modes) control(seq []byte) {
	body, final := string(seq[2:len(seq)-1]), seq[len(seq)-1]
	switch {
	case strings.HasPrefix(body, "?") && (final == 'h' || final == 'l'):
		for _, n := range numbers(body[1:]) {
			m.private(n, final == 'h')
		}
	case strings.HasPrefix(body, ">") && final == 'u':
		m.kitty = min(m.kitty+1, maxModes)
	case strings.HasPrefix(body, "<") && final == 'u':
		m.kitty = max(m.kitty-max(1, first(numbers(body[1:]))), 0)
	case strings.HasPrefix(body, ">4") && final == 'm':
		m.keys = strings.HasPrefix(body, ">4;") && body != ">4;0"
	case strings.HasSuffix(body, " ") && final == 'q':
		m.cursor = first(numbers(strings.TrimSpace(body))) != 0
	case final == 'r' && !strings.HasPrefix(body, "?"):
		m.margin = body != ""
	case body == "!" && final == 'p':
		m.keypad, m.margin, m.lines = false, false, false
		delete(m.set, 25)
		delete(m.set, 1)
	}
}

func (m *Modes) private(n int, on bool) {
	if m.set == nil {
		m.set = map[int]bool{}
	}
	if _, known := m.set[n]; known || len(m.set) < maxModes {
		m.set[n] = on
	}
}

func numbers(s string) (out []int) {
	for _, part := range strings.Split(s, ";") {
		if n, err := strconv.Atoi(part); err == nil && n >= 0 && n < 1<<16 {
			out = append(out, n)
		}
	}
	return out
}

func first(ns []int) int {
	if len(ns) == 0 {
		return 0
	}
	return ns[0]
}

// onAtFirst are the private modes that a fresh terminal has on: wrapping and
// the cursor. All others count as off.
func onAtFirst(mode int) bool { return mode == 7 || mode == 25 }

// otherScreen are the modes that change the screen: first to be set, last to
// be reset, since they keep the cursor too.
func otherScreen(mode int) bool { return mode == 47 || mode == 1047 || mode == 1049 }

// changed are the private modes that are not as at first, those of the other
// screen before all.
func (m *Modes) changed() []int {
	var screens, others []int
	for _, n := range slices.Sorted(maps.Keys(m.set)) {
		switch {
		case m.set[n] == onAtFirst(n):
		case otherScreen(n):
			screens = append(screens, n)
		default:
			others = append(others, n)
		}
	}
	return append(screens, others...)
}

// Set is what brings a fresh terminal to these modes. The scrolling region is
// not among them: it moves the cursor, and programs set it when they redraw.
func (m *Modes) Set() []byte {
	var b bytes.Buffer
	for _, n := range m.changed() {
		fmt.Fprintf(&b, "\x1b[?%d%c", n, letter(m.set[n]))
	}
	if m.keypad {
		b.WriteString("\x1b=")
	}
	return b.Bytes()
}

// Restore is what gives a terminal back that has these modes: nothing where it
// is as it was at first.
func (m *Modes) Restore() []byte {
	var b bytes.Buffer
	if !m.Between() {
		b.WriteString("\x1b\\")
	}
	if m.kitty > 0 {
		fmt.Fprintf(&b, "\x1b[<%du", m.kitty)
	}
	for _, part := range []struct {
		on  bool
		off string
	}{
		{m.keys, "\x1b[>4m"}, {m.keypad, "\x1b>"}, {m.cursor, "\x1b[0 q"}, {m.lines, "\x1b(B"},
		{m.margin, "\x1b7\x1b[r\x1b8"},
	} {
		if part.on {
			b.WriteString(part.off)
		}
	}
	changed := m.changed()
	slices.Reverse(changed)
	for _, n := range changed {
		fmt.Fprintf(&b, "\x1b[?%d%c", n, letter(!m.set[n]))
	}
	return b.Bytes()
}

func letter(on bool) byte {
	if on {
		return 'h'
	}
	return 'l'
}

// Quiet is p without what a terminal would answer: it is for output that is
// shown again, whose questions have had their answers.
func Quiet(p []byte) []byte {
	var ps parser
	out := make([]byte, 0, len(p))
	start := 0
	for i, b := range p {
		k := ps.next(b)
		if k == unfinished {
			continue
		}
		if !asks(k, ps.seq) {
			out = append(out, p[start:i+1]...)
		}
		start = i + 1
	}
	return append(out, p[start:]...)
}

// asks reports whether a terminal answers seq.
func asks(k kind, seq []byte) bool {
	switch k {
	case character:
		return seq[0] == 0x05
	case escape:
		return string(seq) == "\x1bZ"
	case control:
		body, final := string(seq[2:len(seq)-1]), seq[len(seq)-1]
		switch final {
		case 'c', 'n', 'x':
			return true
		case 'p':
			return strings.HasSuffix(body, "$")
		case 'q':
			return strings.HasPrefix(body, ">")
		case 'u':
			return body == "?"
		case 't':
			n := first(numbers(body))
			return n >= 11 && n <= 21
		}
	case text:
		if seq[1] == 'P' {
			return bytes.HasPrefix(seq[2:], []byte("$q")) || bytes.HasPrefix(seq[2:], []byte("+q"))
		}
		return seq[1] == ']' && bytes.Contains(seq, []byte(";?")) || seq[1] == '_'
	}
	return false
}

// Clone is a copy that goes its own way.
func (m *Modes) Clone() *Modes {
	c := *m
	c.parser.seq, c.set = slices.Clone(m.parser.seq), maps.Clone(m.set)
	return &c
}
