package policy

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"encoding/json"
)

// seeds adds every file of a folder, and fails where there is none.
func seeds(f *testing.F, pattern string) {
	f.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds at %s: %v", pattern, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
}

// FuzzParse: what is accepted round-trips, compiles or says why, and lints;
// what is refused returns nothing and has a place.
func FuzzParse(f *testing.F) {
	seeds(f, "testdata/seeds/*.json")
	f.Add(example)
	f.Add(organisation)
	f.Add(`{"network":{"rules":[{"hosts":["*.münchen.example"],"paths":["/%41"]}]}} // x`)
	presets := BuiltinPresets()
	f.Fuzz(func(t *testing.T, src string) {
		d, err := Parse("p", []byte(src))
		if err != nil {
			if d != nil {
				t.Fatal("a document came with an error")
			}
			errs := err.(*Errors)
			for _, p := range errs.Problems {
				if p.Line < 1 || p.Column < 1 || p.Message == "" || p.Line > 1+strings.Count(src, "\n") {
					t.Fatalf("a problem without its place: %+v", p)
				}
				// Where the sentence lists what is valid it is its own hint.
				if p.Hint == "" && !strings.Contains(p.Message, "expected") && !strings.Contains(p.Message, "valid ") && !strings.Contains(p.Message, "which are ") {
					t.Fatalf("a problem without a hint: %+v", p)
				}
				if strings.ContainsFunc(p.Message+p.Hint, func(r rune) bool { return r < ' ' || r == 0x7f || 0x80 <= r && r < 0xa0 }) {
					t.Fatalf("a message that a terminal obeys: %q", p.Message)
				}
			}
			return
		}
		text, err := json.Marshal(d)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Parse("p", text)
		if err != nil {
			t.Fatalf("%v\nin %s", err, text)
		}
		if text2, _ := json.Marshal(again); string(text2) != string(text) {
			t.Fatalf("%s\nbecame %s", text, text2)
		}
		for _, w := range Lint(d) {
			if w.Line < 1 || w.Column < 1 {
				t.Fatalf("a warning without its place: %+v", w)
			}
		}
		e, err := Compile([]Layer{{Name: LayerRepository, Document: d}}, nil, presets)
		if err != nil {
			return
		}
		e2, err := Compile([]Layer{{Name: LayerRepository, Document: again}}, nil, presets)
		if err != nil || e.Digest() != e2.Digest() {
			t.Fatalf("the digest does not follow the meaning: %v", err)
		}
	})
}

// FuzzReadJSON: whatever our reader accepts without comments and trailing
// commas, encoding/json accepts and reads alike.
func FuzzReadJSON(f *testing.F) {
	seeds(f, "testdata/seeds/*.json")
	f.Add(`{"a":[1,-0.5e+3,true,null,"\ud83d\ude00\u0041\/"]}`)
	f.Fuzz(func(t *testing.T, src string) {
		n, fault := readJSON([]byte(src))
		if fault != nil {
			return
		}
		if !json.Valid([]byte(src)) {
			return // comments or trailing commas
		}
		var want any
		dec := json.NewDecoder(strings.NewReader(src))
		dec.UseNumber()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("accepted what encoding/json does not: %v", err)
		}
		if got := plain(n); !reflect.DeepEqual(got, want) {
			t.Fatalf("%q\n got %#v\nwant %#v", src, got, want)
		}
	})
}

// plain is a node as encoding/json would have it.
func plain(n *node) any {
	switch n.kind {
	case kindBool:
		return n.text == "true"
	case kindNumber:
		return json.Number(n.text)
	case kindString:
		return n.text
	case kindArray:
		out := []any{}
		for _, item := range n.items {
			out = append(out, plain(item))
		}
		return out
	case kindObject:
		out := map[string]any{}
		for _, m := range n.members {
			out[m.name] = plain(m.value)
		}
		return out
	}
	return nil
}

// FuzzNormalHost: the normal form is its own, never holds what is refused, and
// all ways to match agree on it.
func FuzzNormalHost(f *testing.F) {
	for _, s := range []string{"api.x.example", "API.X.example.", "münchen.example", "xn--mnchen-3ya.example", "[::1]", "::ffff:10.0.0.1", "1.2.3.4", "1.2.3",
		"0x7f.1", "fe80::1%eth0", "a..b", "*.x.example", "**.x.example", "ａ。ｂ", "faß.example", "a\u00adb", "x.example:443", "https://x", "10.0.0.0/8", "١.example", "host.mojoup.internal"} {
		f.Add(s, "a.x.example")
	}
	f.Fuzz(func(t *testing.T, s, other string) {
		host, err := NormalHost(s)
		if err == nil {
			normalHostHolds(t, s, host)
		} else if host != "" {
			t.Fatalf("%q came with an error", host)
		}
		pattern, fault := parseHostPattern(s)
		if fault != nil {
			return
		}
		if again, fault := parseHostPattern(pattern.String()); fault != nil || again != pattern {
			t.Fatalf("the pattern %q is written %q and read as %v, %v", s, pattern, again, fault)
		}
		r, fault := newRule(Rule{Hosts: []string{s}, Ports: []uint16{443}}, Source{}, "", false)
		if fault != nil {
			t.Fatal(fault)
		}
		var x index
		x.add(r)
		for _, name := range []string{other, pattern.name, "a." + pattern.name, "a.b." + pattern.name, "x" + pattern.name} {
			probe, err := NormalHost(name)
			if err != nil {
				continue
			}
			q, why := ask(&Request{Host: probe, Port: 443})
			found := why == "" && len(x.lookup(&q, nil)) > 0
			if want := pattern.matches(probe); found != want && why == "" {
				t.Fatalf("%s on %s: looked up %v, matched %v", pattern, probe, found, want)
			}
		}
	})
}

func normalHostHolds(t *testing.T, s, host string) {
	if again, err := NormalHost(host); err != nil || again != host {
		t.Fatalf("%q became %q became %q, %v", s, host, again, err)
	}
	addr, ok := isNormalHost(host)
	if !ok {
		t.Fatalf("%q became %q, which Decide refuses", s, host)
	}
	if addr.IsValid() {
		if parsed, err := netip.ParseAddr(host); err != nil || parsed != addr || addr.Is4In6() || addr.Zone() != "" {
			t.Fatalf("%q became %q", s, host)
		}
		return
	}
	if strings.Trim(host, "abcdefghijklmnopqrstuvwxyz0123456789-_.") != "" || strings.Contains(host, "..") ||
		strings.HasPrefix(host, ".") || strings.HasSuffix(host, ".") || endsInNumber(host) || len(host) > 253 {
		t.Fatalf("%q became %q", s, host)
	}
	if _, err := netip.ParseAddr(host); err == nil {
		t.Fatalf("%q became %q, an address", s, host)
	}
}

// FuzzNormalPath: the normal form is its own, never holds what servers read
// differently, and no pattern but ** crosses a slash in any spelling.
func FuzzNormalPath(f *testing.F) {
	for _, s := range []string{"/", "", "*", "/a/../b", "//a", "/%2e%2e/a", "/a%2fb", "/a;b", "/..;/a", "/%c0%af", "/a%00", `/a\b`, "/é", "/a%zz", "/a/b/%2E", "/a%25252f", "/a*b"} {
		f.Add(s, "/v1/*")
		f.Add(s, "/**/a")
	}
	f.Fuzz(func(t *testing.T, s, text string) {
		path, err := NormalPath(s)
		if err != nil {
			if path != "" || isNormalPath(s) {
				t.Fatalf("%q came with an error, %q is normal: %v", path, s, isNormalPath(s))
			}
			return
		}
		if again, err := NormalPath(path); err != nil || again != path {
			t.Fatalf("%q became %q became %q, %v", s, path, again, err)
		}
		if (path == s) != isNormalPath(s) || !isNormalPath(path) {
			t.Fatalf("%q became %q: is normal %v, %v", s, path, isNormalPath(s), isNormalPath(path))
		}
		if path == "*" {
			return
		}
		normalPathHolds(t, s, path)
		p, fault := parsePathPattern(text)
		if fault != nil {
			return
		}
		if p.match(path) {
			slashes := strings.Count(path, "/") + strings.Count(path, "%2F")
			most := strings.Count(p.text, "/") + strings.Count(p.text, "%2F")
			if !strings.Contains(p.text, "**") && slashes != most {
				t.Fatalf("%s matches %s: a star crossed a slash", p.text, path)
			}
		}
		if got, want := p.match(path), slowMatch(p.segments, strings.Split(path[1:], "/")); got != want {
			t.Fatalf("%s on %s: %v, by hand %v", p.text, path, got, want)
		}
	})
}

func normalPathHolds(t *testing.T, s, path string) {
	if path[0] != '/' || strings.Contains(path, "//") {
		t.Fatalf("%q became %q", s, path)
	}
	for seg := range strings.SplitSeq(path[1:], "/") {
		if seg == "." || seg == ".." {
			t.Fatalf("%q became %q", s, path)
		}
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '%':
			v, ok := unhex(path, i)
			if !ok || isUnreserved(v) || v < ' ' || v == 0x7f || v == '\\' || strings.ToUpper(path[i:i+3]) != path[i:i+3] {
				t.Fatalf("%q became %q", s, path)
			}
		case c <= ' ', c >= 0x7f, c == '\\', c == '?', c == '#':
			t.Fatalf("%q became %q", s, path)
		}
	}
}

// slowMatch is the documented meaning, word by word.
func slowMatch(pattern, path []string) bool {
	if len(pattern) == 0 {
		return len(path) == 0
	}
	if pattern[0] == "**" {
		if len(pattern) == 1 {
			return len(path) > 0
		}
		for i := range len(path) + 1 {
			if slowMatch(pattern[1:], path[i:]) {
				return true
			}
		}
		return false
	}
	return len(path) > 0 && slowSegment(pattern[0], path[0], true) && slowMatch(pattern[1:], path[1:])
}

func slowSegment(pattern, seg string, first bool) bool {
	if first && (pattern == "") != (seg == "") {
		return false
	}
	if pattern == "" {
		return seg == ""
	}
	if pattern[0] == '*' {
		for i := 0; i <= len(seg); {
			if slowSegment(pattern[1:], seg[i:], false) {
				return true
			}
			if i == len(seg) || strings.HasPrefix(seg[i:], "%2F") {
				return false
			}
			i += width(seg, i)
		}
		return false
	}
	w := width(pattern, 0)
	return len(seg) >= w && seg[:w] == pattern[:w] && slowSegment(pattern[w:], seg[w:], false)
}
