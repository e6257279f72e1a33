// Package terminal promises that the control sequences between a session and a
// person's terminal are read as terminals read them, however they are spelled.
//
// Three things are made of that: [Clipboard] leaves out what would reach the
// person's clipboard, [Modes] gives the terminal back as it was, and [Keys]
// finds what the person types to leave. Nothing here draws or keeps a screen.
// What sequences mean is as in ECMA-48 and in xterm's "Control Sequences";
// terminals are taken to speak UTF-8.
package terminal

import "io"

// Clipboard passes a session's output on to a person's terminal without the
// sequences that set or ask for the clipboard: OSC 52, kitty's OSC 5522 and
// iTerm2's OSC 1337;Copy. Each of them becomes an ST, which alone means
// nothing, so that what stood before and after cannot join to another one.
// They are found however they are spelled, by eight bits, with leading zeros,
// wrapped for tmux or screen, or over several writes.
//
// At most a few bytes, of a sequence that has just begun, are held back
// between two writes; Flush passes them on.
type Clipboard struct {
	w     io.Writer
	state clipState
	held  []byte // of a sequence whose meaning is not known yet
	value int    // the number of an OSC so far
	key   int    // how many digits, then how many bytes of iTerm2's "Copy" there were
	more  int    // continuation bytes that the character still wants
	out   []byte
}

type clipState uint8

const (
	clipText    clipState = iota
	clipEscape            // after ESC
	clipC2                // after 0xC2, which with 0x9D is OSC
	clipNumber            // in the number of an OSC
	clipCopy              // after OSC 1337;
	clipDrop              // in a sequence that is not passed on
	clipDropESC           // after an ESC there
)

const (
	esc = 0x1b
	bel = 0x07
	can = 0x18
	sub = 0x1a
	osc = 0x9d // with eight bits
	st  = 0x9c
)

const (
	maxNumber = 8  // digits of an OSC; the longest in use has four
	maxHeld   = 16 // bytes between ESC and what it begins; more are left out
	copyKey   = "copy"
)

// NewClipboard returns a filter in front of w.
func NewClipboard(w io.Writer) *Clipboard { return &Clipboard{w: w} }

// Write passes p on, in one write of the writer behind.
func (c *Clipboard) Write(p []byte) (int, error) {
	if c.state == clipText && c.more == 0 && plain(p) {
		return c.w.Write(p)
	}
	c.out = c.out[:0]
	for _, b := range p {
		c.next(b)
	}
	if len(c.out) > 0 {
		if _, err := c.w.Write(c.out); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}

// Flush passes on what is held back: nothing more comes.
func (c *Clipboard) Flush() error {
	held := c.held
	c.state, c.held, c.more = clipText, nil, 0
	if len(held) == 0 {
		return nil
	}
	_, err := c.w.Write(held)
	return err
}

// plain reports whether p holds neither escapes nor anything beyond ASCII.
func plain(p []byte) bool {
	for _, b := range p {
		if b == esc || b >= 0x80 {
			return false
		}
	}
	return true
}

func (c *Clipboard) next(b byte) {
	switch c.state {
	case clipText:
		c.text(b)
	case clipEscape:
		c.escape(b)
	case clipC2:
		if b == osc {
			c.begin(b)
			return
		}
		c.release()
		c.more = 1
		c.text(b)
	case clipNumber:
		c.number(b)
	case clipCopy:
		c.copy(b)
	case clipDrop:
		c.drop(b)
	case clipDropESC:
		switch b {
		case '\\':
			c.dropped()
		case esc: // doubled, as tmux wants it
		default:
			c.dropped()
			c.hold(esc, clipEscape)
			c.escape(b)
		}
	}
}

func (c *Clipboard) text(b byte) {
	switch {
	case b == esc:
		c.hold(b, clipEscape)
	case b < 0x80:
		c.more = 0
		c.out = append(c.out, b)
	case c.more > 0 && b < 0xc0:
		c.more--
		c.out = append(c.out, b)
	case b == osc:
		c.begin(b)
	case b == 0xc2:
		c.hold(b, clipC2)
	default:
		c.more = wants(b)
		c.out = append(c.out, b)
	}
}

// wants is how many continuation bytes follow a first byte of UTF-8.
func wants(b byte) int {
	switch {
	case b >= 0xf0 && b < 0xf8:
		return 3
	case b >= 0xe0 && b < 0xf0:
		return 2
	case b >= 0xc0 && b < 0xe0:
		return 1
	}
	return 0
}

func (c *Clipboard) hold(b byte, to clipState) {
	c.more = 0
	c.held = append(c.held[:0], b)
	c.state = to
}

// release passes on what was held: it is none of ours.
func (c *Clipboard) release() {
	c.out = append(c.out, c.held...)
	c.held = c.held[:0]
	c.state = clipText
}

// ignored reports whether terminals carry b out, or leave it out, without
// ending the sequence that they are in.
func ignored(b byte) bool {
	return b == 0x7f || b < 0x20 && b != esc && b != can && b != sub
}

func (c *Clipboard) escape(b byte) {
	switch {
	case b == ']':
		c.begin(b)
	case ignored(b): // and the escape goes on
		if len(c.held) < maxHeld {
			c.held = append(c.held, b)
		}
	default:
		c.release()
		c.text(b)
	}
}

// begin is the start of an OSC.
func (c *Clipboard) begin(b byte) {
	c.held = append(c.held, b)
	if b == osc && c.state == clipText {
		c.held = append(c.held[:0], b)
	}
	c.state, c.value, c.key, c.more = clipNumber, 0, 0, 0
}

func (c *Clipboard) number(b byte) {
	switch {
	case b >= '0' && b <= '9':
		c.held = append(c.held, b)
		c.value = c.value*10 + int(b-'0')
		if c.key++; c.key > maxNumber {
			c.forget() // may stand for any number
		}
	case b != bel && ignored(b):
	case c.value == 52 || c.value == 5522:
		c.forget()
		c.drop(b)
	case c.value == 1337 && b == ';':
		c.held = append(c.held, b)
		c.state, c.key = clipCopy, 0
	default:
		c.release()
		c.text(b)
	}
}

func (c *Clipboard) copy(b byte) {
	switch {
	case b != bel && ignored(b):
	case b|0x20 == copyKey[c.key]:
		c.held = append(c.held, b)
		if c.key++; c.key == len(copyKey) {
			c.forget()
		}
	default:
		c.release()
		c.text(b)
	}
}

func (c *Clipboard) forget() {
	c.held = c.held[:0]
	c.state = clipDrop
}

func (c *Clipboard) drop(b byte) {
	switch b {
	case esc:
		c.state = clipDropESC
	case bel, can, sub, st:
		c.dropped()
	}
}

func (c *Clipboard) dropped() {
	c.out = append(c.out, esc, '\\')
	c.state, c.more = clipText, 0
}
