package secrets

import (
	"iter"
	"strings"
)

// spellings are what a server may read in a text in which something stands
// percent-encoded: that undone once, and as often as it goes. What only looks like an
// escape stays, and the others are undone all the same, as servers do it that are not
// strict. Of a text that is not [escaped] there are none.
func spellings(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		once := unescaped(text)
		if once == text || !yield(once) {
			return
		}
		if all := unescapedWhole(text); all != once {
			yield(all)
		}
	}
}

// escaped reports whether there may be an escape in a text: in most there is none,
// and nothing else needs to be done for them.
func escaped(text string) bool { return strings.IndexByte(text, '%') >= 0 }

// unescaped is a text with its escapes undone, but for those that are none.
func unescaped(text string) string {
	at := strings.IndexByte(text, '%')
	if at < 0 {
		return text
	}
	out := append(make([]byte, 0, len(text)), text[:at]...)
	for ; at < len(text); at++ {
		if c, ok := escape(text[at:]); ok {
			out, at = append(out, c), at+2
		} else {
			out = append(out, text[at])
		}
	}
	return string(out)
}

// unescapedWhole undoes escapes of escapes too, in one pass however deep they are:
// what is undone may complete an escape that began before it.
func unescapedWhole(text string) string {
	out := make([]byte, 0, len(text))
	for i := range len(text) {
		out = append(out, text[i])
		for len(out) >= 3 {
			c, ok := escape(string(out[len(out)-3:]))
			if !ok {
				break
			}
			out = append(out[:len(out)-3], c)
		}
	}
	return string(out)
}

// escape is the byte that the first three of a text stand for.
func escape(text string) (byte, bool) {
	if len(text) < 3 || text[0] != '%' {
		return 0, false
	}
	high, low := hexDigit(text[1]), hexDigit(text[2])
	return high<<4 | low, high|low < 16
}

// hexDigit is the value of a hexadecimal digit, or more than any has.
func hexDigit(c byte) byte {
	switch {
	case '0' <= c && c <= '9':
		return c - '0'
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10
	}
	return 0xf0
}
