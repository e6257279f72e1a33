package realtest

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// others is a user that nobody runs a node as, and a group of which a node is.
const others = 2000

// layout is where a session of B51 works, below the rig's directory.
type layout struct {
	name, tree string
	owner      int // of the repository; 0 is the rig's somebody
	shared     bool
}

// TestB51_NobodyComplainsAboutOwners: git, what asks git, a hook of the
// person's and a package manager work in a repository of the person's own, in a
// linked worktree of it, and in one of somebody else's that a group shares.
func TestB51_NobodyComplainsAboutOwners(t *testing.T) {
	kerneltest.Long(t)
	programs(t, "git", "npm", "go")
	layouts := []layout{{"own", "repo", 0, false}, {"worktree", "linked", 0, false}, {"shared by a group", "repo", others, true}}
	everybody(t, func(t *testing.T, who somebody) {
		for _, l := range layouts {
			t.Run(l.name, func(t *testing.T) {
				if l.owner != 0 && os.Getuid() != 0 {
					t.Skip("wanted root, who can give a directory away, found user", os.Getuid())
				}
				if l.shared && who.uid == 0 {
					return // root's sessions have no other group than root's own
				}
				testOwners(t, who, l)
			})
		}
	})
}

// stamping says whether go would write a version into a program here. It has
// none for a linked worktree, on the host either.
const stamping = `export GOTOOLCHAIN=local
go build -n -buildvcs=true . >"$HOME/said" 2>&1 || { cat "$HOME/said"; exit 1; }
echo stamped $(grep -c vcs.revision "$HOME/said" || :)`

func testOwners(t *testing.T, who somebody, l layout) {
	r := place(t, who, nil, onPath(goBin(t)), func(r *rig) {
		if l.shared {
			r.groups = strconv.Itoa(others)
		}
	})
	for name, text := range map[string]string{
		"go.mod": "module example.com/x\n\ngo 1.21\n", "main.go": "package main\n\nfunc main() {}\n", ".gitignore": "node_modules\n",
		"package.json": `{"name":"x","version":"1.0.0","dependencies":{"y":"file:./y"}}`, "y/package.json": `{"name":"y","version":"1.0.0"}`,
	} {
		r.write(filepath.Join("repo", name), text, 0o644)
	}
	r.write("repo/.git/hooks/pre-commit", "#!/bin/sh\ngit status >/dev/null && echo hooked\n", 0o755)
	r.own()
	for _, line := range []string{
		"git config user.name n && git config user.email n@n.example && npm install --offline --no-audit --no-fund --package-lock-only",
		"git add . && git commit -q --no-verify -m first && git worktree add -q ../linked",
	} {
		r.outside("sh", "-ec", line).succeed()
	}
	if l.shared {
		r.must(filepath.WalkDir(r.repo, func(p string, d fs.DirEntry, err error) error {
			mode := os.FileMode(0o664)
			if d.IsDir() {
				mode = 0o775 | os.ModeSetgid
			} else if strings.HasSuffix(p, "pre-commit") {
				mode = 0o775
			}
			return errors.Join(err, os.Lchown(p, l.owner, others), os.Chmod(p, mode))
		}))
	}
	node, err := binary()
	r.must(err)
	r.start(node)
	host := r.hostConfig()
	main := r.repo
	r.repo = filepath.Join(r.dir, l.tree)
	trusting := []string{"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"}
	_, stamp, _ := strings.Cut(r.outside("sh", "-ec", stamping).with(trusting...).succeed().stdout, "stamped ")

	said := r.inside(`{"version": 1, "network": {"rules": []}}`, "sh", "-ec", `
git status
git -C "$1" status
eval "$2"
npm ci --offline --no-audit --no-fund
git commit -q --allow-empty -m second
git log --format=%s -1
echo trusted $(git config --get-all safe.directory) .
# The directories on the way there are made up.
test "$(stat -c %u "$(dirname "$PWD")")" = "$(id -u)"`, "sh", main, stamping).succeed()
	for _, complaint := range []string{"dubious", "not owned", "unsafe repository", "EACCES", "EPERM"} {
		if strings.Contains(said.all(), complaint) {
			t.Errorf("%q in what was said:\n%s", complaint, said.all())
		}
	}
	r.mention(said, "hooked")
	r.mention(said, "second")
	r.mention(said, "stamped "+strings.TrimSpace(stamp))
	_, trusted, _ := strings.Cut(said.stdout, "trusted ")
	trusted, _, _ = strings.Cut(trusted, " .\n")
	for _, dir := range strings.Fields(trusted) {
		if dir != main && dir != r.repo && !strings.HasPrefix(dir, main+"/.git") {
			t.Errorf("%s is trusted, which is not mounted", dir)
		}
	}
	if after := r.hostConfig(); after != host {
		t.Errorf("the person's own configuration is %q, it was %q", after, host)
	}
}

// hostConfig is the person's own configuration of git.
func (r *rig) hostConfig() string {
	said, err := r.outside("git", "config", "--list", "--global", "--includes").run()
	r.must(err)
	return said.all()
}

// spiteful makes files that are hard to get rid of.
const spiteful = `
mkdir -p a/b/c/d && echo x > a/b/c/d/file && chmod 0 a/b/c/d/file
mkdir shut && mkdir shut/in && echo x > shut/in/file && chmod 0 shut/in/file shut/in shut
cp /bin/true elevated && chmod u+s elevated; chmod 4755 elevated; chmod 2755 elevated
install -m 6755 /bin/true elevated2
echo x > fixed; chattr +i fixed
echo x > given; chown 0:0 given; chown 12345 given
mknod device b 7 0; mknod pipe p
ln -s /etc/shadow link; ln /etc/passwd hard
mkdir sticky && chmod 1777 sticky
exit 0`

// TestB52_WhatASessionMakesCanBeRemoved: everything in the tree belongs to the
// repository's owner, who can remove it as usual, and nothing of it makes
// anybody mightier.
func TestB52_WhatASessionMakesCanBeRemoved(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		r := newRig(t, who, nil)
		person := r.outside("sh", "-c", `git config user.name n && git config user.email n@n.example && git commit -q --allow-empty -m first && git worktree add -q ../linked`)
		person.succeed()
		main := r.repo
		r.repo = filepath.Join(r.dir, "linked")
		said := r.inside("", "sh", "-c", spiteful).succeed()
		if who.uid != 0 { // to whom nothing is closed
			r.mention(said, "directories that were closed to you, and were not searched: shut: chmod u+rwx opens them")
		}
		r.must(filepath.WalkDir(r.repo, func(p string, d fs.DirEntry, err error) error {
			if err != nil {
				return err // a directory that its owner cannot look into
			}
			info, err := d.Info()
			r.must(err)
			if s := info.Sys().(*syscall.Stat_t); int(s.Uid) != who.uid {
				t.Errorf("%s belongs to user %d", p, s.Uid)
			}
			if info.Mode()&(os.ModeSetuid|os.ModeDevice) != 0 || info.Mode()&os.ModeSetgid != 0 && !d.IsDir() {
				t.Errorf("%s is %v", p, info.Mode())
			}
			return nil
		}))
		for _, made := range []string{"a/b/c/d/file", "shut/in", "elevated", "fixed", "given", "link", "sticky"} {
			if _, err := os.Lstat(filepath.Join(r.repo, made)); err != nil {
				t.Errorf("the session did not make it: %v", err)
			}
		}
		away := r.outside("sh", "-ec", `rm -rf ../linked/a ../linked/fixed && chmod -R u+rwx ../linked/shut && git worktree remove --force ../linked && ! test -e ../linked && git worktree list | wc -l`)
		away.dir = main
		if said := away.succeed(); strings.TrimSpace(said.stdout) != "1" {
			t.Errorf("git still has worktrees: %s", said.all())
		}
	})
}
