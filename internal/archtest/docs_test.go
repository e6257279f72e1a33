package archtest

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
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
