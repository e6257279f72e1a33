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
	odd, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	tree := filepath.Join(odd, "my tree:1")
	key := filepath.Join(tree, "get")
	outside := filepath.Join(odd, "outside")
	hop := filepath.Join(odd, "hop")   // leads by a link in the tree to a file that is not
	turn := filepath.Join(tree, "out") // which is that link
	for _, err := range []error{
		os.Mkdir(tree, 0o700), os.WriteFile(key, []byte("#!/bin/sh\n"), 0o700),
		os.WriteFile(outside, []byte("#!"+dir+"/link --x\n"), 0o700), os.Symlink("..", turn), os.Symlink(turn, hop),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("ODD", odd)
	for name, tt := range map[string]struct{ line, want string }{
		"in PATH of the line":          {"PATH=" + filepath.Dir(tool) + ":/bin get-key", tool},
		"the last in that PATH":        {"PATH=/bin:" + filepath.Dir(tool) + " get-key", tool},
		"an argument":                  {"python3 --file=" + tool, tool},
		"an option":                    {"cc -I" + tool, tool},
		"after a mark":                 {"curl -d @" + tool, tool},
		"a URL":                        {"curl file://" + tool, tool},
		"sourced":                      {". " + tool, tool},
		"a shell's word":               {"sh -c 'exec " + filepath.Dir(tool) + "/./get-key'", tool},
		"a shell's in a shell's":       {`sh -c "sh -c 'exec ` + tool + `'"`, tool},
		"after cd":                     {"cd " + dir + " && bin/get-key", tool},
		"after cd, plainly":            {"cd " + filepath.Dir(tool) + " && cat get-key", tool},
		"below an outer directory":     {"env -C " + odd + " cat 'my tree:1/get'", key},
		"in quotes, with a space":      {"cat '" + key + "'", key},
		"in other quotes":              {`echo "$(cat "` + key + `")"`, key},
		"escaped":                      {"cat " + odd + `/my\ tree:1/get`, key},
		"a shell's word with a space":  {`sh -c "exec '` + key + `'"`, key},
		"below a variable":             {`"$ODD/my tree:1/get"`, key},
		"a link that leads through it": {hop + "/outside", turn},
		"up a link":                    {hop + "/../x", turn},
		"by its first line":            {outside, tool},
		"a variable with a default":    {"${NONE:-" + tool + "}", tool},
	} {
		if got := (Reference{Command, tt.line}).Paths(dir, ""); !slices.Contains(got, tt.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := (Reference{File, hop + "/outside"}).Paths(dir, ""); !slices.Contains(got, turn) {
		t.Errorf("file that a link in the tree leads to: %q", got)
	}
	for name, r := range map[string]Reference{"variable": {Env, "KEY"}, "store": {Kind: Store}} {
		if got := r.Paths(dir, ""); got != nil {
			t.Errorf("%s: %q", name, got)
		}
	}
}
