package secrets

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// A Masker replaces keys in what comes in by their stand-ins: as they are,
// percent-encoded, with slashes escaped as in JSON, in hexadecimal, and in base64
// wherever in the encoded text they stand. Each takes exactly the room of what it
// replaces. The methods of a nil Masker change nothing.
//
// It finds what a server says by mistake. A server that wants to tell a
// session its key can always write it in a way that nobody recognises.
//
// A masker holds keys and is not wiped: an answer may still be read through it
// when its session has ended.
type Masker struct {
	patterns []pattern
	least    int // length of the shortest pattern
	most     int
	first    [256]bool // with which bytes patterns begin
	// shift is by how much a window of least bytes may move on, by the two
	// bytes at its end (Wu and Manber, 1994); 0 means to look at by.
	shift [1 << 16]uint8
	by    map[uint16][]int
}

type pattern struct{ key, mask []byte }

// newMasker returns nil where there is nothing to mask.
func newMasker(all []*held) *Masker {
	m := &Masker{by: map[uint16][]int{}}
	for _, h := range all {
		for _, v := range append(slices.Clone(h.before), h.value) {
			key := v.RevealForTheWire()
			if len(key) == 0 {
				continue // what is only refused
			}
			m.add(key, fit([]byte(h.standIn), len(key)))
			clear(key)
		}
	}
	if len(m.patterns) == 0 {
		return nil
	}
	m.prepare()
	return m
}

// fit makes text n bytes long: after a rotation a key may be of another length
// than its stand-in.
func fit(text []byte, n int) []byte {
	out := make([]byte, 0, n)
	for len(out) < n {
		out = append(out, text[:min(len(text), n-len(out))]...)
	}
	return out
}

// add adds the forms in which a key may be said.
func (m *Masker) add(key, mask []byte) {
	m.form(bytes.Clone(key), mask)
	for _, encode := range []func(string) string{
		url.QueryEscape, url.PathEscape,
		func(s string) string { return lowerEscapes(url.QueryEscape(s)) },
		func(s string) string { return lowerEscapes(url.PathEscape(s)) },
		func(s string) string { return strings.ReplaceAll(s, "/", `\/`) },
		func(s string) string { return hex.EncodeToString([]byte(s)) },
		func(s string) string { return strings.ToUpper(hex.EncodeToString([]byte(s))) },
	} {
		m.form([]byte(encode(string(key))), []byte(encode(string(mask))))
	}
	for _, enc := range []*base64.Encoding{base64.RawStdEncoding, base64.RawURLEncoding} {
		for before := range 3 {
			m.form(within(enc, key, before), within(enc, mask, before))
		}
	}
}

// within is what stands in a base64 text for b behind that many other bytes
// (modulo 3), without the characters at its ends that depend on what is round
// it.
func within(enc *base64.Encoding, b []byte, before int) []byte {
	padded := append(make([]byte, before, before+len(b)), b...)
	defer clear(padded)
	text := enc.AppendEncode(nil, padded)
	if len(padded)%3 != 0 {
		text = text[:len(text)-1]
	}
	return text[(before*8+5)/6:]
}

func lowerEscapes(s string) string {
	b := []byte(s)
	for i := 0; i+2 < len(b); i++ {
		if b[i] == '%' {
			copy(b[i+1:], bytes.ToLower(b[i+1:i+3]))
		}
	}
	return string(b)
}

func (m *Masker) form(key, mask []byte) {
	if slices.ContainsFunc(m.patterns, func(p pattern) bool { return bytes.Equal(p.key, key) }) {
		clear(key)
		return
	}
	m.patterns = append(m.patterns, pattern{key, fit(mask, len(key))})
}

func (m *Masker) prepare() {
	m.least = len(m.patterns[0].key)
	for _, p := range m.patterns {
		m.least, m.most = min(m.least, len(p.key)), max(m.most, len(p.key))
		m.first[p.key[0]] = true
	}
	for i := range m.shift {
		m.shift[i] = uint8(min(m.least-1, 255))
	}
	for i, p := range m.patterns {
		for j := 1; j < m.least; j++ {
			at := block(p.key, j)
			m.shift[at] = min(m.shift[at], uint8(min(m.least-1-j, 255)))
		}
		end := block(p.key, m.least-1)
		m.by[end] = append(m.by[end], i)
	}
}

// block is the two bytes that end at b[at].
func block(b []byte, at int) uint16 { return uint16(b[at-1])<<8 | uint16(b[at]) }

// Mask replaces keys in b, in place, and reports whether there were any.
func (m *Masker) Mask(b []byte) (found bool) {
	if m == nil {
		return false
	}
	return m.mask(b, 0, len(b)) > 0
}

// mask replaces the keys that begin between from and limit and returns where
// the last of them ends, or 0.
func (m *Masker) mask(b []byte, from, limit int) (end int) {
	for at := from + m.least - 1; at < len(b) && at-m.least+1 < limit; {
		if s := m.shift[block(b, at)]; s > 0 {
			at += int(s)
			continue
		}
		start := at - m.least + 1
		if p := m.longest(b, start, at); p != nil {
			copy(b[start:], p.mask)
			end = start + len(p.key)
			at = end + m.least - 1
			continue
		}
		at++
	}
	return end
}

// Part masks what of b can be told already, and returns how many bytes at its
// end must wait for what follows. A key may begin another, and what is one by
// itself may turn out to lie in a longer one: the first to begin counts, and of
// those the longest, however the text is cut.
func (m *Masker) Part(b []byte) (hold int) {
	for done := 0; ; {
		hold = m.unfinished(b[done:])
		end := m.mask(b, done, len(b)-hold)
		if end <= len(b)-hold {
			return hold
		}
		done = end
	}
}

// longest is the longest pattern at start, or nil. One may begin another.
func (m *Masker) longest(b []byte, start, at int) (best *pattern) {
	for _, i := range m.by[block(b, at)] {
		if p := &m.patterns[i]; bytes.HasPrefix(b[start:], p.key) && (best == nil || len(p.key) > len(best.key)) {
			best = p
		}
	}
	return best
}

// unfinished is how many bytes at the end of b may be the beginning of a key.
func (m *Masker) unfinished(b []byte) int {
	for i := max(0, len(b)-m.most+1); i < len(b); i++ {
		if !m.first[b[i]] {
			continue
		}
		for _, p := range m.patterns {
			if len(p.key) > len(b)-i && bytes.HasPrefix(p.key, b[i:]) {
				return len(b) - i
			}
		}
	}
	return 0
}

// MaskHeader replaces keys in the values of h. A field with a key for a name is
// left out: names are kept in one spelling and sent in small letters, so that
// there is no other way to say it.
func (m *Masker) MaskHeader(h http.Header) {
	if m == nil {
		return
	}
	for name, values := range h {
		if len(name) >= m.least && (m.Mask([]byte(name)) || m.Mask([]byte(strings.ToLower(name)))) {
			delete(h, name)
			continue
		}
		for i, v := range values {
			if len(v) < m.least {
				continue
			}
			if b := []byte(v); m.Mask(b) {
				values[i] = string(b)
			}
		}
	}
}

// Reader masks what is read from r. What one read of r brings is given on at
// once, but for an end that may be the beginning of a key.
func (m *Masker) Reader(r io.Reader) io.Reader {
	if m == nil {
		return r
	}
	return &maskReader{m: m, from: r}
}

type maskReader struct {
	m    *Masker
	from io.Reader
	held []byte // read, not yet given on: may be the beginning of a key
	out  []byte // of store: masked, for a caller with little room
	err  error
	room []byte
}

// Read reads into p itself and masks there: nothing is copied but what is held.
func (r *maskReader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if len(r.out) > 0 || len(p) < 2*r.m.most {
		return r.readSmall(p)
	}
	return r.fill(p)
}

// readSmall is for callers with less room than a key may need.
func (r *maskReader) readSmall(p []byte) (int, error) {
	if len(r.out) == 0 {
		if r.room == nil {
			r.room = make([]byte, max(4<<10, 4*r.m.most))
		}
		n, err := r.fill(r.room)
		if r.out = r.room[:n]; n == 0 {
			return 0, err
		}
	}
	n := copy(p, r.out)
	r.out = r.out[n:]
	return n, nil
}

func (r *maskReader) fill(p []byte) (int, error) {
	for {
		n := copy(p, r.held)
		r.held = r.held[:0]
		if r.err != nil {
			return n, r.err
		}
		m, err := r.from.Read(p[n:])
		r.err = err
		n += m
		if err == nil {
			hold := r.m.Part(p[:n])
			r.held = append(r.held, p[n-hold:n]...)
			n -= hold
		} else {
			r.m.Mask(p[:n])
		}
		if n > 0 {
			return n, nil
		}
		if err != nil {
			return 0, err
		}
	}
}
