package policy

import (
	"strconv"
	"strings"
)

// Words, numbers and strings of the reader.

func (r *reader) word(n *node) *syntaxError {
	start := r.at
	for r.at < len(r.src) && isWordByte(r.src[r.at]) {
		r.at++
	}
	switch n.text = r.src[start:r.at]; n.text {
	case "true", "false":
		n.kind = kindBool
	case "null":
		n.kind = kindNull
	default:
		return r.faultAt(start, "a word without quotes", `strings stand in double quotes: "…"`)
	}
	return nil
}

func isWordByte(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '_' || c == '.' || c == '-' || c == '+'
}

func (r *reader) number(n *node) *syntaxError {
	start := r.at
	for r.at < len(r.src) && isWordByte(r.src[r.at]) {
		r.at++
	}
	n.kind, n.text = kindNumber, r.src[start:r.at]
	if !validNumber(n.text) {
		return r.faultAt(start, "not a number", "a range or an address stands in double quotes")
	}
	return nil
}

// validNumber is the grammar of RFC 8259 §6.
func validNumber(s string) bool {
	s = strings.TrimPrefix(s, "-")
	whole := len(s) - len(strings.TrimLeft(s, "0123456789"))
	if whole == 0 || whole > 1 && s[0] == '0' {
		return false
	}
	s = s[whole:]
	if strings.HasPrefix(s, ".") {
		digits := strings.TrimLeft(s[1:], "0123456789")
		if len(digits) == len(s)-1 {
			return false
		}
		s = digits
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		s = s[1:]
		if s != "" && (s[0] == '+' || s[0] == '-') {
			s = s[1:]
		}
		return s != "" && strings.Trim(s, "0123456789") == ""
	}
	return s == ""
}

// str reads a string; the next byte is its opening quote.
func (r *reader) str() (string, *syntaxError) {
	start := r.at
	var b strings.Builder
	for r.at++; r.at < len(r.src); {
		switch c := r.src[r.at]; {
		case c == '"':
			r.at++
			return b.String(), nil
		case c == '\n' || c == '\r':
			return "", r.faultAt(start, "a string that does not end on its line", `end it with "`)
		case c < ' ' || c == 0x7f:
			return "", r.fault("the control character "+r.found()+" in a string", `take it out, or write it as \u and four hexadecimal digits`)
		case c == '\\':
			if err := r.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			r.at++
		}
	}
	return "", r.faultAt(start, "a string that never ends", `end it with "`)
}

func (r *reader) escape(b *strings.Builder) *syntaxError {
	rest := r.src[r.at:]
	if len(rest) < 2 {
		return r.fault("the file ends within a string", `end it with "`)
	}
	if i := strings.IndexByte(`"\/bfnrt`, rest[1]); i >= 0 {
		b.WriteByte("\"\\/\b\f\n\r\t"[i])
		r.at += 2
		return nil
	}
	c, ok := hex4(rest)
	if !ok {
		return r.fault("an escape that JSON does not know", `valid are \" \\ \/ \b \f \n \r \t and \u with four hexadecimal digits`)
	}
	used := 6
	if 0xD800 <= c && c <= 0xDFFF {
		low, ok := hex4(rest[6:])
		if !ok || c > 0xDBFF || low < 0xDC00 || low > 0xDFFF {
			return r.fault(`half of a surrogate pair`, "write both halves, or the character itself")
		}
		c, used = 0x10000+(c-0xD800)<<10+(low-0xDC00), 12
	}
	b.WriteRune(c)
	r.at += used
	return nil
}

func hex4(s string) (rune, bool) {
	if len(s) < 6 || s[0] != '\\' || s[1] != 'u' {
		return 0, false
	}
	c, err := strconv.ParseUint(s[2:6], 16, 32)
	return rune(c), err == nil
}
