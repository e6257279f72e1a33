package searchpath

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestOutside: what a session could write is not searched, by whichever name.
func TestOutside(t *testing.T) {
	home := t.TempDir()
	if real, err := filepath.EvalSymlinks(home); err == nil {
		home = real
	}
	at := func(p string) string { return filepath.Join(home, p) }
	for _, dir := range []string{".git", "bin", "repo/.git", "repo/.venv/bin", "tree/node_modules/.bin", "other/bin"} {
		if err := os.MkdirAll(at(dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(at("tree/.git"), []byte("gitdir: elsewhere\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(at("repo/.venv"), at("venv")); err != nil {
		t.Fatal(err)
	}
	dirs := []string{
		at("repo/.venv/bin"), at("venv/bin"), at("tree/node_modules/.bin"), "relative", ".", "", at("other/bin"), at("other/bin/../bin/"),
		at("repo/not/yet/there"), at("bin"), "/usr/bin",
	}
	got := Outside(strings.Join(dirs, ":"), home, at("other"))
	if want := at("bin") + ":/usr/bin"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	// Without the home to go by, it is a repository like any other.
	if got := Outside(at("bin")+":/usr/bin", "/nowhere"); got != "/usr/bin" {
		t.Errorf("got %q", got)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	program := filepath.Join(dir, "tool")
	if err := os.WriteFile(program, []byte("#!/bin/sh\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	for path, name := range map[string]string{"/nowhere:" + dir: "tool", "/nowhere": program} {
		if got := Find(path, name); got != program {
			t.Errorf("%s: got %q", name, got)
		}
	}
	t.Chdir(dir)
	for _, name := range []string{"none", "./tool", program + "/x", dir} {
		if got := Find(dir, name); got != "" {
			t.Errorf("%s: %q", name, got)
		}
	}
}
