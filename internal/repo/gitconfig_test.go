package repo

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// gitList is git's own reading of a configuration file.
func gitList(t *testing.T, text string) (gitConfig, bool) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "config")
	write(t, file, text)
	cmd := exec.Command("git", "config", "--file", file, "--no-includes", "--list", "--null")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "GIT_CONFIG_NOSYSTEM=1", "HOME=/nonexistent"}
	out, err := cmd.Output()
	if err != nil {
		return nil, false
	}
	var c gitConfig
	for _, entry := range strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00") {
		if entry == "" {
			continue
		}
		key, value, ok := strings.Cut(entry, "\n")
		c = append(c, setting{key: key, value: value, implicit: !ok})
	}
	return c, true
}

var configs = []string{
	"",
	"# only a comment\n; another\n",
	"[core]\n\tbare = false\n\thooksPath = /x/y\n",
	"[core] bare\n",
	"[core]bare=true;x\n[CORE]Bare = no # y\n",
	"[remote \"Origin \\\"x\\\\\"]\n\turl = https://example.com/a.git\n",
	"[a.B]\n c = d\n",
	"[a]\n b = \"quoted # not a comment ; \" tail  \n",
	"[a]\n b = one \\\n   two\n c = \\t\\\"\\\\\\n\n",
	"[a]\n b = x   y  z\t \n",
	"\ufeff[a]\r\n\tb = c\r\n",
	"[a]\n b =\n c = \"\"\n",
	"[include]\n path = ~/x\n[includeIf \"gitdir:/a/\"]\n path = b\n",
	"[a]\n b = 'single'\n",
	"[a]\n b = c",
	"[a]\n b = c \\",
	// refused by git
	"nonsense\n", "[a\nb = c\n", "[a]\n b = \"open\n", "[a]\n b = \\x\n", "b = c\n", "[]\nb = c\n", "[a \"x]\nb=c\n", "[a]\n1b = c\n", "[a]\n b c = d\n", "[a \"b\"x]\nc = d\n",
}

// TestConfigIsReadAsGitReadsIt compares with the real git: what it refuses may
// be refused or read, but what it reads is read the same.
func TestConfigIsReadAsGitReadsIt(t *testing.T) {
	for _, text := range configs {
		want, ok := gitList(t, text)
		got, err := parseGitConfig(text)
		if ok != (err == nil) {
			t.Errorf("%q: git took it: %v, we: %v", text, ok, err)
			continue
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(setting{})); ok && diff != "" {
			t.Errorf("%q (-git +ours):\n%s", text, diff)
		}
	}
}

func TestConfigValues(t *testing.T) {
	c, err := parseGitConfig("[a]\nb = 1\nb = no\nc\nd = YES\n[a \"Sub\"]\nb = x\n")
	if err != nil {
		t.Fatal(err)
	}
	last, _ := c.Last("a.b")
	sub, _ := c.Last("a.Sub.b")
	if _, ok := c.Last("a.z"); ok || last != "no" || sub != "x" || c.Bool("a.b") || !c.Bool("a.c") || !c.Bool("a.d") || c.Bool("a.z") {
		t.Errorf("got %+v", c)
	}
}

// FuzzGitConfig: whatever the bytes, the parser ends, and a refusal returns
// nothing.
func FuzzGitConfig(f *testing.F) {
	for _, text := range configs {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := parseGitConfig(text)
		if err != nil && c != nil {
			t.Errorf("refused, and yet %d settings", len(c))
		}
	})
}
