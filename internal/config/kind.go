package config

import (
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/pelletier/go-toml/v2"
)

// Kind is what a setting's value may be.
type Kind string

// The kinds, by the words that people are shown.
const (
	String   Kind = "text"
	Enum     Kind = "one of"
	Bool     Kind = "true or false"
	Int      Kind = "number"
	Float    Kind = "decimal number"
	Size     Kind = "size"           // bytes: 0, 512MiB, 4GiB
	Duration Kind = "duration"       // 0, 90s, 8h
	Prefixes Kind = "address ranges" // 10.2.0.0/16,fd00::/8
	List     Kind = "list of texts"  // a,b or ["a", "b"]
)

// wants says what a kind expects, to follow "it must be".
func (s Setting) wants() string {
	switch s.Kind {
	case Enum:
		return "one of " + strings.Join(s.Allowed, ", ")
	case Bool:
		return "true or false"
	case Int:
		return "a whole number from 0 on, for example 8"
	case Float:
		return "a decimal number from 0 on, for example 1.5"
	case Size:
		return "a size such as 512MiB or 4GiB"
	case Duration:
		return "a duration such as 90s, 15m or 8h"
	case Prefixes:
		return "address ranges such as 10.2.0.0/16, separated by commas"
	case List:
		return "texts separated by commas"
	}
	return "text in UTF-8"
}

// parse reads a value from a text of the command line or the environment.
func (s Setting) parse(text string) (any, error) {
	data, ok := parseKind(s, text)
	if !ok {
		return nil, &ValueError{Key: s.Key, Value: shorten(text, 80), Want: s.wants(), hint: s.meant(text)}
	}
	return data, s.accept(data, shorten(text, 80))
}

// meant names the allowed value that a text is nearest to, if it is near one.
func (s Setting) meant(text string) string {
	if near := Nearest(text, s.Allowed); near != "" && text != "" {
		return "did you mean " + near + "?"
	}
	return ""
}

// inFile says how a value is written in the file: that which raw means where it is
// of another type, or else one of its kind.
func (s Setting) inFile(raw any) string {
	switch raw.(type) {
	case string, bool, int64, float64:
		text := fmt.Sprint(raw)
		if data, err := s.parse(text); err == nil {
			return "in the file it is written " + s.encode(text, data)
		}
	}
	switch s.Kind {
	case Size:
		return `in the file it is a text: "4GiB"`
	case Duration:
		return `in the file it is a text: "8h"`
	case Prefixes:
		return `in the file it is a list: ["10.2.0.0/16"]`
	case List:
		return `in the file it is a list: ["one", "two"]`
	}
	return ""
}

// accept asks the setting's own check.
func (s Setting) accept(data any, shown string) error {
	if s.check == nil {
		return nil
	}
	if want := s.check(data); want != "" {
		return &ValueError{Key: s.Key, Value: shown, Want: want}
	}
	return nil
}

func parseKind(s Setting, text string) (any, bool) {
	switch s.Kind {
	case String:
		return text, utf8.ValidString(text) && !strings.ContainsRune(text, 0)
	case Enum:
		return text, slices.Contains(s.Allowed, text)
	case Bool:
		return text == "true", text == "true" || text == "false"
	case Int:
		return parseInt(text)
	case Float:
		return parseFloat(text)
	case Size:
		return parseSize(text)
	case Duration:
		d, err := time.ParseDuration(text)
		return d, err == nil && d >= 0 && !strings.HasPrefix(text, "+") && !strings.HasPrefix(text, "-")
	case Prefixes:
		words, ok := parseList(text)
		if !ok {
			return nil, false
		}
		return parsePrefixes(words)
	case List:
		return parseList(text)
	}
	return nil, false
}

// parseInt takes plain decimal: 0123 and 1e3 mean different things to
// different readers.
func parseInt(text string) (int64, bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0 && strconv.FormatInt(n, 10) == text
}

// parseFloat takes digits with at most one point between them.
func parseFloat(text string) (float64, bool) {
	whole, part, point := strings.Cut(text, ".")
	if !digits(whole) || point && !digits(part) || len(whole) > 1 && whole[0] == '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(text, 64)
	return f, err == nil
}

func digits(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }

// units of sizes, in bytes. Without a unit only 0 is a size: whoever writes
// 4096 may have meant megabytes.
var units = []struct {
	name  string
	bytes int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

func parseSize(text string) (int64, bool) {
	if text == "0" {
		return 0, true
	}
	for _, u := range units {
		number, ok := strings.CutSuffix(text, u.name)
		if !ok {
			continue
		}
		n, ok := parseInt(number)
		return n * u.bytes, ok && n <= math.MaxInt64/u.bytes
	}
	return 0, false
}

// parseList splits at commas. A text that begins with '[' is a list as TOML
// has it, for items that hold commas themselves.
func parseList(text string) ([]string, bool) {
	if strings.TrimSpace(text) == "" {
		return []string{}, true
	}
	if strings.HasPrefix(text, "[") {
		var v struct{ V []string }
		// One line only: what follows could otherwise be more settings.
		if strings.ContainsAny(text, "\r\n") || toml.Unmarshal([]byte("V = "+text), &v) != nil || v.V == nil {
			return nil, false
		}
		return v.V, validItems(v.V)
	}
	var out []string
	for item := range strings.SplitSeq(text, ",") {
		out = append(out, strings.TrimSpace(item))
	}
	return out, validItems(out)
}

func validItems(items []string) bool {
	for _, item := range items {
		if item == "" || !utf8.ValidString(item) || strings.ContainsRune(item, 0) {
			return false
		}
	}
	return true
}

// parsePrefixes takes ranges whose address is their first one: 10.2.3.4/16
// leaves open which was meant, the range or the address.
func parsePrefixes(words []string) ([]netip.Prefix, bool) {
	out := []netip.Prefix{}
	for _, w := range words {
		p, err := netip.ParsePrefix(w)
		if err != nil || p != p.Masked() || p.Addr().Is4In6() {
			return nil, false
		}
		out = append(out, p)
	}
	return out, true
}

// formatList is the text that parseList reads back as items.
func formatList(items []string) string {
	plain := func(item string) bool {
		return !strings.ContainsAny(item, ",\r\n") && item[0] != '[' && strings.TrimSpace(item) == item
	}
	if !slices.ContainsFunc(items, func(i string) bool { return !plain(i) }) {
		return strings.Join(items, ",")
	}
	return encodeList(items)
}

// decode reads a value from what the file held, as viper gives it. Its type
// must be the setting's: "true" is not true.
func (s Setting) decode(raw any) (text string, data any, err error) {
	shown := fmt.Sprintf("the %s %v", tomlType(raw), shortValue(raw))
	wrong := &ValueError{Key: s.Key, Value: shown, Want: s.wants()}
	switch s.Kind {
	case Bool:
		b, ok := raw.(bool)
		if !ok {
			return "", nil, wrong
		}
		return strconv.FormatBool(b), b, s.accept(b, shown)
	case Int:
		n, ok := raw.(int64)
		if !ok || n < 0 {
			return "", nil, wrong
		}
		return strconv.FormatInt(n, 10), n, s.accept(n, shown)
	case Float:
		f, ok := raw.(float64)
		if n, isInt := raw.(int64); isInt {
			f, ok = float64(n), true
		}
		if !ok || !(f >= 0) || math.IsInf(f, 0) {
			return "", nil, wrong
		}
		return strconv.FormatFloat(f, 'f', -1, 64), f, s.accept(f, shown)
	case Prefixes, List:
		return s.decodeList(raw, wrong)
	}
	text, ok := raw.(string)
	if !ok {
		return "", nil, wrong
	}
	data, err = s.parse(text)
	return text, data, err
}

// decodeList reads an array of strings.
func (s Setting) decodeList(raw any, wrong error) (text string, data any, err error) {
	array, ok := raw.([]any)
	if !ok {
		return "", nil, wrong
	}
	items := []string{}
	for _, r := range array {
		item, ok := r.(string)
		if !ok {
			return "", nil, wrong
		}
		items = append(items, item)
	}
	if !validItems(items) {
		return "", nil, wrong
	}
	text = formatList(items)
	data = any(items)
	if s.Kind == Prefixes {
		if data, ok = parsePrefixes(items); !ok {
			return "", nil, wrong
		}
	}
	return text, data, s.accept(data, shortValue(raw))
}

// tomlType names the type of a value in a file.
func tomlType(raw any) string {
	switch raw.(type) {
	case string:
		return "text"
	case bool:
		return "truth value"
	case int64:
		return "number"
	case float64:
		return "decimal number"
	case []any:
		return "list"
	case map[string]any:
		return "table"
	}
	return "value"
}

func shortValue(raw any) string {
	if s, ok := raw.(string); ok {
		return shorten(s, 80)
	}
	const most = 80
	text := fmt.Sprintf("%v", raw)
	if len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

// encode writes a value as TOML, on one line.
func (s Setting) encode(text string, data any) string {
	switch s.Kind {
	case Bool, Int:
		return text
	case Float:
		// A number with no point would be read as one of another type.
		if !strings.Contains(text, ".") {
			return text + ".0"
		}
		return text
	case Prefixes:
		var items []string
		for _, p := range data.([]netip.Prefix) {
			items = append(items, p.String())
		}
		return encodeList(items)
	case List:
		return encodeList(data.([]string))
	}
	return encodeString(text)
}

func encodeList(items []string) string {
	quoted := make([]string, len(items))
	for i, item := range items {
		quoted[i] = encodeString(item)
	}
	return "[" + strings.Join(quoted, ", ") + "]"
}

// encodeString writes a basic string of TOML.
func encodeString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r >= 0x7f && r < 0xa0:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
