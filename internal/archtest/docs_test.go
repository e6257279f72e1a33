package archtest

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestThreatModelNamesRealTests keeps the table of proofs true: each name in
// backquotes that looks like a test, or like a part of the engines' suite,
// must exist.
func TestThreatModelNamesRealTests(t *testing.T) {
	page, err := os.ReadFile("../../docs/threat-model.md")
	if err != nil {
		t.Fatal(err)
	}
	sources := goSources(t)
	names := regexp.MustCompile("`((?:Test|Fuzz|B[0-9]+_)[A-Za-z0-9_]+)`").FindAllStringSubmatch(string(page), -1)
	if len(names) < 30 {
		t.Fatalf("the page names %d tests", len(names))
	}
	for _, n := range names {
		if !strings.Contains(sources, "func "+n[1]+"(") && !strings.Contains(sources, `"`+n[1]+`"`) {
			t.Errorf("no test is called %s", n[1])
		}
	}
}

// TestLinksInDocsLead checks that every relative link of a page leads to a file.
func TestLinksInDocsLead(t *testing.T) {
	link := regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)
	pages := 0
	walk(t, ".md", func(path string, text []byte) {
		pages++
		for _, m := range link.FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s: link to %s leads nowhere", path, m[1])
			}
		}
	})
	if pages < 5 {
		t.Fatalf("found %d pages", pages)
	}
}

// TestDecisionsHaveANumberEach: two that were written at the same time must not
// have the same one, or none knows which of them "ADR 18" is.
func TestDecisionsHaveANumberEach(t *testing.T) {
	pages, err := filepath.Glob("../../docs/adr/[0-9]*.md")
	if err != nil || len(pages) < 20 {
		t.Fatalf("found %d decisions: %v", len(pages), err)
	}
	slices.Sort(pages)
	for i, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		if name := filepath.Base(page); !strings.HasPrefix(name, fmt.Sprintf("%04d-", i+1)) || !strings.HasPrefix(string(text), fmt.Sprintf("# %d. ", i+1)) {
			t.Errorf("%s: the name or the title is not that of decision %d", name, i+1)
		}
	}
	link := regexp.MustCompile(`\[ADR ([0-9]+)\]\([^)]*?adr/0*([0-9]+)-`)
	walk(t, ".md", func(path string, text []byte) {
		for _, m := range link.FindAllStringSubmatch(string(text), -1) {
			if m[1] != m[2] {
				t.Errorf("%s: the link ADR %s leads to decision %s", path, m[1], m[2])
			}
		}
	})
}

// TestEveryPackageHasItsRoom keeps the table of rooms whole: each package two
// folders deep has a row, and the others lie below one.
func TestEveryPackageHasItsRoom(t *testing.T) {
	page, err := os.ReadFile("../../docs/ARCHITECTURE.md")
	if err != nil {
		t.Fatal(err)
	}
	rooms := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z/-]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		if rooms[row[1]] {
			t.Errorf("docs/ARCHITECTURE.md has two rows for %s", row[1])
		}
		rooms[row[1]] = true
	}
	if len(rooms) < 20 {
		t.Fatalf("the page has %d rooms", len(rooms))
	}
	_, docs := packages(t)
	for dir := range docs {
		parts := strings.SplitN(filepath.ToSlash(dir), "/", 3)
		if len(parts) > 1 && !rooms[parts[0]+"/"+parts[1]] {
			t.Errorf("docs/ARCHITECTURE.md has no row for %s", dir)
		}
	}
	for room := range rooms {
		if _, err := os.Stat(filepath.Join("..", "..", filepath.FromSlash(room))); err != nil {
			t.Errorf("docs/ARCHITECTURE.md has a row for %s, which is not there", room)
		}
	}
}

// TestReadmeShowsWhatTrySays holds the first screen of the README to the
// program whose answer it shows.
func TestReadmeShowsWhatTrySays(t *testing.T) {
	said := func(file, pattern string) (out []string) {
		text, err := os.ReadFile(filepath.Join("..", "..", file))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			out = append(out, m[1])
		}
		return out
	}
	shown, tried := said("README.md", `(?m)^ +could(?: not)? +(.*)$`), said("packaging/try.sh", `(?m)^try "([^"]*)"`)
	if len(shown) < 5 || !slices.Equal(shown, tried) {
		t.Errorf("README.md shows %q, packaging/try.sh tries %q", shown, tried)
	}
}

// TestCodesAreSpelledAlike: codes for programs are lower case words joined by
// '-', wherever they are given.
func TestCodesAreSpelledAlike(t *testing.T) {
	given := regexp.MustCompile(`(?:Code\(\) string\s*\{ return |\bCode[A-Z]\w* *= |\bWithCode\(|api\.Problem\{Code: |\bKind = )"([^"]*)"`)
	form := regexp.MustCompile(`^[a-z]+(-[a-z]+)*$`)
	found := 0
	walk(t, ".go", func(path string, text []byte) {
		if strings.HasSuffix(path, "_test.go") {
			return
		}
		for _, m := range given.FindAllSubmatch(text, -1) {
			if strings.Contains(path, "config/kind.go") {
				continue // kinds of settings, which are for people
			}
			if found++; !form.Match(m[1]) {
				t.Errorf("%s: code %q", path, m[1])
			}
		}
	})
	if found < 30 {
		t.Fatalf("found %d codes", found)
	}
}

func goSources(t *testing.T) string {
	var all strings.Builder
	walk(t, ".go", func(_ string, text []byte) { all.Write(text) })
	return all.String()
}

// walk calls f for every file of the repository with that ending.
func walk(t *testing.T, ext string, f func(path string, text []byte)) {
	t.Helper()
	root := filepath.Join("..", "..")
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			if err == nil && path != root && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
				return filepath.SkipDir
			}
			return err
		}
		if filepath.Ext(path) != ext {
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil {
			f(path, text)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
