package secrets

import (
	"encoding/base64"
	"strings"
)

// basicPlain is what a value of the form Basic encodes, and in which alphabet: many
// servers read any of them.
func basicPlain(value string) (plain string, by *base64.Encoding) {
	scheme, rest, ok := strings.Cut(value, " ")
	if !ok || !strings.EqualFold(scheme, "Basic") {
		return "", nil
	}
	rest = strings.TrimSpace(rest)
	for _, by = range []*base64.Encoding{base64.StdEncoding, base64.RawStdEncoding, base64.URLEncoding, base64.RawURLEncoding} {
		if b, err := by.DecodeString(rest); err == nil {
			return string(b), by
		}
	}
	return "", nil
}

// basicPlains is what servers may read where a value says that it is Basic. Many
// pass over what is no letter of base64, some end at what fills up, and some begin
// anew behind it. What only they can read has no place for a key.
func basicPlains(value string) (plain []string) {
	if len(value) <= len("Basic") || !strings.EqualFold(value[:len("Basic")], "Basic") {
		return nil
	}
	if text, by := basicPlain(value); by != nil {
		return []string{text}
	}
	letters := strings.Map(func(r rune) rune {
		switch {
		case r == '-':
			return '+'
		case r == '_':
			return '/'
		case r == '=' || r == '+' || r == '/' || '0' <= r && r <= '9' || 'A' <= r && r <= 'Z' || 'a' <= r && r <= 'z':
			return r
		}
		return -1
	}, value[len("Basic"):])
	for _, part := range append(strings.Split(letters, "="), strings.ReplaceAll(letters, "=", "")) {
		if len(part)%4 == 1 {
			part = part[:len(part)-1] // says nothing
		}
		if b, err := base64.RawStdEncoding.DecodeString(part); err == nil && len(b) > 0 {
			plain = append(plain, string(b))
		}
	}
	return plain
}

// swapBasic swaps the password, or the user in front of an empty one.
func swapBasic(value, standIn, key string) (credentials string, ok bool) {
	plain, by := basicPlain(value)
	if by == nil {
		return "", false
	}
	user, password, ok := strings.Cut(plain, ":")
	switch {
	case ok && password == standIn && !strings.Contains(user, standIn):
		return by.EncodeToString([]byte(user + ":" + key)), true
	case ok && user == standIn && (password == "" || password == "x-oauth-basic"):
		return by.EncodeToString([]byte(key + ":" + password)), true
	}
	return "", false
}
