package source

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

func TestPaths(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(dir, "bin", "get-key")
	link := filepath.Join(dir, "link")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "bin"), 0o700), os.WriteFile(tool, []byte("#!/bin/sh\n"), 0o700), os.Symlink("bin/get-key", link),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", filepath.Join(dir, "bin")+":/usr/bin:/bin")
	for name, r := range map[string]Reference{
		"file": {File, tool}, "file by a link": {File, link}, "command": {Command, tool + " --now"},
		"by PATH": {Command, "get-key"}, "behind others": {Command, "env X=1 nice " + tool}, "in quotes": {Command, `sh -c "` + tool + `|head -1"`},
		"below the home": {Command, "~/bin/get-key"}, "by the variable": {Command, `"$HOME/bin/get-key"`}, "in braces": {Command, "${HOME}/bin/get-key;true"},
		"substituted": {Command, "echo $(" + tool + ")"}, "redirected": {Command, "cat <" + link},
	} {
		if got := r.Paths(dir, ""); !slices.Contains(got, tool) {
			t.Errorf("%s: %q", name, got)
		}
	}
	for name, r := range map[string]Reference{"variable": {Env, "KEY"}, "store": {Kind: Store}} {
		if got := r.Paths(dir, ""); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}
