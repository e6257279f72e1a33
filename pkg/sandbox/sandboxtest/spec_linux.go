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
func identity() sandbox.Identity {
	if os.Geteuid() == 0 {
		return sandbox.Identity{UID: 1000, GID: 1000}
	}
	return sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}
}

// newPlace makes the directories. t.TempDir would not do: it is closed to
// everyone but the node's user.
func newPlace(t *testing.T) *place {
	t.Helper()
	dir, err := os.MkdirTemp("", "sandboxtest-")
	must(t, err)
	t.Cleanup(func() { must(t, os.RemoveAll(dir)) })
	must(t, os.Chmod(dir, 0o755))
	p := &place{id: identity(), dir: dir, repo: filepath.Join(dir, "projects", "repo with space"), home: filepath.Join(dir, "home")}
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

// mainTree makes a git repository with one commit, and how it is guarded where
// .git itself stays writable.
func (p *place) mainTree(t *testing.T) []sandbox.Protection {
	t.Helper()
	p.git(t, p.repo, "init", "-q", "-b", "main")
	p.write(t, "file", "one\n")
	p.git(t, p.repo, "add", ".")
	p.git(t, p.repo, "commit", "-q", "-m", "first")
	git := filepath.Join(p.repo, ".git")
	return []sandbox.Protection{
		{Path: git, Guard: sandbox.Pin, Reason: "holds what git runs"},
		{Path: filepath.Join(git, "config"), Guard: sandbox.Freeze, Reason: "names programs"},
		{Path: filepath.Join(git, "hooks"), Guard: sandbox.Freeze, Reason: "programs of git"},
		{Path: filepath.Join(git, "commondir"), Guard: sandbox.HoldFile, Content: ".\n", Reason: "would redirect config and hooks"},
		{Path: filepath.Join(p.repo, ".mojoup"), Guard: sandbox.HoldDir, Reason: "the policy"},
		{Path: filepath.Join(p.repo, ".envrc"), Guard: sandbox.HoldDir, Reason: "run by the user's shell"},
	}
}

// linkedWorktree turns the place's repository into a worktree "wt" of a main
// one that is not mounted but for its git directory. It returns that git
// directory and the guards: everything in it frozen but what a worktree needs.
func (p *place) linkedWorktree(t *testing.T) (common string, guards []sandbox.Protection) {
	t.Helper()
	main := filepath.Join(p.dir, "projects", "main")
	must(t, os.Remove(p.repo))
	p.git(t, filepath.Dir(p.repo), "init", "-q", "-b", "main", main)
	p.git(t, main, "commit", "-q", "--allow-empty", "-m", "first")
	p.git(t, main, "worktree", "add", "-q", "-b", "wt", p.repo)
	common = filepath.Join(main, ".git")
	own := filepath.Join(common, "worktrees", filepath.Base(p.repo))
	if _, err := os.Stat(own); err != nil { // git cleans the name: find the only one
		entries, err := os.ReadDir(filepath.Dir(own))
		must(t, err)
		own = filepath.Join(filepath.Dir(own), entries[0].Name())
	}
	why := "of the main repository"
	return common, []sandbox.Protection{
		{Path: common, Guard: sandbox.Freeze, Reason: why},
		{Path: filepath.Join(common, "objects"), Guard: sandbox.Thaw, Reason: "new objects"},
		{Path: filepath.Join(common, "refs"), Guard: sandbox.Thaw, Reason: "branches"},
		{Path: filepath.Join(common, "logs"), Guard: sandbox.Thaw, Reason: "reflogs"},
		{Path: own, Guard: sandbox.Thaw, Reason: "index and HEAD of the worktree"},
		{Path: filepath.Join(own, "commondir"), Guard: sandbox.Freeze, Reason: "would redirect config and hooks"},
		{Path: filepath.Join(own, "gitdir"), Guard: sandbox.Freeze, Reason: "names the worktree"},
		{Path: filepath.Join(p.repo, ".git"), Guard: sandbox.Freeze, Reason: "names the git directory"},
	}
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
