package tools

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

func text(name, title string) string {
	return "version = 1\nname = \"" + name + "\"\ntitle = \"" + title + "\"\nchoose = \"first\"\n[program]\nname = \"" + name + "\"\n"
}

func dirWith(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "tools")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	admin := dirWith(t, map[string]string{"own.toml": text("own", "the administrator's"), "more.toml": text("more", "more")})
	person := dirWith(t, map[string]string{"own.toml": text("own", "the person's"), "claude.toml": text("claude", "another"), "broken.toml": "version = 2\n", "notes.txt": ""})
	d := Dirs{admin, person, "/nonexistent"}
	for name, want := range map[string]string{"own": "the person's", "more": "more", "claude": "another", "codex": "Codex"} {
		if p, err := d.Find(name); err != nil || p.Title != want {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
	}
	var wrong *profile.Errors
	if _, err := d.Find("broken"); !errors.As(err, &wrong) || wrong.Problems[0].File != filepath.Join(person, "broken.toml") {
		t.Errorf("broken: %v", err)
	}
	for _, name := range []string{"nobody", "", ".", "..", "../tools/own", "/own", "a/b", "x\x00"} {
		var unknown *UnknownError
		if _, err := d.Find(name); !errors.As(err, &unknown) || !strings.Contains(unknown.Hint(), "claude, codex, copilot, kilo, more, opencode, own") {
			t.Errorf("%q: %v", name, err)
		}
	}
	list := d.List()
	i := slices.IndexFunc(list, func(t Tool) bool { return t.Name == "claude" })
	if len(list) != 8 || !list[i].Replaces || list[i].File != filepath.Join(person, "claude.toml") || list[0].Name != "broken" || list[0].Err == nil {
		t.Errorf("list %+v", list)
	}
}

// T10: where a key may go is never said by a file that somebody else, or a
// session in a repository, could have written.
func TestT10ProfilesOfOthers(t *testing.T) {
	good := text("own", "own")
	for name, change := range map[string]func(dir string) error{
		"written by others":    func(dir string) error { return os.Chmod(filepath.Join(dir, "own.toml"), 0o666) },
		"in a dir of others'":  func(dir string) error { return os.Chmod(dir, 0o777) },
		"a link":               func(dir string) error { return relink(filepath.Join(dir, "own.toml")) },
		"in a dir that is one": func(dir string) error { return relink(dir) },
		"a directory": func(dir string) error {
			return errors.Join(os.Remove(filepath.Join(dir, "own.toml")), os.Mkdir(filepath.Join(dir, "own.toml"), 0o755))
		},
	} {
		dir := dirWith(t, map[string]string{"own.toml": good})
		if _, err := (Dirs{dir}).Find("own"); err != nil {
			t.Fatal(err)
		}
		if err := change(dir); err != nil {
			t.Fatal(err)
		}
		var refused *FileError
		if p, err := (Dirs{dir}).Find("own"); p != nil || !errors.As(err, &refused) || !strings.Contains(err.Error(), filepath.Join(dir, "own.toml")) || refused.Hint() == "" {
			t.Errorf("%s: %v, %v", name, p, err)
		}
	}
	if os.Geteuid() == 0 {
		dir := dirWith(t, map[string]string{"own.toml": good})
		if err := os.Chown(filepath.Join(dir, "own.toml"), 4711, 4711); err != nil {
			t.Fatal(err)
		}
		if _, err := (Dirs{dir}).Find("own"); err == nil {
			t.Error("a file of another user's is read")
		}
	}
	if _, err := Read(filepath.Join(t.TempDir(), "none.toml")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// relink puts a link to it in place of what is there.
func relink(path string) error {
	return errors.Join(os.Rename(path, path+".moved"), os.Symlink(path+".moved", path))
}

// TestSignInsAreReadAgain where a file has changed, or may not be believed any more.
func TestSignInsAreReadAgain(t *testing.T) {
	profile := func(mode string) string {
		return text("own", "own") + "[signin]\ndefault = \"" + mode + "\"\nmodes = [\"standin\", \"copy\"]\ninside = \".own/auth.json\"\n" +
			"[[signin.place]]\ndefault = \"~/.own\"\nfile = \"auth.json\"\n[[signin.login]]\nname = \"Own\"\naccess = \"token\"\nkeep = [\"token\"]\nhosts = [\"own.x.example\"]\nheaders = [\"Authorization: bearer\"]\n"
	}
	dir := dirWith(t, map[string]string{"own.toml": profile("standin")})
	mode := func() string {
		for _, t := range (Dirs{dir}).SignIns() {
			if t.Name == "own" {
				return string(t.Default)
			}
		}
		return "none"
	}
	for range 2 {
		if got := mode(); got != "standin" {
			t.Fatal(got, (Dirs{dir}).List()[5].Err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "own.toml"), []byte(profile("off")), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := mode(); got != "off" {
		t.Errorf("after a change %s", got)
	}
	if err := os.Chmod(dir, 0o777); err != nil {
		t.Fatal(err)
	}
	if got := mode(); got != "none" {
		t.Errorf("where others may write %s", got)
	}
}
