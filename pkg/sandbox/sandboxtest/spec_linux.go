package sandboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// proxyAddress is where the inside finds the way out. The port is fixed in the
// Spec because it is opened inside: nothing on the host listens there.
const proxyAddress = "127.0.0.1:3128"

// A place is what a test stands on: a directory of its own on the host, in
// which the session's user owns a repository and everything else is foreign.
type place struct {
	id   sandbox.Identity
	dir  string // not mounted
	repo string // mounted writable
	home string // of the session; scratch
}

// identity is who sessions of the suite run as. A node of root gets an
// ordinary user, by a number that need not have a name.
func (s *suite) identity() sandbox.Identity {
	switch {
	case s.options.Identity != nil:
		return *s.options.Identity
	case os.Geteuid() == 0:
		return sandbox.Identity{UID: 1000, GID: 1000}
	}
	return sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}
}

// newPlace makes the directories. t.TempDir would not do: it is closed to
// everyone but the node's user.
func (s *suite) newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxtest-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	p := &place{id: s.identity(), dir: dir, repo: filepath.Join(dir, "projects", "repo with space"), home: filepath.Join(dir, "home")}
	for _, d := range []string{filepath.Dir(p.repo), p.repo, p.home} {
		must(t, os.Mkdir(d, 0o755))
		must(t, os.Chown(d, p.id.UID, p.id.GID))
	}
	return p
}

// spec is a realistic Spec, as a plan would make it: the system's programs,
// a private /tmp and home, the repository at its own path.
func (s *suite) spec(t *testing.T, p *place) sandbox.Spec {
	t.Helper()
	spec := sandbox.Spec{
		ID:       "t-" + strings.ToLower(filepath.Base(p.dir))[len("sandboxtest-"):],
		Identity: p.id,
		Mounts:   systemMounts(),
		Proxy:    proxyAddress,
		Env: []string{
			"PATH=/usr/local/bin:/usr/bin:/bin", "HOME=" + p.home, "LANG=C.UTF-8", "TERM=xterm",
			"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com",
			"GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
		},
		WorkDir: filepath.Join(p.dir, "empty"),
	}
	if err := os.Mkdir(spec.WorkDir, 0o755); err != nil && !os.IsExist(err) {
		t.Fatal(err)
	}
	spec.Mounts = append(spec.Mounts,
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/tmp", Access: sandbox.ReadWrite, Mode: 0o1777, Size: 64 << 20},
		sandbox.Mount{Kind: sandbox.Scratch, Target: p.home, Access: sandbox.ReadWrite, Mode: 0o700, Size: 16 << 20},
		sandbox.Mount{Kind: sandbox.Text, Target: "/etc/passwd", Content: fmt.Appendf(nil, "u:x:%d:%d::%s:/bin/sh\n", p.id.UID, p.id.GID, p.home)},
		sandbox.Mount{Kind: sandbox.Text, Target: "/etc/group", Content: fmt.Appendf(nil, "u:x:%d:\n", p.id.GID)},
		sandbox.Mount{Kind: sandbox.Bind, Source: p.repo, Target: p.repo, Access: sandbox.ReadWrite},
	)
	if s.options.Adapt != nil {
		spec = s.options.Adapt(t, spec)
	}
	return spec
}

// systemMounts are the host's programs, with the links of a merged /usr as
// this host has them.
func systemMounts() []sandbox.Mount {
	mounts := []sandbox.Mount{{Kind: sandbox.Bind, Source: "/usr", Target: "/usr"}}
	for _, d := range []string{"/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"} {
		to, err := os.Readlink(d)
		switch {
		case err == nil:
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Link, Source: to, Target: d})
		default:
			mounts = append(mounts, sandbox.Mount{Kind: sandbox.Bind, Source: d, Target: d, Optional: true})
		}
	}
	for _, f := range []string{"/etc/ssl", "/etc/alternatives", "/etc/ld.so.cache"} {
		mounts = append(mounts, sandbox.Mount{Kind: sandbox.Bind, Source: f, Target: f, Optional: true})
	}
	return mounts
}

// readOnly adds a directory of the host at its own path.
func readOnly(s sandbox.Spec, dir string) sandbox.Spec {
	s.Mounts = append(s.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: dir, Target: dir})
	return s
}

// mainTree makes a git repository with one commit and returns how it is
// guarded by the table that all engines share.
func (p *place) mainTree(t *testing.T) []sandbox.Protection {
	t.Helper()
	p.git(t, p.repo, "init", "-q", "-b", "main")
	p.write(t, "file", "one\n")
	p.git(t, p.repo, "add", ".")
	p.git(t, p.repo, "commit", "-q", "-m", "first")
	git := filepath.Join(p.repo, ".git")
	return guards(t, sandbox.Tree{Top: p.repo, GitDir: git, CommonDir: git})
}

// linkedWorktree turns the place's repository into a worktree of a main one,
// of which only the git directory is to be mounted. It returns that directory,
// the worktree's own part of it, and the guards.
func (p *place) linkedWorktree(t *testing.T) (common, own string, protect []sandbox.Protection) {
	t.Helper()
	main := filepath.Join(p.dir, "projects", "main")
	must(t, os.Remove(p.repo))
	p.git(t, filepath.Dir(p.repo), "init", "-q", "-b", "main", main)
	p.git(t, main, "commit", "-q", "--allow-empty", "-m", "first")
	must(t, os.WriteFile(filepath.Join(main, "file"), []byte("of the main tree\n"), 0o666))
	p.git(t, main, "worktree", "add", "-q", "-b", "wt", p.repo)
	common = filepath.Join(main, ".git")
	entries, err := os.ReadDir(filepath.Join(common, "worktrees"))
	must(t, err)
	own = filepath.Join(common, "worktrees", entries[0].Name())
	return common, own, guards(t, sandbox.Tree{Top: p.repo, GitDir: own, CommonDir: common, GitFile: true})
}

// guards asks the table, after looking at what stands where.
func guards(t *testing.T, tree sandbox.Tree) []sandbox.Protection {
	t.Helper()
	tree.At = map[string]sandbox.Entry{}
	for _, path := range sandbox.Watched(tree) {
		info, err := os.Lstat(path)
		switch {
		case os.IsNotExist(err):
			tree.At[path] = sandbox.Entry{Is: sandbox.Missing}
		case err != nil:
			t.Fatal(err)
		case info.IsDir():
			tree.At[path] = sandbox.Entry{Is: sandbox.Directory}
		case info.Mode().IsRegular():
			tree.At[path] = sandbox.Entry{Is: sandbox.RegularFile}
		}
	}
	protect, _, err := sandbox.Guards(tree)
	must(t, err)
	return protect
}

// write makes a file of the session's user in the repository.
func (p *place) write(t *testing.T, name, content string) {
	t.Helper()
	path := filepath.Join(p.repo, name)
	must(t, os.WriteFile(path, []byte(content), 0o644))
	must(t, os.Chown(path, p.id.UID, p.id.GID))
}

// git runs git on the host, as the session's user and with no settings of its
// own.
func (p *place) git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Env = []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + p.home, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com",
	}
	p.asUser(cmd)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q on the host: %v\n%s", args, err, out)
	}
	return string(out)
}

// asUser makes a host command run as the session's user: who shows that an
// attempt works outside must be the same one.
func (p *place) asUser(cmd *exec.Cmd) {
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(p.id.UID), Gid: uint32(p.id.GID)}}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
