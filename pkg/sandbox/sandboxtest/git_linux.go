package sandboxtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// everyday is what git must be able to do in every layout.
const everyday = `set -e
git status --porcelain
echo two > new; git add new; git commit -q -m second
echo three >> new; git stash -q; git stash apply -q; git checkout -q -- new
git switch -q -c topic; git commit -q --allow-empty -m third; git reset -q --hard HEAD~1
git log --oneline | wc -l
git rev-parse --show-toplevel --git-common-dir`

func testB47MainTree(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	b := s.open(t, spec)
	if _, err := b.Check(deadline(t)); err != nil {
		t.Errorf("with every guard of a working tree: %v", err)
	}
	out := strings.Split(strings.TrimSpace(b.sh(p.repo, everyday)), "\n")
	// The host prints the same while the placeholder commondir is there, which
	// makes git print this one whole.
	want := "2\n" + p.git(t, p.repo, "rev-parse", "--show-toplevel", "--git-common-dir")
	if diff := cmp.Diff(strings.TrimSpace(want), strings.Join(out[max(0, len(out)-3):], "\n")); diff != "" {
		t.Errorf("inside (-host +sandbox):\n%s", diff)
	}
	if got := p.git(t, p.repo, "log", "-1", "--format=%s", "topic"); strings.TrimSpace(got) != "second" {
		t.Errorf("the host sees %q", got)
	}
	hostActs(t, p, b, p.repo)
}

// hostActs replaces git's configuration as people's programs do while the
// sandbox lives, and then tries from inside what that must not have opened.
func hostActs(t *testing.T, p *place, b *box, top string) {
	t.Helper()
	config := strings.TrimSpace(p.git(t, top, "rev-parse", "--path-format=absolute", "--git-path", "config"))
	for _, act := range [][]string{
		{"git", "config", "user.x", "y"}, {"git", "remote", "add", "o", "/nowhere"}, {"git", "branch", "b1"}, {"git", "branch", "-m", "b1", "b2"},
		{"git", "config", "branch.b2.remote", "o"}, {"git", "branch", "-D", "b2"}, {"git", "gc", "-q"}, {"git", "worktree", "prune"},
		// As an editor that saves by rename and keeps links.
		{"sh", "-c", `f=$(readlink -f "$1") && cp "$f" "$f~" && echo "# edited" >> "$f~" && mv "$f~" "$f"`, "sh", config},
	} {
		cmd := exec.Command(act[0], act[1:]...)
		cmd.Dir = top
		cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "GIT_CONFIG_NOSYSTEM=1"}
		p.asUser(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%q on the host: %v %s", act, err, out)
		}
		for _, script := range []string{
			"git config user.x z", "echo '[core] fsmonitor = x' >> '" + config + "'", "mv '" + config + "' '" + config + ".x'", "rm -f '" + config + "'",
			"echo x > c && mv -f c '" + config + "'", "echo x > c && ln -f c '" + config + "'", "ln -sf /tmp/c '" + config + "'",
			"mv '" + config + ".held' x", "echo x > '" + config + ".held/new'",
		} {
			if r := b.run(shell(top, script)); r.Code == 0 {
				t.Errorf("after %q on the host, inside %s: worked", act, script)
			}
		}
	}
	if got := b.sh(top, "git config user.x; git remote; rm -f c"); got != "y\no\n" {
		t.Errorf("inside git sees %q of what the host has set", got)
	}
}

// worktreeSpec mounts the common git directory beside the worktree.
func (s *suite) worktreeSpec(t *testing.T, p *place) (spec sandbox.Spec, common, own string) {
	t.Helper()
	common, own, protect := p.linkedWorktree(t)
	spec = s.spec(t, p)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: common, Target: common, Access: sandbox.ReadWrite})
	spec.Protect = protect
	return spec, common, own
}

func testB47Worktree(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec, common, _ := s.worktreeSpec(t, p)
	b := s.open(t, spec)
	out := strings.Split(strings.TrimSpace(b.sh(p.repo, everyday)), "\n")
	want := []string{"2", p.repo, common}
	if diff := cmp.Diff(want, out[max(0, len(out)-3):]); diff != "" {
		t.Errorf("inside (-want +got):\n%s", diff)
	}
	if got := p.git(t, p.repo, "log", "-1", "--format=%s", "topic"); strings.TrimSpace(got) != "second" {
		t.Errorf("the host sees %q", got)
	}
	// What git on the host replaces must not undo the protection.
	p.git(t, filepath.Dir(common), "config", "extensions.worktreeConfig", "true")
	p.git(t, p.repo, "config", "--worktree", "user.w", "v")
	for _, script := range []string{"git config --worktree user.w z", "rm -f \"$(git rev-parse --git-dir)/config.worktree\""} {
		if r := b.run(shell(p.repo, script)); r.Code == 0 {
			t.Errorf("after git config --worktree on the host, inside %s: worked", script)
		}
	}
	p.git(t, filepath.Dir(common), "config", "user.x", "y")
	for _, script := range []string{
		"git config user.x z", "echo x > '" + common + "/hooks/pre-commit'", "git branch -m other && git config -l | grep nothing",
		"ls '" + filepath.Dir(common) + "/file'",
	} {
		if r := b.run(shell(p.repo, script)); r.Code == 0 {
			t.Errorf("%s: worked", script)
		}
	}
}

func testB50(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: filepath.Join(p.repo, ".envrc"), Guard: sandbox.HoldDir})
	before := tree(t, p.repo)
	clean := func(when string) {
		t.Helper()
		for _, args := range [][]string{{"status", "--porcelain", "--ignored"}, {"clean", "-nx"}, {"ls-files", "-o"}} {
			if out := p.git(t, p.repo, args...); out != "" {
				t.Errorf("%s: git %q shows %q", when, args, out)
			}
		}
	}
	b := s.open(t, spec)
	clean("with a sandbox")
	if out := b.sh(p.repo, "git add . && git status --porcelain"); out != "" {
		t.Errorf("inside git shows %q", out)
	}
	// Another one of the same repository may come and go meanwhile.
	other := spec
	other.ID += "b"
	second := s.open(t, other)
	must(t, second.Remove(deadline(t)))
	if r := b.run(shell(p.repo, "mkdir -p .mojoup && echo x > .mojoup/policy.json")); r.Code == 0 {
		t.Error("the end of a second sandbox took the first one's placeholders")
	}
	clean("after a second sandbox")
	must(t, b.Remove(deadline(t)))
	clean("after Remove")
	if diff := cmp.Diff(names(before), names(tree(t, p.repo))); diff != "" {
		t.Errorf("paths (-before +after):\n%s", diff)
	}

	// Git on the host works while a sandbox is there.
	spec.ID += "c"
	b = s.open(t, spec)
	p.git(t, p.repo, "config", "user.x", "y")
	p.git(t, p.repo, "branch", "other")
	p.git(t, p.repo, "worktree", "add", "-q", filepath.Join(p.dir, "projects", "added"))
	must(t, b.Remove(deadline(t)))
	if _, err := os.Stat(filepath.Join(p.repo, ".git", "worktrees", "added")); err != nil {
		t.Errorf("Remove took what git had made meanwhile: %v", err)
	}
}

// names leaves out content: git rewrites its index when asked for a status.
func names(tree map[string]string) map[string]bool {
	all := map[string]bool{}
	for path := range tree {
		all[path] = true
	}
	return all
}

func testB53(t *testing.T, s *suite) {
	for name, plant := range map[string]func(p *place) string{
		"frozen":   func(p *place) string { return filepath.Join(p.repo, "link") },
		"parent":   func(p *place) string { return filepath.Join(p.repo, "link", "below") },
		"held dir": func(p *place) string { return filepath.Join(p.repo, "link", "missing") },
	} {
		t.Run(name, func(t *testing.T) {
			p := s.newPlace(t)
			target := filepath.Join(p.dir, "target")
			must(t, os.MkdirAll(filepath.Join(target, "below"), 0o755))
			must(t, os.Symlink(target, filepath.Join(p.repo, "link")))
			spec := s.spec(t, p)
			guard := sandbox.Freeze
			if name == "held dir" {
				guard = sandbox.HoldDir
			}
			spec.Protect = []sandbox.Protection{{Path: plant(p), Guard: guard}}
			before := tree(t, p.dir)
			made, err := s.newEngine(t).Prepare(deadline(t), spec)
			if err == nil {
				_ = made.Remove(deadline(t))
				t.Error("a protected path through a symbolic link was accepted")
			}
			if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
				t.Errorf("files (-before +after):\n%s", diff)
			}
		})
	}
}

// testProtections tries every guard by hand, one sandbox for all.
func testProtections(t *testing.T, s *suite) {
	p := s.newPlace(t)
	for _, d := range []string{"pinned", "pinned/frozen", "pinned/frozen/thawed"} {
		must(t, os.Mkdir(filepath.Join(p.repo, d), 0o755))
	}
	for _, f := range []string{"file", "frozen-file", "pinned/frozen/f", "pinned/frozen/thawed/f"} {
		p.write(t, f, "content\n")
	}
	must(t, exec.Command("chown", "-R", chownArg(p), p.repo).Run())
	at := func(name string) string { return filepath.Join(p.repo, name) }
	spec := s.spec(t, p)
	spec.Protect = []sandbox.Protection{
		{Path: at("pinned"), Guard: sandbox.Pin},
		{Path: at("pinned/frozen"), Guard: sandbox.Freeze},
		{Path: at("pinned/frozen/thawed"), Guard: sandbox.Thaw},
		{Path: at("frozen-file"), Guard: sandbox.Freeze},
		{Path: at("held-dir"), Guard: sandbox.HoldDir},
		{Path: at("held-file"), Guard: sandbox.HoldFile, Content: "given"},
	}
	refused := []string{
		"mv pinned moved", "rmdir pinned", "mv pinned/frozen moved", "mv pinned/frozen/thawed moved",
		"echo x > pinned/frozen/f", "echo x > pinned/frozen/new", "rm -f pinned/frozen/f", "mkdir pinned/frozen/d",
		"chmod 777 pinned/frozen/f", "chmod 777 pinned/frozen", "touch pinned/frozen/f", "truncate -s 0 pinned/frozen/f",
		"mv pinned/frozen/f file2", "mv file pinned/frozen/f", "ln pinned/frozen/f hard", "ln file pinned/frozen/hard",
		"echo x > frozen-file", "echo x >> frozen-file", "rm -f frozen-file", "mv frozen-file moved", "mv file frozen-file",
		"ln frozen-file hard", "truncate -s 0 frozen-file", "chmod 777 frozen-file", "ln -sf file frozen-file",
		"mv --exchange file frozen-file",
		"rmdir held-dir", "echo x > held-dir", "echo x > held-dir/f", "mv held-dir moved", "ln -s file held-dir/l",
		"rm -f held-file", "echo x > held-file", "mv held-file moved", "mv file held-file",
		"mv \"$PWD\" ../moved", "umount pinned/frozen", "mount -o remount,rw pinned/frozen",
	}
	b := s.open(t, spec)
	for _, script := range refused {
		if r := b.run(shell(p.repo, script)); r.Code == 0 {
			t.Errorf("%s: worked", script)
		}
	}
	for _, script := range []string{
		"echo x > pinned/new && mv pinned/new ./new && mv new pinned/new && rm pinned/new",
		"echo x > pinned/frozen/thawed/new && mv pinned/frozen/thawed/new pinned/frozen/thawed/f",
		"test -d held-dir && test -z \"$(ls -A held-dir)\"",
		"test \"$(cat held-file)\" = given",
		"echo x > file",
	} {
		b.sh(p.repo, script)
	}
	must(t, b.Remove(deadline(t)))
	for _, name := range []string{"held-dir", "held-file"} {
		if _, err := os.Lstat(at(name)); !os.IsNotExist(err) {
			t.Errorf("%s stays after Remove (%v)", name, err)
		}
	}
	// Without the sandbox the same acts work: they prove something.
	for _, script := range []string{"mv pinned away && mv away pinned", "echo x > pinned/frozen/f", "mv file frozen-file", "ln frozen-file hard"} {
		cmd := exec.Command("sh", "-c", script)
		cmd.Dir = p.repo
		p.asUser(cmd)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s outside: %v %s", script, err, out)
		}
	}
}
