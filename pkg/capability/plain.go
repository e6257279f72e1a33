package capability

import (
	"strconv"
	"strings"
	"unicode"
)

// longest is how much of a foreign text a check repeats, in characters.
const longest = 160

// plain makes a foreign text safe to print on a terminal and in a page: one
// line, bounded, with every character escaped that is not printed as itself.
func plain(s string) string {
	var b strings.Builder
	n := 0
	for _, r := range strings.TrimSpace(s) {
		if n++; n > longest {
			b.WriteString("...")
			break
		}
		if unicode.IsPrint(r) && r != unicode.ReplacementChar {
			b.WriteRune(r)
			continue
		}
		b.WriteString(strings.Trim(strconv.QuoteRuneToASCII(r), "'"))
	}
	return b.String()
}

func quote(s string) string { return `"` + plain(s) + `"` }
