package policy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestDocsExamples: what docs/policy.md and the README show are policies, as they
// stand, of which every line does something.
func TestDocsExamples(t *testing.T) {
	for page, least := range map[string]int{"../../docs/policy.md": 6, "../../README.md": 1} {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		examples := strings.Split(string(text), "```jsonc\n")[1:]
		if len(examples) < least {
			t.Errorf("%s shows %d policies", page, len(examples))
		}
		for _, example := range examples {
			example, _, _ = strings.Cut(example, "```\n")
			d, err := Parse(page, []byte(example))
			if err != nil {
				t.Errorf("%v in:\n%s", err, example)
				continue
			}
			for _, w := range Lint(d) {
				t.Errorf("%s: %s in:\n%s", page, w.Message, example)
			}
		}
	}
}

// TestDocsNameEveryPreset keeps the table of presets in docs/policy.md whole.
func TestDocsNameEveryPreset(t *testing.T) {
	text, err := os.ReadFile("../../docs/policy.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "| preset | opens |\n")
	table, _, _ = strings.Cut(table, "\n\n")
	var shown []string
	for _, name := range regexp.MustCompile("`([a-z-]+)`").FindAllStringSubmatch(table, -1) {
		shown = append(shown, name[1])
	}
	all := BuiltinPresets().names()
	for _, name := range all {
		if !slices.Contains(shown, name) {
			t.Errorf("the table of presets lacks %s", name)
		}
	}
}
