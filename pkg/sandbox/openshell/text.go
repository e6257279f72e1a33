package openshell

import (
	"strings"
	"unicode"
)

// Bounds of what a gateway says.
const (
	mostWord = 128
	mostText = 400
)

// plain makes a text of a gateway fit for a terminal: one line, printable, and
// not longer than a person reads.
func plain(s string) string { return cut(s, mostText) }

// word is plain for what should be a single word.
func word(s string) string { return cut(s, mostWord) }

func cut(s string, most int) string {
	if len(s) > 4*most {
		s = s[:4*most] // before it is looked at rune by rune
	}
	s = strings.ToValidUTF8(s, "?")
	var b strings.Builder
	space := false
	for _, r := range s {
		switch {
		case unicode.IsSpace(r) || unicode.IsControl(r):
			space = b.Len() > 0
			continue
		case !unicode.IsPrint(r):
			r = '?'
		}
		if space {
			b.WriteByte(' ')
			space = false
		}
		if b.Len() >= most {
			b.WriteString("…")
			break
		}
		b.WriteRune(r)
	}
	return b.String()
}
