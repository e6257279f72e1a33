package repo

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// git runs the real git in dir, with no configuration but the repository's.
func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=init.defaultBranch", "GIT_CONFIG_VALUE_1=main",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s in %s: %v\n%s", strings.Join(args, " "), dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// tempDir is a directory by its real path.
func tempDir(t *testing.T) string {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

func mkdir(t *testing.T, path string) string {
	t.Helper()
	if err := os.MkdirAll(path, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func write(t *testing.T, path, content string) {
	t.Helper()
	mkdir(t, filepath.Dir(path))
	if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func symlink(t *testing.T, to, at string) {
	t.Helper()
	if err := os.Symlink(to, at); err != nil {
		t.Fatal(err)
	}
}

// newRepo is a repository with one commit.
func newRepo(t *testing.T, dir string, initArgs ...string) string {
	t.Helper()
	mkdir(t, dir)
	git(t, dir, append([]string{"init", "-q"}, initArgs...)...)
	write(t, filepath.Join(dir, "sub dir", "file"), "x\n")
	git(t, dir, "add", ".")
	git(t, dir, "commit", "-q", "-m", "one")
	return dir
}

// layouts makes every arrangement that a session may start in.
var layouts = []struct {
	name   string
	layout Layout
	make   func(t *testing.T, dir string) (top string)
}{
	{"plain clone", Main, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		git(t, dir, "clone", "-q", "origin", "clone")
		return dir + "/clone"
	}},
	{"worktree beside", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree inside", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", ".trees/a")
		return dir + "/main/.trees/a"
	}},
	{"worktree of a bare repository", Worktree, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		git(t, dir, "clone", "-q", "--bare", "origin", "bare.git")
		git(t, dir+"/bare.git", "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree with relative pointers", Worktree, func(t *testing.T, dir string) string {
		git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
		// What git 2.48 writes with --relative-paths; older gits read it.
		write(t, dir+"/a/.git", "gitdir: ../main/.git/worktrees/a\n")
		write(t, dir+"/main/.git/worktrees/a/gitdir", "../../../../a/.git\n")
		return dir + "/a"
	}},
	{"separate git directory", Separate, func(t *testing.T, dir string) string {
		top := newRepo(t, dir+"/top", "--separate-git-dir", dir+"/elsewhere.git")
		git(t, top, "config", "core.worktree", top)
		return top
	}},
	{"submodule", Submodule, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		git(t, newRepo(t, dir+"/super"), "submodule", "--quiet", "add", dir+"/lib", "vendor/lib")
		return dir + "/super/vendor/lib"
	}},
	{"worktree with a submodule", Worktree, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		super := newRepo(t, dir+"/super")
		git(t, super, "submodule", "--quiet", "add", dir+"/lib", "lib")
		git(t, super, "commit", "-q", "-m", "sub")
		git(t, super, "worktree", "add", "-q", "../a")
		git(t, dir+"/a", "submodule", "--quiet", "update", "--init")
		return dir + "/a"
	}},
	{"superproject", Main, func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		super := newRepo(t, dir+"/super")
		git(t, super, "submodule", "--quiet", "add", dir+"/lib", "lib")
		return super
	}},
	{"no repository", None, func(t *testing.T, dir string) string { return mkdir(t, dir+"/plain/sub dir") + "/.." }},
}

// oddNames: the second holds everything that a path may hold and a parser may
// trip over.
var oddNames = []string{"plain", `with space "and' quotes: größe-日本語 -rf\n`}

// TestB47_EveryLayoutIsFoundAsGitFindsIt compares with git's own answer.
func TestB47_EveryLayoutIsFoundAsGitFindsIt(t *testing.T) {
	for _, l := range layouts {
		for _, name := range oddNames {
			t.Run(l.name+"/"+name, func(t *testing.T) {
				dir := mkdir(t, filepath.Join(tempDir(t), name))
				top := filepath.Clean(l.make(t, dir))
				for _, start := range []string{top, filepath.Join(top, "sub dir")} {
					if _, err := os.Stat(start); err != nil {
						continue
					}
					r, err := Look(start)
					if err != nil {
						t.Fatal(err)
					}
					if l.layout == None {
						if r.Layout != None || r.Top != start {
							t.Fatalf("got %s at %s", r.Layout, r.Top)
						}
						continue
					}
					want := [4]string{
						string(l.layout), git(t, start, "rev-parse", "--show-toplevel"),
						git(t, start, "rev-parse", "--absolute-git-dir"),
						git(t, start, "rev-parse", "--path-format=absolute", "--git-common-dir"),
					}
					got := [4]string{string(r.Layout), r.Top, r.GitDir, r.CommonDir}
					if diff := cmp.Diff(want, got); diff != "" {
						t.Errorf("from %s (-git +ours):\n%s", start, diff)
					}
					if r.Dir != start || r.Given != r.Top || len(r.Links) != 0 {
						t.Errorf("Dir %q Given %q Links %v", r.Dir, r.Given, r.Links)
					}
					if _, _, err := sandbox.Guards(r.Tree); err != nil {
						t.Errorf("guards: %v", err)
					}
				}
			})
		}
	}
}

// TestB53_LinksOnTheWay: what the person spelled and what it really is are
// both known, with the links between.
func TestB53_LinksOnTheWay(t *testing.T) {
	dir := tempDir(t)
	top := newRepo(t, dir+"/real/repo")
	symlink(t, "real", dir+"/link")
	symlink(t, dir+"/link/repo", dir+"/twice")
	symlink(t, "sub dir", top+"/inner")
	for _, c := range []struct {
		start, given, dir string
		links             []Link
	}{
		{top, top, top, nil},
		{dir + "/link/repo", dir + "/link/repo", top, []Link{{dir + "/link", dir + "/real"}}},
		{dir + "/link/repo/sub dir", dir + "/link/repo", top + "/sub dir", []Link{{dir + "/link", dir + "/real"}}},
		{dir + "/twice", dir + "/twice", top, []Link{{dir + "/twice", top}}},
		{dir + "/twice/sub dir", dir + "/twice", top + "/sub dir", []Link{{dir + "/twice", top}}},
		{top + "/inner", top, top + "/sub dir", []Link{{top + "/inner", top + "/sub dir"}}},
		{top + "/sub dir/../", top, top, nil},
	} {
		r, err := Look(c.start)
		if err != nil {
			t.Errorf("%s: %v", c.start, err)
			continue
		}
		want := Repository{Top: top, Given: c.given, Dir: c.dir, Links: c.links}
		got := Repository{Top: r.Top, Given: r.Given, Dir: r.Dir, Links: r.Links}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.start, diff)
		}
	}
}

// TestB47_PointersThroughLinks: git writes down the path as it was spelled.
func TestB47_PointersThroughLinks(t *testing.T) {
	dir := tempDir(t)
	main := newRepo(t, dir+"/real/repo")
	symlink(t, "real", dir+"/link")
	git(t, main, "worktree", "add", "-q", "../a")
	write(t, dir+"/real/a/.git", "gitdir: "+dir+"/link/repo/.git/worktrees/a\n")
	r, err := Look(dir + "/real/a")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]Link{{dir + "/link", dir + "/real"}}, r.Links); diff != "" || r.CommonDir != main+"/.git" {
		t.Errorf("common directory %s, links (-want +got):\n%s", r.CommonDir, diff)
	}
}

// TestPlantedPointersAreRefused: what points at somebody else's git directory
// would make that one writable, or run what it says.
func TestPlantedPointersAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, want string
		make       func(t *testing.T, dir string) string
	}{
		{"a .git file that names another repository", "git directory of another repository", func(t *testing.T, dir string) string {
			victim := newRepo(t, dir+"/victim")
			write(t, dir+"/evil/.git", "gitdir: "+victim+"/.git\n")
			return dir + "/evil"
		}},
		{"a .git file that names another's worktree", "belongs to", func(t *testing.T, dir string) string {
			git(t, newRepo(t, dir+"/victim"), "worktree", "add", "-q", "../a")
			write(t, dir+"/evil/.git", "gitdir: "+dir+"/victim/.git/worktrees/a\n")
			return dir + "/evil"
		}},
		{"a .git file that names another's submodule", "core.worktree", func(t *testing.T, dir string) string {
			newRepo(t, dir+"/lib")
			git(t, newRepo(t, dir+"/super"), "submodule", "--quiet", "add", dir+"/lib", "lib")
			write(t, dir+"/evil/.git", "gitdir: "+dir+"/super/.git/modules/lib\n")
			return dir + "/evil"
		}},
		{"a .git file that names a bare repository", "git directory of another repository", func(t *testing.T, dir string) string {
			git(t, mkdir(t, dir), "init", "-q", "--bare", "bare.git")
			write(t, dir+"/evil/.git", "gitdir: ../bare.git\n")
			return dir + "/evil"
		}},
		{"a .git file that names a separate git directory", "does not name this working tree", func(t *testing.T, dir string) string {
			newRepo(t, dir+"/victim", "--separate-git-dir", dir+"/victim.git")
			write(t, dir+"/evil/.git", "gitdir: "+dir+"/victim.git\n")
			return dir + "/evil"
		}},
		{"a .git file that names what looks like a git directory", "does not name this working tree", func(t *testing.T, dir string) string {
			write(t, dir+"/fake/HEAD", "x")
			write(t, dir+"/fake/secrets/k", "x")
			mkdir(t, dir+"/fake/objects")
			mkdir(t, dir+"/fake/refs")
			write(t, dir+"/evil/.git", "gitdir: "+dir+"/fake\n")
			return dir + "/evil"
		}},
		{"a .git file in another repository's tree", "no submodule of the repository", func(t *testing.T, dir string) string {
			sub := mkdir(t, newRepo(t, dir+"/r")+"/sub")
			newRepo(t, dir+"/victim", "--separate-git-dir", dir+"/victim.git")
			git(t, dir+"/victim", "config", "core.worktree", sub)
			write(t, sub+"/.git", "gitdir: "+dir+"/victim.git\n")
			return sub
		}},
		{"a .git file in a worktree of another repository", "no submodule of the repository", func(t *testing.T, dir string) string {
			git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
			git(t, mkdir(t, dir+"/a/x/modules/y"), "init", "-q", "--separate-git-dir", dir+"/a/x/modules/z")
			git(t, dir+"/a/x/modules/y", "config", "core.worktree", dir+"/a/x/modules/y")
			return dir + "/a/x/modules/y"
		}},
		{"H7: a planted commondir", "another directory", func(t *testing.T, dir string) string {
			top := newRepo(t, dir+"/repo")
			write(t, top+"/.git/commondir", "../planted\n")
			return top
		}},
		{"a worktree whose commondir was changed", "not the repository that the worktree lies in", func(t *testing.T, dir string) string {
			git(t, newRepo(t, dir+"/main"), "worktree", "add", "-q", "../a")
			newRepo(t, dir+"/other")
			write(t, dir+"/main/.git/worktrees/a/commondir", dir+"/other/.git\n")
			return dir + "/a"
		}},
		{"a work tree elsewhere", "core.worktree", func(t *testing.T, dir string) string {
			top := newRepo(t, dir+"/repo")
			git(t, top, "config", "core.worktree", mkdir(t, dir+"/elsewhere"))
			return top
		}},
		{"a linked .git", "symbolic link", func(t *testing.T, dir string) string {
			victim := newRepo(t, dir+"/victim")
			symlink(t, victim+"/.git", mkdir(t, dir+"/evil")+"/.git")
			return dir + "/evil"
		}},
		{"a .git file with nonsense", "gitdir: PATH", func(t *testing.T, dir string) string {
			write(t, dir+"/x/.git", "hello\n")
			return dir + "/x"
		}},
		{"a .git file to nowhere", "cannot be read", func(t *testing.T, dir string) string {
			write(t, dir+"/x/.git", "gitdir: nowhere\n")
			return dir + "/x"
		}},
		{"a bare repository", "not a working tree", func(t *testing.T, dir string) string {
			git(t, mkdir(t, dir), "init", "-q", "--bare", "bare.git")
			return dir + "/bare.git/refs"
		}},
		{"inside .git", "not a working tree", func(t *testing.T, dir string) string { return newRepo(t, dir+"/r") + "/.git/hooks" }},
		{"broken configuration", "line 2", func(t *testing.T, dir string) string {
			top := newRepo(t, dir+"/r")
			write(t, top+"/.git/config", "[broken\n")
			return top
		}},
		{"a file", "not a directory", func(t *testing.T, dir string) string { write(t, dir+"/f", ""); return dir + "/f" }},
		{"missing", "cannot be read", func(t *testing.T, dir string) string { return dir + "/none" }},
		{"a name that draws on the terminal", "control characters", func(t *testing.T, dir string) string { return mkdir(t, dir+"/\x1b[2J") }},
		{"a name of broken letters", "broken letters", func(t *testing.T, dir string) string { return mkdir(t, dir+"/\xff") }},
		{"relative", "not an absolute path", func(t *testing.T, dir string) string { return "." }},
	} {
		t.Run(c.name, func(t *testing.T) {
			top := c.make(t, tempDir(t))
			r, err := Look(top)
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("got %+v, %v", r, err)
			}
			if !strings.Contains(e.Error(), c.want) || e.Hint() == "" || strings.ContainsAny(e.Error(), "\x1b\xff") {
				t.Errorf("error %q, hint %q; want %q", e, e.Hint(), c.want)
			}
		})
	}
}

// TestInvalidDotGitIsNoRepository: git walks on, and so do we.
func TestInvalidDotGitIsNoRepository(t *testing.T) {
	outer := newRepo(t, tempDir(t)+"/outer")
	inner := mkdir(t, outer+"/inner/.git")
	r, err := Look(filepath.Dir(inner))
	if err != nil || r.Top != outer {
		t.Errorf("got %s, %v", r.Top, err)
	}
}

// TestH8_TargetsOfTheHostsConfiguration: what git on the host runs or obeys
// inside the work tree is found, wherever it is named.
func TestH8_TargetsOfTheHostsConfiguration(t *testing.T) {
	dir := tempDir(t)
	top := newRepo(t, dir+"/repo")
	git(t, top, "config", "core.hooksPath", ".husky/_")
	git(t, top, "config", "core.attributesFile", top+"/conf/attributes")
	git(t, top, "config", "include.path", "../shared.gitconfig")
	git(t, top, "config", "core.fsmonitor", "./tools/watch.sh")
	write(t, top+"/shared.gitconfig", "[include]\n\tpath = more.gitconfig\n[core]\n\tfsmonitor = true\n")
	write(t, top+"/more.gitconfig", "[core]\nhooksPath = \"hooks two\" ; and\n")
	mkdir(t, top+"/conf")
	mkdir(t, top+"/tools")
	write(t, dir+"/home/.gitconfig", "[core]\n  hooksPath = .githooks\n[user]\n name = Ann\n[includeIf \"gitdir:"+dir+"/\"]\n path = work\n[includeIf \"gitdir:/elsewhere/\"]\n path = not\n")
	write(t, dir+"/home/work", "[user]\n email = ann@work.example\n")
	write(t, dir+"/home/not", "[user]\n email = not@work.example\n")
	r, err := Look(top)
	if err != nil {
		t.Fatal(err)
	}
	configs := HostConfigs(dir+"/home", "")[1:]
	if err := r.AddHostConfig(configs...); err != nil {
		t.Fatal(err)
	}
	want := []string{".husky", "conf/attributes", "shared.gitconfig", "more.gitconfig", "hooks two", "tools/watch.sh", ".githooks"}
	for i := range want {
		want[i] = filepath.Join(top, want[i])
	}
	if diff := cmp.Diff(want, r.Tree.Targets, cmpopts.SortSlices(func(a, b string) bool { return a < b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	protect, _, err := sandbox.Guards(r.Tree)
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range want {
		if !slices.ContainsFunc(protect, func(p sandbox.Protection) bool { return p.Path == path && p.Guard != sandbox.Pin }) {
			t.Errorf("%s is not protected", path)
		}
	}
	if name, email := r.Author(configs...); name != "Ann" || email != "ann@work.example" {
		t.Errorf("author %q %q", name, email)
	}
}

// TestHardLinksAreSeen: through a second name a protected file is written in
// spite of every mount.
func TestHardLinksAreSeen(t *testing.T) {
	for _, c := range []struct {
		file    string
		refused bool
	}{{".git/config", true}, {".git/hooks/pre-commit", true}, {".mojoup/policy.json", true}, {".vscode/tasks.json", false}} {
		top := newRepo(t, tempDir(t)+"/repo")
		file := filepath.Join(top, c.file)
		if _, err := os.Stat(file); err != nil {
			write(t, file, "x")
		}
		if err := os.Link(file, top+"/other name"); err != nil {
			t.Fatal(err)
		}
		r, err := Look(top)
		if err != nil {
			t.Fatal(err)
		}
		_, facts, err := sandbox.Guards(r.Tree)
		var g *sandbox.GuardError
		if refused := errors.As(err, &g); refused != c.refused {
			t.Errorf("%s: %v", c.file, err)
		}
		if !c.refused && !strings.Contains(fmt.Sprint(facts), file) {
			t.Errorf("%s: nothing says so: %v", c.file, facts)
		}
	}
}

// TestSubmodulesKeepTheirPointer: git status in the superproject obeys it.
func TestSubmodulesKeepTheirPointer(t *testing.T) {
	dir := tempDir(t)
	newRepo(t, dir+"/lib")
	super := newRepo(t, dir+"/super")
	git(t, super, "submodule", "--quiet", "add", dir+"/lib", "vendor/lib")
	r, err := Look(super)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{super + "/vendor/lib/.git"}, r.Tree.Targets); diff != "" {
		t.Error(diff)
	}
}

// TestD24_PlacesThatAreNoRepository.
func TestD24_PlacesThatAreNoRepository(t *testing.T) {
	dir := tempDir(t)
	home := mkdir(t, dir+"/home/ann")
	symlink(t, home, dir+"/annlink")
	p := Places{Home: dir + "/annlink", Homes: []string{mkdir(t, dir+"/home/bob")}, Node: []string{home + "/.local/state/mojoup", dir + "/run/mojoup"}, SignIns: []string{dir + "/moved-claude"}}
	for _, c := range []struct {
		top, want string
	}{
		{"/", "directory of the system"}, {"/usr", "system directory"}, {"/usr/lib/x", "system directory"}, {"/etc", "system directory"},
		{"/home", "directory of the system"}, {"/opt", "directory of the system"}, {"/tmp", "directory of the system"}, {"/var/log/x", "system directory"},
		{"/lib/x", "system directory"}, {"/proc/self/cwd", "system directory"}, {"/usr/src", "directory of the system"}, {"/run/user/1000", "system directory"},
		{home, "is a home directory"}, {dir + "/home", "contains the home directory"}, {dir + "/home/bob", "is a home directory"},
		{home + "/.claude", "sign-ins"}, {home + "/.ssh/keys", "sign-ins"}, {home + "/.config", "sign-ins"}, {home + "/.config/gh", "sign-ins"},
		{home + "/.local", "belongs to the node"}, {home + "/.local/state/mojoup/x", "belongs to the node"}, {dir + "/run", "belongs to the node"},
		{dir + "/moved-claude", "sign-ins"}, {dir + "/moved-claude/x", "sign-ins"},
		{home + "/project", ""}, {home + "/.config/nvim", ""}, {home + "/.dotfiles", ""}, {home + "/project/.claude/worktrees/a", ""}, {"/opt/x", ""},
		{"/srv/x", ""}, {"/tmp/x", ""}, {"/usr/src/linux", ""}, {"/usr/local/src/x", ""}, {"/data", ""}, {"/var/www/html", ""}, {"/usrlocal", ""},
		{"/run/media/ann/disk", ""}, {dir + "/homestead", ""},
	} {
		err := p.Allow(Repository{Top: c.top})
		var e *Error
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.top, err)
		case c.want != "" && (!errors.As(err, &e) || !strings.Contains(e.Error(), c.want) || e.Hint() == ""):
			t.Errorf("%s: got %v, want %q", c.top, err, c.want)
		}
	}
	for _, path := range []string{home + "/.claude/.git", "/", "/etc/x.git", home, dir + "/home/bob", dir + "/home", home + "/.local/state/mojoup/x", dir + "/moved-claude", dir + "/run"} {
		for _, r := range []Repository{{Top: "/data/a", GitDir: "/data/a/.git", CommonDir: path}, {Top: "/data/a", GitDir: path, CommonDir: "/data/a/.git"}} {
			if err := p.Allow(r); err == nil {
				t.Errorf("git directories %s and %s were allowed", r.GitDir, r.CommonDir)
			}
		}
	}
	if err := p.Allow(Repository{Top: "/data/a", GitDir: home + "/x/.git/worktrees/a", CommonDir: home + "/x/.git"}); err != nil {
		t.Error(err)
	}
}

// TestASeparateGitDirectoryIsMended: what the refusal says to run makes it a
// repository for a session.
func TestASeparateGitDirectoryIsMended(t *testing.T) {
	dir := mkdir(t, tempDir(t)+"/it's here")
	top := newRepo(t, dir+"/top", "--separate-git-dir", dir+"/x.git")
	_, err := Look(top)
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("without a pointer back: %v", err)
	}
	_, command, _ := strings.Cut(e.Hint(), "run on the host: ")
	command, _, ok := strings.Cut(command, "; else ")
	if out, err := exec.Command("sh", "-c", command).CombinedOutput(); !ok || err != nil {
		t.Fatalf("%q: %v %s", command, err, out)
	}
	if r, err := Look(top); err != nil || r.Layout != Separate || r.GitDir != dir+"/x.git" || len(r.Notes) == 0 {
		t.Errorf("got %+v, %v", r, err)
	}
}

func TestHomesOfPasswd(t *testing.T) {
	got := Homes([]byte("root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1::/usr/sbin:/usr/sbin/nologin\nann:x:1000:1000:Ann:/home/ann/:/bin/zsh\nbroken\nslash:x:9:9::/:/bin/sh\n"))
	if diff := cmp.Diff([]string{"/root", "/home/ann"}, got); diff != "" {
		t.Error(diff)
	}
}
