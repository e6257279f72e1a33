package profile

import (
	"flag"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the table of keys in docs/tools.md anew")

// TestEveryKeyIsDescribed holds the table to the types: a key that [Parse] takes
// and nobody describes is one that nobody can know of.
func TestEveryKeyIsDescribed(t *testing.T) {
	taken := kinds()
	var known []string
	for _, d := range keys {
		if _, ok := taken[d.key]; !ok {
			t.Errorf("%s is described, and no profile may have it", d.key)
		}
		if slices.Contains(known, d.key) || d.about == "" {
			t.Errorf("%s is described twice, or not at all", d.key)
		}
		known = append(known, d.key)
	}
	for key := range taken {
		if !slices.Contains(known, key) {
			t.Errorf("a profile may have %s, which nothing describes", key)
		}
	}
}

// TestDocsHoldEveryKey keeps docs/tools.md true to the table.
func TestDocsHoldEveryKey(t *testing.T) {
	const page, begin, end = "../../../../docs/tools.md", "<!-- every key: made by `make generate` -->\n", "<!-- until here -->\n"
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok := strings.Cut(string(text), begin)
	was, tail, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		t.Fatalf("%s has no place for the keys, between %q and %q", page, begin, end)
	}
	now := "\n" + Markdown() + "\n"
	if *update {
		if err := os.WriteFile(page, []byte(head+begin+now+end+tail), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(was, now); diff != "" {
		t.Errorf("%s is stale, see -update: %s", page, diff)
	}
}

// TestSyntax says in plain words what is no TOML, what is no key, and what is of
// another type.
func TestSyntax(t *testing.T) {
	for _, test := range []struct{ from, to, want string }{
		{`choose = "first"`, `choose = first`, `own.toml:4: first stands without quotes, and is neither a number nor true or false (write choose = "first")`},
		{`choose = "first"`, `choose = 1`, `own.toml:4: choose: it must be a text (as choose = "text")`},
		{`version = 1`, `version = "1"`, `own.toml:1: version: it must be a whole number (as version = 1)`},
		{`[program]`, `[[program]]`, `own.toml:5: program: it is a table of which there is one (write [program], in one bracket and once)`},
		{`[program]`, "never = \".x\"\n[program]", `own.toml:5: never: it must be a list of texts (as never = ["one", "two"])`},
		{`[program]`, "titel = \"x\"\n[program]", "own.toml:5: titel: there is no such key (here: version, name, title, choose, never, program, env, network, key, file, signin; docs/tools.md says what each means)"},
		{`[program]`, "[[signin.place]]\nfiles = \".x\"\n[program]", "own.toml:6: signin.place.files: there is no such key (here: vars, default, file, comments, keyring, login, command; docs/tools.md says what each means)"},
		{`[program]`, "[env]\nset = { A = 1 }\n[program]", `own.toml:6: env.set: it must be texts by name (as set = { NAME = "text" })`},
	} {
		if !strings.Contains(smallest, test.from) {
			t.Fatalf("the smallest profile has no %s", test.from)
		}
		_, err := Parse("own.toml", []byte(strings.Replace(smallest, test.from, test.to, 1)))
		if err == nil || err.Error() != test.want {
			t.Errorf("%s\n got %v\nwant %s", test.to, err, test.want)
		}
	}
}

// TestDocsExample: what docs/tools.md shows is a profile, as it stands.
func TestDocsExample(t *testing.T) {
	page, err := os.ReadFile("../../../../docs/tools.md")
	if err != nil {
		t.Fatal(err)
	}
	var all string
	for _, part := range strings.Split(string(page), "```toml\n")[1:] {
		part, _, _ = strings.Cut(part, "```\n")
		all += part
	}
	p, err := Parse("mine.toml", []byte(all))
	if err != nil {
		t.Fatal(err)
	}
	if p.SignIn == nil || len(p.Keys) != 1 || len(p.Files) != 1 {
		t.Errorf("the page shows less than it says: %+v", p)
	}
}
