package secrets

import (
	"bytes"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/big"
	"slices"
	"strings"
)

const (
	// minLength is the shortest key that can have a stand-in: what is shorter
	// would be found by chance in what is none.
	minLength = 12
	// minRandom is how many characters of a stand-in must be random: 8 of 62
	// are 47 bits, and nobody may try more often than once.
	minRandom = 8
	// MaxLength bounds a key. Tokens with claims have some thousand bytes.
	MaxLength = 8 << 10
)

// A ShapeError says why a key cannot be used. It never holds the key.
type ShapeError struct{ reason, hint string }

func (e *ShapeError) Error() string { return e.reason }

// Hint is the next step for people.
func (e *ShapeError) Hint() string { return e.hint }

// CheckShape refuses keys that could not stand in a header, or are so short
// that a stand-in would be recognised by chance.
func CheckShape(v Value) error {
	b := v.RevealForTheWire()
	defer clear(b)
	for _, c := range b {
		if c <= ' ' || c >= 0x7f {
			return &ShapeError{"the key has a blank, a line break or another character that a header cannot hold",
				"a key is one word of printable ASCII; a line break at its end is taken off"}
		}
	}
	switch {
	case len(b) == 0:
		return &ShapeError{"the key is empty", "look at where it is kept: there is nothing but a line break there"}
	case len(b) > MaxLength:
		// How many it has is not known: who reads one stops behind the bound.
		return &ShapeError{fmt.Sprintf("the key has more than %d bytes, which is the most that can be used", MaxLength), "name where the key itself is, and not a file or command with more in it"}
	case len(b) < minLength || randomPart(b, nil) < 0:
		return &ShapeError{fmt.Sprintf("the key is too short: a stand-in needs %d characters, %d of them letters or digits behind a prefix", minLength, minRandom),
			"stand-ins are looked for in all that a session sends, and as short a word would stand there by chance: have the service make a longer key"}
	case strings.Contains(string(b), "://"):
		// One tool takes such a key for the address that all keys are sent to.
		return &ShapeError{"the key has :// in it, as an address has", "give the key itself; --host says where it goes"}
	}
	return nil
}

// prefixes are beginnings that programs look at, longest first where one
// begins another. What follows is random in a stand-in.
var prefixes = []string{
	"sk-ant-api03-", "sk-ant-oat01-", "sk-ant-ort01-", "sk-ant-admin01-", "sk-ant-", "sk-svcacct-", "sk-proj-", "sk-or-v1-", "sk_live_", "sk_test_", "sk-",
	"github_pat_", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "glpat-", "AIza", "ya29.", "xoxb-", "xoxp-", "xapp-", "hf_", "npm_", "gsk_", "xai-", "pypi-", "dop_v1_",
}

// suffixes are ends that programs look at, by prefix.
var suffixes = map[string]string{"sk-ant-api03-": "AA", "sk-ant-oat01-": "AA", "sk-ant-ort01-": "AA"}

// LooksLikeKey reports whether a word begins as the keys of some service do and goes
// on as long as one, so that it is not repeated where somebody gave it by mistake.
func LooksLikeKey(word string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool {
		rest, ok := strings.CutPrefix(word, p)
		return ok && letters([]byte(rest)) >= minRandom && !strings.ContainsAny(rest, " ./")
	})
}

// randomPart returns where the random part of a stand-in for b begins, or -1
// if it would be too short. more are prefixes beside those of everybody.
func randomPart(b []byte, more []string) int {
	for _, p := range slices.Concat(more, prefixes) {
		if bytes.HasPrefix(b, []byte(p)) && letters(b[len(p):]) >= minRandom {
			return len(p)
		}
	}
	// A short word in front of a dash or underline, as the next service will
	// have it.
	if i := bytes.IndexAny(b[:min(len(b), 10)], "-_"); i > 0 && letters(b[i+1:]) >= 2*minRandom {
		return i + 1
	}
	if letters(b) >= minRandom {
		return 0
	}
	return -1
}

func letters(b []byte) (n int) {
	for _, c := range b {
		if class(c) != 0 {
			n++
		}
	}
	return n
}

const (
	digit = 1 << iota
	lower
	upper
	notHex
)

func class(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return digit
	case 'a' <= c && c <= 'f':
		return lower
	case 'A' <= c && c <= 'F':
		return upper
	case 'g' <= c && c <= 'z':
		return lower | notHex
	case 'G' <= c && c <= 'Z':
		return upper | notHex
	}
	return 0
}

// alphabet holds the letters and digits that b is made of, so that a stand-in
// of hexadecimal digits, or of capitals, is one too.
func alphabet(b []byte) string {
	all := 0
	for _, c := range b {
		all |= class(c)
	}
	var out string
	if all&digit != 0 || all&notHex == 0 {
		out += "0123456789"
	}
	for _, part := range []struct {
		class     int
		hex, word string
	}{{lower, "abcdef", "abcdefghijklmnopqrstuvwxyz"}, {upper, "ABCDEF", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"}} {
		switch {
		case all&part.class == 0:
		case all&notHex == 0:
			out += part.hex
		default:
			out += part.word
		}
	}
	return out
}

// NewStandIn makes a stand-in for a key: as long, with the same beginning
// where programs look at that, of the same letters, with the same signs at the
// same places, and random. A token with claims (a JWT) becomes one that can be
// parsed, expires when the real one does, and claims nothing else.
//
// Every encoding of a stand-in is therefore as long as that of its key, and
// one can take the other's place in a body without moving anything.
//
// keep are prefixes of keys that somebody looks at, beside the usual ones.
func NewStandIn(v Value, keep ...string) (string, error) { return newStandIn(v, false, keep) }

// newStandIn makes one that, lasting, never expires by what it claims: a tool
// that reads its token would otherwise go and renew it.
func newStandIn(v Value, lasting bool, keep []string) (string, error) {
	if err := CheckShape(v); err != nil {
		return "", err
	}
	key := v.RevealForTheWire()
	defer clear(key)
	for range 16 {
		s := tokenStandIn(key, lasting)
		if s == nil {
			s = plainStandIn(key, keep)
		}
		if !bytes.Equal(s, key) {
			return string(s), nil
		}
	}
	return "", &ShapeError{"no stand-in differs from the key", "give the service a new key"}
}

func plainStandIn(key []byte, keep []string) []byte {
	from, to := randomPart(key, keep), len(key)
	if end := suffixes[string(key[:from])]; end != "" && bytes.HasSuffix(key, []byte(end)) && letters(key[from:to-len(end)]) >= minRandom {
		to -= len(end)
	}
	letters := alphabet(key[from:to])
	out := bytes.Clone(key)
	for i := from; i < to; i++ {
		if class(out[i]) != 0 {
			out[i] = letters[below(len(letters))]
		}
	}
	return out
}

// below is a random number from 0 to n-1.
func below(n int) int {
	i, err := rand.Int(rand.Reader, big.NewInt(int64(n)))
	if err != nil {
		panic("BUG: no random numbers: " + err.Error()) // crypto/rand does not fail
	}
	return int(i.Int64())
}

// tokenStandIn is a stand-in for a JWT, or nil where key is none. The header
// names an algorithm and is kept; of the claims only the times are.
func tokenStandIn(key []byte, lasting bool) []byte {
	parts := bytes.Split(key, []byte("."))
	if len(parts) != 3 {
		return nil
	}
	var head struct {
		Alg string `json:"alg"`
	}
	first, err := base64.RawURLEncoding.DecodeString(string(parts[0]))
	if err != nil || json.Unmarshal(first, &head) != nil || head.Alg == "" {
		return nil
	}
	claims, err := base64.RawURLEncoding.DecodeString(string(parts[1]))
	if err != nil {
		return nil
	}
	made := standInClaims(claims, lasting)
	clear(claims)
	signature := make([]byte, base64.RawURLEncoding.DecodedLen(len(parts[2])))
	if made == nil || len(signature) < minRandom {
		return nil
	}
	_, _ = rand.Read(signature) // never fails
	out := bytes.Join([][]byte{parts[0], []byte(base64.RawURLEncoding.EncodeToString(made)), []byte(base64.RawURLEncoding.EncodeToString(signature))}, []byte("."))
	if len(out) != len(key) {
		return nil
	}
	return out
}

// farAway is the end of 2099, in as many digits as times have today.
const farAway = "4102444799"

// standInClaims is a JSON object as long as claims, with their times and
// nothing else of them, or nil where that does not fit.
func standInClaims(claims []byte, lasting bool) []byte {
	var times struct {
		Exp json.Number `json:"exp"`
		Iat json.Number `json:"iat"`
	}
	if json.Unmarshal(claims, &times) != nil {
		return nil
	}
	if lasting && len(times.Exp) == len(farAway) {
		times.Exp = farAway
	}
	head := "{"
	for _, t := range []struct {
		name string
		at   json.Number
	}{{"exp", times.Exp}, {"iat", times.Iat}} {
		if _, err := t.at.Int64(); err == nil {
			head += fmt.Sprintf("%q:%s,", t.name, t.at)
		}
	}
	const before, after = `"x":"`, `"}`
	room := len(claims) - len(head) - len(before) - len(after)
	if room < 0 {
		return nil
	}
	fill := make([]byte, room)
	for i := range fill {
		fill[i] = "0123456789abcdef"[below(16)]
	}
	return []byte(head + before + string(fill) + after)
}
