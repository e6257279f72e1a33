package baseimage

import (
	"strings"
	"testing"
)

func TestReadSources(t *testing.T) {
	for text, want := range map[string]string{
		"deb http://mirror.example/debian bookworm main\n":                                                                "bookworm http://mirror.example/debian",
		"# deb http://old.example/debian sid main\ndeb [arch=amd64 signed-by=/k] http://m.example/d trixie main\n":        "trixie http://m.example/d",
		"deb http://m.example/security bookworm-security main\ndeb http://m.example/debian bookworm main\n":               "bookworm http://m.example/debian",
		"Types: deb\nURIs: http://m.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\n":                "bookworm http://m.example/debian",
		"Types: deb\nURIs: http://m.example/s\nSuites: bookworm-security\n\nURIs: http://m.example/d\nSuites: bookworm\n": "bookworm http://m.example/d",
		"": " ",
	} {
		suite, mirror := readSources(strings.NewReader(text))
		if got := suite + " " + mirror; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// TestB60_RecipesAreCheckedFirst: what would fail after minutes fails at once.
func TestB60_RecipesAreCheckedFirst(t *testing.T) {
	for name, r := range map[string]Recipe{
		"no name": {}, "no such tool": {Ref: "a", Tools: []string{"emacs"}}, "option for a package": {Ref: "a", Packages: []string{"--force"}},
		"shell": {Ref: "a", Packages: []string{"git; rm -rf /"}}, "suite": {Ref: "a", Suite: "../x"},
	} {
		err := Build(t.Context(), nil, r, func(string) {})
		if e, ok := err.(*Error); !ok || e.Hint() == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLinesAreTold(t *testing.T) {
	var said []string
	l := &lines{say: func(s string) { said = append(said, s) }}
	for _, part := range []string{"one\r\ntw", "o\nrest"} {
		_, _ = l.Write([]byte(part))
	}
	if got := strings.Join(said, "|"); got != "one|two" {
		t.Errorf("got %q", got)
	}
}
