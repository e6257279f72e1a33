package policy

import (
	"strings"
)

// NormalPath returns the one form of a request's path (without query) that is
// judged and sent on:
//
//   - percent-encoded letters, digits and -._~ are decoded; other escapes stay,
//     with upper case digits; characters that a path cannot hold are encoded;
//   - slashes that follow each other are one; "." and ".." are resolved; a path
//     that ended in a slash or a dot segment still ends in a slash;
//   - %2F stays: it is a character of its segment. The empty path is "/".
//
// Refused: a path that does not start with a slash (except "*", for OPTIONS),
// backslashes and control characters, plain or encoded, queries and fragments,
// broken escapes, overlong UTF-8, ".." above the root, and segments that a
// server which decodes %2F or drops ";…" would read as "." or "..".
func NormalPath(s string) (string, error) {
	p, f := normalPath(s)
	if f != nil {
		return "", f
	}
	return p, nil
}

func normalPath(s string) (string, *fault) {
	switch {
	case s == "":
		return "/", nil
	case s == "*":
		return s, nil
	case s[0] != '/':
		return "", faultf("begin it with /", "the path %s does not start with a slash", show(s))
	case isNormalPath(s):
		return s, nil
	}
	escaped, f := normalEscapes(s)
	if f != nil {
		return "", f
	}
	return resolve(escaped)
}

// isNormalPath reports, without allocating, whether s is in normal form. The
// two are held against each other by a fuzz test.
func isNormalPath(s string) bool {
	if s == "" || s[0] != '/' {
		return s == "*"
	}
	for start := 1; start <= len(s); {
		end := start
		for end < len(s) && s[end] != '/' {
			end++
		}
		if start == end && end < len(s) || !isNormalSegment(s[start:end]) {
			return false
		}
		start = end + 1
	}
	return true
}

func isNormalSegment(seg string) bool {
	if seg == "." || seg == ".." {
		return false
	}
	odd := false
	var last [2]byte
	for i := 0; i < len(seg); i++ {
		c := seg[i]
		switch {
		case c == '%':
			v, ok := unhex(seg, i)
			if !ok || isUnreserved(v) || isLowerHex(seg[i+1]) || isLowerHex(seg[i+2]) || refusedByte(v, last, "") != nil {
				return false
			}
			c, i, odd = v, i+2, true
		case c == ';':
			odd = true
		case !isPathByte(c):
			return false
		}
		last[0], last[1] = last[1], c
	}
	return !odd || !hidesDots(seg)
}

func isLowerHex(c byte) bool { return 'a' <= c && c <= 'f' }

// isPathByte is pchar of RFC 3986 without escapes.
func isPathByte(c byte) bool {
	return isUnreserved(c) || strings.IndexByte("!$&'()*+,;=:@", c) >= 0
}

func isUnreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || strings.IndexByte("-._~", c) >= 0
}

const upperHex = "0123456789ABCDEF"

func normalEscapes(s string) (string, *fault) {
	var b strings.Builder
	b.Grow(len(s) + 16)
	var last [2]byte // what the two bytes before were, decoded
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c == '?' || c == '#' {
			return "", faultf("a path ends before ? and #", "the path %s holds a query or a fragment", show(s))
		}
		encoded := c == '%'
		if encoded {
			v, ok := unhex(s, i)
			if !ok {
				return "", faultf("write %25 for a percent sign", "the path %s has a broken escape", show(s))
			}
			c, i = v, i+2
		}
		if f := refusedByte(c, last, s); f != nil {
			return "", f
		}
		if isUnreserved(c) || !encoded && (c == '/' || isPathByte(c)) {
			b.WriteByte(c)
		} else {
			b.WriteByte('%')
			b.WriteByte(upperHex[c>>4])
			b.WriteByte(upperHex[c&15])
		}
		last[0], last[1] = last[1], c
	}
	return b.String(), nil
}

// refusedByte knows what servers and file systems read differently. last is
// what the two bytes before were.
func refusedByte(c byte, last [2]byte, s string) *fault {
	switch {
	case c < ' ' || c == 0x7f:
		return faultf("take it out", "the path %s holds a control character", show(s))
	case c == '\\':
		return faultf("write /", "the path %s holds a backslash", show(s))
	case c == 0xC0 || c == 0xC1, last[1] == 0xE0 && 0x80 <= c && c < 0xA0, last[1] == 0xF0 && 0x80 <= c && c < 0x90:
		// The longer forms of characters that have a shorter one: %C0%AF is a
		// slash to decoders that forget to check.
		return faultf("write the character itself", "the path %s holds overlong UTF-8", show(s))
	}
	return nil
}

func unhex(s string, at int) (byte, bool) {
	if at+2 >= len(s) {
		return 0, false
	}
	high, low := hexDigit(s[at+1]), hexDigit(s[at+2])
	return byte(high<<4 | low), high >= 0 && low >= 0
}

func hexDigit(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// resolve removes empty and dot segments from a path whose escapes are normal.
func resolve(s string) (string, *fault) {
	var out []string
	slash := false
	for _, seg := range strings.Split(s[1:], "/") {
		slash = seg == "" || seg == "." || seg == ".."
		switch {
		case seg == "" || seg == ".":
		case seg == "..":
			if len(out) == 0 {
				return "", faultf("take the .. out", "the path %s leads above the root", show(s))
			}
			out = out[:len(out)-1]
		case hidesDots(seg):
			return "", faultf("take the escaped point out", "the path %s hides a dot segment", show(s))
		default:
			out = append(out, seg)
		}
	}
	if len(out) == 0 {
		return "/", nil
	}
	p := "/" + strings.Join(out, "/")
	if slash {
		p += "/"
	}
	return p, nil
}

// hidesDots reports whether a server that decodes slashes first, or cuts path
// parameters off (as servlet containers do), would see a dot segment.
func hidesDots(seg string) bool {
	for part := range strings.SplitSeq(seg, "%2F") {
		part, _, _ = strings.Cut(part, ";")
		part, _, _ = strings.Cut(part, "%3B")
		if part == "." || part == ".." {
			return true
		}
	}
	return false
}

// A pathPattern is one entry of "paths", in segments.
type pathPattern struct {
	text     string
	segments []string // "**" stands for any number of segments
}

func checkPathPattern(s string) *fault {
	_, f := parsePathPattern(s)
	return f
}

func parsePathPattern(s string) (pathPattern, *fault) {
	switch {
	case s == "" || s[0] != '/':
		return pathPattern{}, faultf("write "+show("/"+s), "the path pattern %s does not start with a slash", show(s))
	case len(s) > 1024:
		return pathPattern{}, faultf("name a shorter path, with /** behind it", "the path pattern is longer than 1024 bytes")
	case strings.ContainsAny(s, "?#"):
		path, _, _ := strings.Cut(s, "?")
		return pathPattern{}, faultf("write "+show(path), "%s: queries and fragments are not judged, and ? is no wildcard", show(s))
	case strings.ContainsAny(s, "[]{}\\ "):
		return pathPattern{}, faultf("the only wildcards are * and **; a blank is written %20", "%s holds a character that means nothing in a path pattern", show(s))
	}
	normal, f := normalPath(s)
	switch {
	case f != nil:
		return pathPattern{}, f
	case normal != s:
		return pathPattern{}, faultf("write "+show(normal), "%s can match nothing: paths are judged in their normal form", show(s))
	}
	segments := strings.Split(s[1:], "/")
	for _, seg := range segments {
		if strings.Contains(seg, "**") && seg != "**" {
			return pathPattern{}, faultf("write /**/ for any number of parts, and * within one", "%s: ** stands alone between two slashes", show(s))
		}
	}
	return pathPattern{s, segments}, nil
}

// match reports whether a path in normal form fits. Within a segment * stands
// for any characters but an encoded slash, and the segment it stands in is not
// empty. ** stands for any number of segments, at the end for at least an
// empty one: /v1/** covers /v1/ and all below, not /v1.
func (p *pathPattern) match(path string) bool {
	if path == "" || path[0] != '/' {
		return false
	}
	segs := p.segments
	i, at := 0, 1 // next segment of the pattern, start of the path's next one; at > len(path) is its end
	star, starAt := -1, 0
	for at <= len(path) {
		end := at
		for end < len(path) && path[end] != '/' {
			end++
		}
		switch {
		case i < len(segs) && segs[i] == "**":
			if i == len(segs)-1 {
				return true
			}
			star, starAt = i, at
			i++
		case i < len(segs) && matchSegment(segs[i], path[at:end]):
			i, at = i+1, end+1
		case star >= 0:
			// Let the last ** take one segment more.
			for starAt < len(path) && path[starAt] != '/' {
				starAt++
			}
			starAt++
			i, at = star+1, starAt
		default:
			return false
		}
	}
	return i == len(segs)
}

// matchSegment goes by characters, an escape being one, so that no star ends
// within an escape.
func matchSegment(pattern, seg string) bool {
	if pattern != "" && seg == "" {
		return false
	}
	p, s, star, starAt := 0, 0, -1, 0
	for s < len(seg) {
		w := width(seg, s)
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, starAt = p, s
			p++
		case p < len(pattern) && width(pattern, p) == w && pattern[p:p+w] == seg[s:s+w]:
			p, s = p+w, s+w
		case star >= 0 && !isSlashAt(seg, starAt):
			starAt += width(seg, starAt)
			p, s = star+1, starAt
		default:
			return false
		}
	}
	for p < len(pattern) && pattern[p] == '*' {
		p++
	}
	return p == len(pattern)
}

func width(s string, at int) int {
	if s[at] == '%' && at+2 < len(s) {
		return 3
	}
	return 1
}

func isSlashAt(s string, at int) bool { return strings.HasPrefix(s[at:], "%2F") }

// asLenient is what a server that decodes every escape, slashes too, and drops
// path parameters (";…") would make of a path. Deny rules are held against it
// as well: what they forbid stays forbidden in every spelling.
func asLenient(path string) string {
	if strings.IndexByte(path, '%') < 0 && strings.IndexByte(path, ';') < 0 {
		return path
	}
	b := make([]byte, 0, len(path))
	parameter := false
	for i := 0; i < len(path); i++ {
		c := path[i]
		if c == '%' {
			if v, ok := unhex(path, i); ok {
				c, i = v, i+2
			}
		}
		parameter = c != '/' && (parameter || c == ';')
		if parameter || c == '/' && len(b) > 0 && b[len(b)-1] == '/' {
			continue
		}
		b = append(b, c)
	}
	return string(b)
}
