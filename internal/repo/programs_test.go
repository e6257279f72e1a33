package repo

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestProgramsOfTheHostsConfiguration: which files of the tree a setting has
// git run, and where that cannot be told.
func TestProgramsOfTheHostsConfiguration(t *testing.T) {
	for _, c := range []struct {
		key, value, want string // files, and ? where it is unclear
	}{
		{"filter.x.clean", "./tool.sh", "tool.sh"},
		{"filter.x.smudge", "sh tool.sh %f", "tool.sh"},
		{"filter.x.process", "bash -e tools/a.sh", "tools/a.sh"},
		{"filter.x.process", "git-lfs filter-process", ""},
		{"filter.x.clean", "git-lfs clean -- %f", ""},
		{"filter.x.clean", "tools/no.sh", "?"},
		{"filter.x.clean", "sh no.sh", "?"},
		{"filter.x.clean", "python3 -m nbstripout", "?"},
		{"filter.x.clean", "sed -e s/a/b/", ""},
		{"filter.x.clean", "sh -c './tool.sh | tools/a.sh'", "tool.sh tools/a.sh"},
		{"filter.x.clean", "$(git rev-parse --show-toplevel)/tool.sh", "?"},
		{"filter.x.clean", "`pwd`/tool.sh", "?"},
		{"filter.x.clean", "./*.sh", "?"},
		{"filter.x.clean", "npx prettier", "?"},
		{"filter.x.required", "./tool.sh", ""},
		{"diff.x.command", "tool.sh", ""}, // of PATH
		{"diff.x.textconv", "TOP/tool.sh", "tool.sh"},
		{"diff.x.textconv", "/usr/bin/strings", ""},
		{"diff.external", "'with space/b.sh' -x", "with space/b.sh"},
		{"merge.x.driver", "tools/a.sh %O %A %B", "tools/a.sh"},
		{"merge.x.name", "tools/a.sh", ""},
		{"core.pager", "less -FRX", ""},
		{"core.pager", "less | ./tool.sh", "tool.sh"},
		{"pager.log", "tools/a.sh", "tools/a.sh"},
		{"pager.log", "true", ""},
		{"core.editor", "FOO=1 ./tool.sh --wait", "tool.sh"},
		{"core.editor", "code --wait", ""},
		{"core.sshcommand", "ssh -F tools/config -i ~/.ssh/key", "tools/config"},
		{"core.askpass", "./tool.sh", "tool.sh"},
		{"core.gitproxy", "./tool.sh for example.com", "tool.sh"},
		{"core.fsmonitor", "true", ""},
		{"core.fsmonitor", "sh ./tool.sh", "tool.sh"},
		{"sequence.editor", "./tool.sh", "tool.sh"},
		{"gpg.program", "with space/b.sh", "with space/b.sh"},
		{"gpg.ssh.program", "./tool.sh", "tool.sh"},
		{"credential.helper", "store --file ./tools/config", ""},
		{"credential.helper", "!./tool.sh", "tool.sh"},
		{"credential.https://example.com.helper", "!sh ./tool.sh", "tool.sh"},
		{"interactive.difffilter", "./tool.sh --color", "tool.sh"},
		{"alias.x", "!./tool.sh", "tool.sh"},
		{"alias.x", "log --oneline", ""},
		{"alias.x", "!f() { git commit \"$@\"; }; f", ""},
		{"alias.x", "!git log origin/main..HEAD -- tools/config | less", ""},
		{"alias.x", "!git diff && tools/a.sh; ./tool.sh", "tool.sh tools/a.sh"},
		{"alias.x", "!eval x", "?"},
		{"alias.x", "!$X", "?"},
		{"alias.x", "!\"open", "?"},
		{"alias.x", "!${GIT_PREFIX}/tool.sh", "?"},
		{"alias.x", "!$HOME/bin/x", ""},
		{"difftool.x.cmd", "./tool.sh $LOCAL \"$REMOTE\"", "tool.sh"},
		{"mergetool.x.cmd", "vimdiff $LOCAL $REMOTE $MERGED", ""},
		{"filter.x.clean", "./link.sh", "?"},
		{"filter.x.clean", "./hard.sh", "?"},
		{"filter.x.clean", ".git/hooks/x", ""},
		{"filter.x.clean", ".git/x", "?"},
		{"filter.x.clean", "env A=b ./tool.sh", "tool.sh"},
		{"user.name", "./tool.sh", ""},
	} {
		top := tempDir(t)
		for _, name := range []string{"tool.sh", "tools/a.sh", "tools/config", "with space/b.sh", "hard.sh", "other"} {
			write(t, filepath.Join(top, name), "#!/bin/sh\n")
			if strings.HasSuffix(name, ".sh") {
				if err := os.Chmod(filepath.Join(top, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
		}
		symlink(t, "tool.sh", top+"/link.sh")
		if err := os.Link(top+"/hard.sh", top+"/hard2.sh"); err != nil {
			t.Fatal(err)
		}
		git := mkdir(t, top+"/.git")
		r := Repository{Top: top, Given: top, GitDir: git, CommonDir: git}
		r.addProgram(top, setting{key: c.key, value: strings.ReplaceAll(c.value, "TOP", top)})
		got := []string{}
		for _, path := range r.Tree.Targets {
			got = append(got, strings.TrimPrefix(path, top+"/"))
		}
		slices.Sort(got)
		if len(r.Tree.Unclear) > 0 {
			got = append(got, "?")
		}
		if strings.Join(got, " ") != c.want {
			t.Errorf("%s = %s: got %q, want %q", c.key, c.value, got, c.want)
		}
	}
}

// TestProgramsInTheTreeAreProtected: what git status on the host runs is read
// from every configuration that counts, that of a repository inside as well.
func TestProgramsInTheTreeAreProtected(t *testing.T) {
	dir := tempDir(t)
	top := newRepo(t, dir+"/repo")
	inner := newRepo(t, top+"/inner")
	for _, name := range []string{"tool.sh", "sub/pager.sh", "inner/tool.sh", "alias.sh"} {
		write(t, filepath.Join(top, name), "#!/bin/sh\ntouch ran; cat\n")
		if err := os.Chmod(filepath.Join(top, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	git(t, top, "config", "filter.x.clean", "./tool.sh")
	git(t, inner, "config", "filter.x.clean", "./tool.sh")
	git(t, inner, "config", "core.hooksPath", "hooks")
	git(t, top, "config", "alias.y", "!eval x")
	write(t, dir+"/home/.gitconfig", "[include]\npath = more\n")
	write(t, dir+"/home/more", "[core]\npager = sub/pager.sh\n[alias]\nz = !./alias.sh\n")
	write(t, top+"/.gitattributes", "* filter=x\n")
	git(t, top, "add", ".gitattributes") // it is what the fault was about: git runs the program
	if _, err := os.Stat(top + "/ran"); err != nil {
		t.Fatal("git did not run the filter: this test shows nothing")
	}
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.AddHostConfig(dir + "/home/.gitconfig"); err != nil {
		t.Fatal(err)
	}
	protect, facts, err := sandbox.Guards(r.Tree)
	if err != nil {
		t.Fatal(err)
	}
	got := []string{}
	for _, path := range r.Tree.Targets {
		got = append(got, r.Short(path))
		if !slices.ContainsFunc(protect, func(p sandbox.Protection) bool {
			return p.Path == path && (p.Guard == sandbox.Freeze || p.Guard == sandbox.HoldDir)
		}) {
			t.Errorf("%s is not protected", path)
		}
	}
	want := []string{"alias.sh", "inner/hooks", "inner/tool.sh", "sub/pager.sh", "tool.sh"}
	if diff := cmp.Diff(want, got, cmpopts.SortSlices(strings.Compare)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if facts[0].Strength != sandbox.Weaker || !strings.Contains(facts[0].Detail, "alias.y") {
		t.Errorf("what cannot be told is not said: %+v", facts[0])
	}
}

// FuzzCommandLines: whatever a setting holds, reading it ends, and names only
// what is in the tree.
func FuzzCommandLines(f *testing.F) {
	for _, line := range []string{"./tool.sh", "sh -c 'a; b'", "$", "${", "a\\", "'", "\"$(x", "~", "${HOME}/x", "!f() { x; }; f", "a=b c=d", "<>;|&()\n", "sh sh sh", "sh -c 'sh -c \"sh -c a\"'"} {
		f.Add(line)
	}
	top := f.TempDir()
	if err := os.WriteFile(top+"/tool.sh", nil, 0o755); err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line string) {
		r := Repository{Top: top, Given: top}
		r.addProgram(top, setting{key: "alias.x", value: "!" + line})
		for _, path := range r.Tree.Targets {
			if path != top+"/tool.sh" {
				t.Errorf("%q names %q", line, path)
			}
		}
	})
}
