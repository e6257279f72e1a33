package repo

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestPatterns(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{
		".env", ".env.local", "a/.env", "a/b/.env", "a/b/c.pem", "a/b/d.pem", "a/x.pem", "ci/run", "node_modules/p/.env", ".git/HEAD", ".git/hooks/x.pem",
	} {
		path := filepath.Join(top, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("a", filepath.Join(top, "link")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		patterns string
		missing  bool
		want     string
	}{
		{".env", false, ".env"},
		{".env*", false, ".env .env.local"},
		{"**/.env", false, ".env a/.env a/b/.env node_modules/p/.env"},
		{"a/**/*.pem", false, "a/b/c.pem a/b/d.pem a/x.pem"},
		{"a/**", false, "a"},
		{"a/", false, "a"},
		{"a/b/* a", false, "a"},
		{"*/b", false, "a/b"},
		{"**/b/c.pem", false, "a/b/c.pem"},
		{"no/such/thing .github/**", false, ""},
		{"no/such/thing .github/** a/no .env/x", true, ".env .github a/no no"},
		{"no/*.x", true, ""},
		{".git/** .git", true, ""},
		{"link", true, "link"},
		{"link/b", true, "link"},
		{"l*", true, ""},
		{"*.pem", false, ""},
		{"**", false, ".env .env.local a ci node_modules"},
	} {
		f := finder{top: top, left: maxLooked}
		found, err := f.all(strings.Fields(c.patterns), c.missing)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, path := range found {
			rel, _ := filepath.Rel(top, path)
			got = append(got, rel)
		}
		if diff := cmp.Diff(c.want, strings.Join(got, " ")); diff != "" {
			t.Errorf("%s (missing held: %v) (-want +got):\n%s", c.patterns, c.missing, diff)
		}
	}
	f := finder{top: top, left: 3}
	if _, err := f.all([]string{"**/x"}, false); err == nil {
		t.Error("a tree larger than the bound was searched")
	}
}

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		pattern, name string
		want          bool
	}{
		{"*", "x", true}, {"*.pem", "a.pem", true}, {"*.pem", ".pem", true}, {"*.pem", "a.pemx", false}, {"a*b", "ab", true}, {"a*b", "aXb", true},
		{"a*b*c", "abc", true}, {"a*b*c", "aXcXbc", true}, {"a*b*c", "acb", false}, {"aa*a", "aa", false}, {"x", "x", true},
	} {
		if got := strings.Contains(c.pattern, "*") && matches(c.pattern, c.name) || c.pattern == c.name; got != c.want {
			t.Errorf("%q against %q: %v", c.pattern, c.name, got)
		}
	}
}
