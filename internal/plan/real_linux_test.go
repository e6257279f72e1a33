package plan_test

import (
	"archive/zip"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/host"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
)

// engine is the real one, or the reason why there is none here.
func engine(t *testing.T) sandbox.Engine {
	t.Helper()
	e, err := native.New(native.Options{})
	kerneltest.Require(t, "a kernel for native sandboxes", err)
	t.Cleanup(func() { e.Close() })
	return e
}

// person is one identity to try: the caller's own, and for root also a person
// that the node runs a session for.
type person struct {
	name string
	user plan.User
	env  []string // of the caller
}

func people(t *testing.T) []person {
	t.Helper()
	self := host.Person(os.Getuid(), os.Getgid(), nil)
	out := []person{{"self", self, os.Environ()}}
	if os.Getuid() == 0 {
		ann := plan.User{Name: "ann", Group: "ann", UID: 1000, GID: 1000, Home: "/home/ann", Shell: "/bin/bash"}
		out = append(out, person{"another", ann, []string{"PATH=/usr/local/bin:/usr/bin:/bin"}})
	}
	return out
}

// place is a temporary directory that the person owns and can reach.
func (p person) place(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "mojoup plan-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func (p person) own(t *testing.T, dir string) {
	t.Helper()
	if os.Getuid() == p.user.UID {
		return
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return os.Lchown(path, p.user.UID, p.user.GID)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func run(t *testing.T, dir string, argv ...string) string {
	t.Helper()
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=/nonexistent", "GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=A", "GIT_AUTHOR_EMAIL=a@example.com",
		"GIT_COMMITTER_NAME=A", "GIT_COMMITTER_EMAIL=a@example.com",
		"GIT_CONFIG_COUNT=3", "GIT_CONFIG_KEY_0=protocol.file.allow", "GIT_CONFIG_VALUE_0=always",
		"GIT_CONFIG_KEY_1=safe.directory", "GIT_CONFIG_VALUE_1=*", "GIT_CONFIG_KEY_2=init.defaultBranch", "GIT_CONFIG_VALUE_2=main",
	}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%q in %s: %v\n%s", argv, dir, err, out)
	}
	return strings.TrimSuffix(string(out), "\n")
}

// session is one prepared sandbox of a real plan.
type session struct {
	t    *testing.T
	plan plan.Plan
	box  sandbox.Sandbox
	keep bool // beyond the test that started it
	end  func()
}

func start(t *testing.T, e sandbox.Engine, p person, dir string, change func(*plan.Input)) *session {
	t.Helper()
	r, err := repo.Look(dir)
	if err != nil {
		t.Fatal(err)
	}
	h, err := host.Gather(t.Context(), nil, p.user.Home, p.env)
	if err != nil {
		t.Fatal(err)
	}
	over := filepath.Join(p.place(t), "root")
	if err := os.Mkdir(over, 0o755); err != nil {
		t.Fatal(err)
	}
	in := plan.Input{
		ID: "try", Repository: r, User: p.user, Host: h, Env: plan.CallerEnv(p.env), Author: plan.Author{Name: "Ann", Email: "ann@example.com"},
		SessionCA: []byte("-----BEGIN CERTIFICATE-----\nc2Vzc2lvbg==\n-----END CERTIFICATE-----\n"), WorkDir: over,
		Private: []string{filepath.Dir(over)},
	}
	if change != nil {
		change(&in)
	}
	s := &session{t: t}
	if s.plan, err = plan.Make(in); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if s.box, err = e.Prepare(ctx, s.plan.Spec); err != nil {
		t.Fatal(err)
	}
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })}
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(s.box.Listener()) }()
	s.end = func() {
		if err := s.box.Remove(context.WithoutCancel(s.t.Context())); err != nil {
			s.t.Error(err)
		}
		_ = server.Close()
		<-served
	}
	t.Cleanup(func() {
		if !s.keep {
			s.end()
		}
	})
	if _, err := s.box.Check(ctx); err != nil {
		t.Fatal(err)
	}
	return s
}

// sh runs a script inside and returns what it said and its exit code.
func (s *session) sh(script string) (string, int) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 3*time.Minute)
	defer cancel()
	var out bytes.Buffer
	proc, err := s.box.Exec(ctx, sandbox.Command{Argv: []string{"bash", "-c", script}, Dir: s.plan.Dir}, sandbox.Stdio{Stdout: &out, Stderr: &out})
	if err != nil {
		s.t.Fatal(err)
	}
	exit, err := proc.Wait(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	return out.String(), exit.Code
}

func (s *session) must(script string) string {
	s.t.Helper()
	out, code := s.sh(script)
	if code != 0 {
		s.t.Errorf("%s\nended with %d: %s", script, code, out)
	}
	return out
}

func newRepo(t *testing.T, dir string, initArgs ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	run(t, dir, append([]string{"git", "init", "-q"}, initArgs...)...)
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("x\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, dir, "git", "add", ".")
	run(t, dir, "git", "commit", "-q", "-m", "one")
	return dir
}

// arrangements are those of B47 whose mounts differ.
var arrangements = []struct {
	name string
	make func(t *testing.T, dir string) (top string)
}{
	{"main working tree", func(t *testing.T, dir string) string { return newRepo(t, dir+"/repo") }},
	{"worktree", func(t *testing.T, dir string) string {
		run(t, newRepo(t, dir+"/main"), "git", "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree inside", func(t *testing.T, dir string) string {
		run(t, newRepo(t, dir+"/main"), "git", "worktree", "add", "-q", ".trees/a")
		return dir + "/main/.trees/a"
	}},
	{"worktree of a bare repository", func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		run(t, dir, "git", "clone", "-q", "--bare", "origin", "b.git")
		run(t, dir+"/b.git", "git", "worktree", "add", "-q", "../a")
		return dir + "/a"
	}},
	{"worktree in its bare repository", func(t *testing.T, dir string) string {
		newRepo(t, dir+"/origin")
		run(t, dir, "git", "clone", "-q", "--bare", "origin", "b.git")
		run(t, dir+"/b.git", "git", "worktree", "add", "-q", "a")
		return dir + "/b.git/a"
	}},
	{"worktree with relative pointers", func(t *testing.T, dir string) string {
		run(t, newRepo(t, dir+"/main"), "git", "worktree", "add", "-q", "../a")
		for path, to := range map[string]string{dir + "/a/.git": "gitdir: ../main/.git/worktrees/a\n", dir + "/main/.git/worktrees/a/gitdir": "../../../../a/.git\n"} {
			if err := os.WriteFile(path, []byte(to), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		return dir + "/a"
	}},
	{"separate git directory", func(t *testing.T, dir string) string {
		top := newRepo(t, dir+"/top", "--separate-git-dir", dir+"/elsewhere.git")
		run(t, top, "git", "config", "core.worktree", top)
		return top
	}},
	{"submodule", func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		run(t, newRepo(t, dir+"/super"), "git", "submodule", "--quiet", "add", dir+"/lib", "vendor/lib")
		return dir + "/super/vendor/lib"
	}},
	{"worktree with a submodule", func(t *testing.T, dir string) string {
		newRepo(t, dir+"/lib")
		super := newRepo(t, dir+"/super")
		run(t, super, "git", "submodule", "--quiet", "add", dir+"/lib", "lib")
		run(t, super, "git", "commit", "-q", "-m", "sub")
		run(t, super, "git", "worktree", "add", "-q", "../a")
		run(t, dir+"/a", "git", "submodule", "--quiet", "update", "--init")
		return dir + "/a"
	}},
}

// everyday is what must work in each, with every message of git's that a
// protection could cause counting as a failure.
const everyday = `set -e
git status --porcelain
echo two >> file; git add .; git commit -q -m inside
echo three >> file; git stash -q; git stash apply -q; git checkout -q -- file
git init -q --bare "$HOME/remote.git"; git push -q "$HOME/remote.git" HEAD:refs/heads/x; git fetch -q "$HOME/remote.git" x
git switch -q -c topic
git clean -fd
git log -1 --format='%an <%ae>'
git rev-parse --show-toplevel --path-format=absolute --git-common-dir
`

// TestB47_RealGitInEveryArrangement, and TestB51: no word about ownership.
func TestB47_RealGitInEveryArrangement(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		for _, a := range arrangements {
			t.Run(p.name+"/"+a.name, func(t *testing.T) {
				if a.name != "main working tree" {
					kerneltest.Long(t)
				}
				dir := p.place(t)
				top := a.make(t, dir)
				p.own(t, dir)
				before := run(t, top, "git", "status", "--porcelain", "--ignored")
				s := start(t, e, p, top, nil)
				if during := run(t, top, "git", "status", "--porcelain", "--ignored"); during != before {
					t.Errorf("B50: git on the host shows %q, before %q", during, before)
				}
				if a.name == "main working tree" {
					s.must("git gc -q --prune=now")
				}
				got := strings.TrimSpace(s.must(everyday))
				want := "Ann <ann@example.com>\n" + run(t, top, "git", "rev-parse", "--show-toplevel", "--path-format=absolute", "--git-common-dir")
				if got != want {
					t.Errorf("inside:\n%s\nwant:\n%s", got, want)
				}
				for _, script := range []string{
					`echo x > "$(git rev-parse --path-format=absolute --git-path hooks)/pre-commit"`, "mkdir -p .mojoup && echo '{}' > .mojoup/policy.json",
					"echo '[core] fsmonitor = x' >> \"$(git rev-parse --path-format=absolute --git-path config)\"",
					"echo x > \"$(git rev-parse --git-dir)/commondir\"", "mv .git .x", "mkdir .vscode/x",
				} {
					if out, code := s.sh(script); code == 0 {
						t.Errorf("%s worked: %s", script, out)
					}
				}
				if out := run(t, top, "git", "fsck", "--no-dangling"); strings.Contains(out, "error") {
					t.Error(out)
				}
			})
		}
	}
}

// TestB50_NothingOutlivesTheSession compares the names of all files.
func TestB50_NothingOutlivesTheSession(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		for _, a := range arrangements {
			t.Run(p.name+"/"+a.name, func(t *testing.T) {
				if a.name != "main working tree" {
					kerneltest.Long(t)
				}
				dir := p.place(t)
				top := a.make(t, dir)
				p.own(t, dir)
				before := names(t, dir)
				t.Run("session", func(t *testing.T) {
					s := start(t, e, p, top, nil)
					s.must("true")
					if names(t, dir) == before {
						t.Error("nothing was held: this test shows nothing")
					}
				})
				if after := names(t, dir); after != before {
					t.Errorf("before:\n%s\nafter:\n%s", before, after)
				}
			})
		}
	}
}

func names(t *testing.T, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Name() != "root" {
			fmt.Fprintln(&b, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestToolchains runs each program that this machine has.
func TestToolchains(t *testing.T) {
	kerneltest.Long(t)
	e := engine(t)
	p := people(t)[0]
	dir := p.place(t)
	top := newRepo(t, dir+"/repo")
	for name, content := range map[string]string{
		"go.mod": "module example.com/x\n\ngo 1.21\n", "main.go": "package main\n\nfunc main() { println(\"hello\") }\n",
		"hello.rs": "fn main() { println!(\"hello\") }\n", "c/hello.c": "#include <stdio.h>\nint main(void) { puts(\"hello\"); return 0; }\n",
		"package.json": `{"name":"x","version":"1.0.0","dependencies":{"y":"file:./y"}}`, "y/package.json": `{"name":"y","version":"1.0.0"}`,
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(top, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(top, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	wheel(t, filepath.Join(top, "zz-1.0-py3-none-any.whl"))
	run(t, top, "git", "add", ".")
	run(t, top, "git", "commit", "-q", "-m", "programs")
	s := start(t, e, p, top, nil)
	tried := 0
	for _, c := range []struct{ program, script, want string }{
		{"bash", "bash -lc 'command -v git; echo \"$PATH\"'", "/"},
		{"python3", "python3 -c 'import ssl, sqlite3, multiprocessing; print(ssl.get_default_verify_paths().cafile)'", "/run/session/bundle.pem"},
		{"node", "node -e 'console.log(require(\"os\").userInfo().homedir)'", p.user.Home},
		{"npm", "npm install --no-audit --no-fund --offline 2>&1 && test -e node_modules/y", ""},
		{"go", "go build -buildvcs=true -o /tmp/x . && /tmp/x 2>&1 && go version -m /tmp/x | grep vcs.revision", "hello"},
		{"cargo", "cargo --version && rustc -o /tmp/r hello.rs && /tmp/r", "hello"},
		{"gcc", "gcc -o /tmp/c c/hello.c && /tmp/c", "hello"},
		{"pip", "pip install -q --no-index --no-warn-script-location --root-user-action=ignore zz-1.0-py3-none-any.whl && zz", "hello"},
		{"java", "java -version 2>&1", "ersion"},
		{"perl", "perl -MPOSIX -e 'print((getpwuid($<))[0])'", p.user.Name},
	} {
		if _, err := exec.LookPath(c.program); err != nil {
			continue
		}
		if out, err := exec.Command(c.program, "--help").CombinedOutput(); errors.Is(err, exec.ErrNotFound) {
			t.Logf("%s does not run on the host: %s", c.program, out)
			continue
		}
		tried++
		if out := s.must(c.script); !strings.Contains(out, c.want) {
			t.Errorf("%s: %q does not hold %q", c.script, out, c.want)
		}
	}
	if tried < 3 {
		t.Errorf("only %d programs were tried", tried)
	}
	t.Log(s.plan.Notes)
}

// wheel is a Python package that needs no build: a program zz.
func wheel(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	w := zip.NewWriter(f)
	for name, content := range map[string]string{
		"zz.py":                             "def main(): print('hello')\n",
		"zz-1.0.dist-info/METADATA":         "Metadata-Version: 2.1\nName: zz\nVersion: 1.0\n",
		"zz-1.0.dist-info/WHEEL":            "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
		"zz-1.0.dist-info/RECORD":           "",
		"zz-1.0.dist-info/entry_points.txt": "[console_scripts]\nzz = zz:main\n",
	} {
		part, err := w.Create(name)
		if err == nil {
			_, err = part.Write([]byte(content))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestB53_TheSpelledPathWorksInside: through a link, from below the top.
func TestB53_TheSpelledPathWorksInside(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		t.Run(p.name, func(t *testing.T) {
			dir := p.place(t)
			newRepo(t, dir+"/real/repo")
			if err := os.MkdirAll(dir+"/real/repo/sub", 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink("real", dir+"/link"); err != nil {
				t.Fatal(err)
			}
			p.own(t, dir)
			s := start(t, e, p, dir+"/link/repo/sub", nil)
			out := s.must(fmt.Sprintf("pwd; pwd -P; cat '%s/link/repo/file' '%s/real/repo/file'; git rev-parse --show-toplevel", dir, dir))
			want := fmt.Sprintf("%[1]s/link/repo/sub\n%[1]s/real/repo/sub\nx\nx\n%[1]s/real/repo\n", dir)
			if out != want {
				t.Errorf("got %q, want %q", out, want)
			}
		})
	}
}

// TestB51_SomebodyElsesRepository: a session starts, reads and says that it
// cannot write; git does not complain about the owner.
func TestB51_SomebodyElsesRepository(t *testing.T) {
	e := engine(t)
	p := people(t)[0]
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can give a directory away, found user", os.Getuid())
	}
	for name, mode := range map[string]os.FileMode{"closed": 0o755, "shared by a group": 0o2775} {
		t.Run(name, func(t *testing.T) {
			dir := p.place(t)
			top := newRepo(t, dir+"/repo")
			if err := errors.Join(os.Chmod(top, mode&0o777), os.Chmod(top+"/.git", mode&0o777)); err != nil {
				t.Fatal(err)
			}
			person{user: plan.User{UID: 2000, GID: 2000}}.own(t, dir)
			s := start(t, e, p, top, nil)
			s.must("git status && git log -1")
			if out, code := s.sh("echo x > new"); code == 0 {
				t.Errorf("it could be written: %s", out)
			}
			if !strings.Contains(strings.Join(s.plan.Notes, "\n"), top) {
				t.Errorf("nothing says so: %q", s.plan.Notes)
			}
		})
	}
}

// TestD23_TwoSessionsInOneTree: what the first has put there must not go while
// the second needs it.
func TestD23_TwoSessionsInOneTree(t *testing.T) {
	e := engine(t)
	p := people(t)[0]
	dir := p.place(t)
	top := newRepo(t, dir+"/repo")
	before := names(t, dir)
	t.Run("second", func(t *testing.T) {
		var second *session
		t.Run("first", func(t *testing.T) {
			start(t, e, p, top, nil)
			second = start(t, e, p, top, func(in *plan.Input) { in.ID = "second" })
			second.keep = true
		})
		second.t = t
		t.Cleanup(func() { second.end() })
		for _, path := range []string{".mojoup/x", ".vscode/x", ".git/modules/x", ".git/commondir", ".git/config.worktree"} {
			if out, code := second.sh("mkdir -p $(dirname " + path + ") && echo x > " + path); code == 0 {
				t.Errorf("%s could be written after the first session ended: %s", path, out)
			}
		}
		second.must("git status")
	})
	if after := names(t, dir); after != before {
		t.Errorf("before:\n%s\nafter:\n%s", before, after)
	}
}

// TestTheRestOfTheMachineIsNotThere.
func TestTheRestOfTheMachineIsNotThere(t *testing.T) {
	e := engine(t)
	p := people(t)[0]
	s := start(t, e, p, newRepo(t, p.place(t)+"/repo"), nil)
	for _, path := range []string{
		"/etc/shadow", "/etc/ssl/private", "/etc/docker", "/root/.ssh", "/var/run/docker.sock", "/run/docker.sock", "/var/lib", "/proc/1/root/var/lib",
		filepath.Join(p.user.Home, ".claude"), filepath.Join(p.user.Home, ".npmrc"), filepath.Join(p.user.Home, ".gitconfig"), "/etc/gitconfig", "/etc/npmrc",
	} {
		if out, code := s.sh("cat '" + path + "' || ls '" + path + "'"); code == 0 {
			t.Errorf("%s is there: %s", path, out)
		}
	}
	if out := s.must("cat /etc/passwd; id -un; hostname"); strings.Count(out, "\n") > 6 {
		t.Error(out)
	}
	if out, code := s.sh("touch ~/.cargo/bin/x /usr/x /etc/x"); code == 0 {
		t.Error(out)
	}
}

// TestProgramsOfGitCannotBeRewritten: what git status on the host runs stands
// in the tree, also in a repository inside it.
func TestProgramsOfGitCannotBeRewritten(t *testing.T) {
	e := engine(t)
	for _, p := range people(t) {
		t.Run(p.name, func(t *testing.T) {
			dir := p.place(t)
			top := newRepo(t, dir+"/repo")
			newRepo(t, top+"/inner")
			for _, tree := range []string{top, top + "/inner"} {
				if err := os.WriteFile(tree+"/tool.sh", []byte("#!/bin/sh\ncat\n"), 0o755); err != nil {
					t.Fatal(err)
				}
				run(t, tree, "git", "config", "filter.x.clean", "sh -e ./tool.sh")
			}
			p.own(t, dir)
			s := start(t, e, p, top, nil)
			s.must("test -x tool.sh && echo x > other && mv other another")
			for _, script := range []string{"echo x >> tool.sh", "rm -f tool.sh", "mv tool.sh x", "echo > x; mv -f x tool.sh", "echo x >> inner/tool.sh", "rm -f inner/tool.sh", "mv inner moved"} {
				if out, code := s.sh(script); code == 0 {
					t.Errorf("%s worked: %s", script, out)
				}
			}
		})
	}
}
