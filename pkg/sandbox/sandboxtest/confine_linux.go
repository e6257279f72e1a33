package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

func testIdentity(t *testing.T, s *suite) {
	p, b := s.plain(t)
	b.sh(p.repo, "echo a > made; mkdir dir; ln -s made link; umask 077; echo b > private")
	for _, name := range []string{"made", "dir", "link", "private"} {
		info, err := os.Lstat(filepath.Join(p.repo, name))
		must(t, err)
		st := info.Sys().(*syscall.Stat_t)
		if int(st.Uid) != p.id.UID || int(st.Gid) != p.id.GID {
			t.Errorf("%s belongs to %d:%d outside, want %d:%d", name, st.Uid, st.Gid, p.id.UID, p.id.GID)
		}
	}
	if got, want := b.sh("/", "id -u; id -g"), fmt.Sprintf("%d\n%d\n", p.id.UID, p.id.GID); got != want {
		t.Errorf("inside it is %q, want %q", got, want)
	}
	if got := strings.TrimSpace(b.sh("/", "uname -n")); got != "sandbox" {
		t.Errorf("host name %q", got)
	}
}

func testMounts(t *testing.T, s *suite) {
	p := s.newPlace(t)
	shared := filepath.Join(p.dir, "shared")
	must(t, os.Mkdir(shared, 0o777))
	must(t, os.Chmod(shared, 0o777))
	must(t, os.WriteFile(filepath.Join(shared, "f"), []byte("data"), 0o666))
	must(t, os.WriteFile(filepath.Join(p.dir, "secret"), []byte("x"), 0o666))
	spec := readOnly(s.spec(t, p), shared)
	text := "content\x00\xff\n"
	spec.Mounts = append(spec.Mounts,
		sandbox.Mount{Kind: sandbox.Text, Target: "/etc/given", Begin: []byte(text[:3]), Content: []byte(text[3:]), Mode: 0o400},
		sandbox.Mount{Kind: sandbox.Link, Source: "/etc/given", Target: "/etc/pointer"},
		sandbox.Mount{Kind: sandbox.Seed, Target: p.home + "/.own/deep/seed", Content: []byte(text)},
		sandbox.Mount{Kind: sandbox.Seed, Target: p.home + "/.own/second", Content: []byte("2"), Mode: 0o640},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/small", Access: sandbox.ReadWrite, Size: 1 << 20, Mode: 0o777, NoExec: true},
		sandbox.Mount{Kind: sandbox.Bind, Source: "/no/such/thing", Target: "/nowhere", Optional: true},
	)
	b := s.open(t, spec)
	if got := b.sh("/", "cat /etc/pointer"); got != text {
		t.Errorf("text %q", got)
	}
	if got := b.sh("/", "cat '"+shared+"/f'"); got != "data" {
		t.Errorf("bind holds %q", got)
	}
	// B44: what the session is given for itself it may change in every way.
	script := `cd && cat .own/deep/seed && stat -c %a .own .own/deep .own/deep/seed .own/second && stat -c %u .own/deep .own/deep/seed | uniq &&
echo in place >>.own/deep/seed && chmod 600 .own/deep/seed && echo new >.own/deep/n && mv .own/deep/n .own/deep/seed && cat .own/deep/seed && rm -r .own`
	if got, want := b.sh("/", script), text+fmt.Sprintf("700\n700\n600\n640\n%d\nnew\n", p.id.UID); got != want {
		t.Errorf("B44: a file of its own: %q, want %q", got, want)
	}
	for what, script := range map[string]string{
		"write into a read-only bind":    "echo x > " + shared + "/f",
		"make a file in it":              "echo x > " + shared + "/g",
		"remove from it":                 "rm -f " + shared + "/f",
		"write a text":                   "chmod u+w /etc/given && echo x > /etc/given",
		"make a file in /etc":            "echo x > /etc/new",
		"make a directory in /":          "mkdir /new",
		"see what is not mounted":        "cat " + p.dir + "/secret",
		"see a sibling of the repo":      "ls " + filepath.Dir(p.repo) + " | grep -v 'repo with space' | grep .",
		"see a missing optional mount":   "ls /nowhere",
		"pass the size of a scratch":     "head -c 3000000 /dev/zero > /small/big",
		"start a program where NoExec":   "cp /usr/bin/true /small/p && /small/p",
		"see other processes than these": "ls -d /proc/[0-9]* | wc -l | { read n; [ $n -gt 12 ]; }",
	} {
		if r := b.run(shell("/", script)); r.Code == 0 {
			t.Errorf("it can %s: %s", what, r.out)
		}
	}
	b.sh("/", "echo x > /tmp/f && mv /tmp/f \"$HOME/f\" && cat \"$HOME/f\" && rm /small/* && echo x > /small/f")
	if entries, _ := os.ReadDir(p.home); len(entries) > 0 {
		t.Errorf("the scratch home shows on the host: %v", entries)
	}
}

// testHalfWay lets the last mount fail, when all else has been made.
func testHalfWay(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	before := tree(t, p.dir)
	broken := spec
	broken.Mounts = append(append([]sandbox.Mount{}, spec.Mounts...),
		sandbox.Mount{Kind: sandbox.Bind, Source: filepath.Join(p.dir, "missing"), Target: "/late"})
	if made, err := s.newEngine(t).Prepare(deadline(t), broken); err == nil {
		_ = made.Remove(deadline(t))
		t.Fatal("a mount of nothing was made")
	}
	broken = spec
	broken.Protect = append(append([]sandbox.Protection{}, spec.Protect...),
		sandbox.Protection{Path: filepath.Join(p.repo, "missing", "deep"), Guard: sandbox.Freeze})
	if made, err := s.newEngine(t).Prepare(deadline(t), broken); err == nil {
		_ = made.Remove(deadline(t))
		t.Fatal("a protection of nothing was made")
	}
	if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
	s.open(t, spec).sh("/", "true") // under the same ID
}

func testB05(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	stat := func(path string) *syscall.Stat_t {
		info, err := os.Stat(path)
		must(t, err)
		return info.Sys().(*syscall.Stat_t)
	}
	repo := stat(p.repo)
	good := []sandbox.Check{
		{Kind: sandbox.MustNotOpen, Path: filepath.Join(p.dir, "secret")},
		{Kind: sandbox.MustNotWrite, Path: "/usr/bin/new"},
		{Kind: sandbox.MustBeSame, Path: p.repo, Device: repo.Dev, Inode: repo.Ino},
		{Kind: sandbox.MustWrite, Path: p.repo},
	}
	must(t, os.WriteFile(filepath.Join(p.dir, "secret"), nil, 0o666))
	spec.Checks = good
	b := s.open(t, spec)
	if _, err := b.Check(deadline(t)); err != nil {
		t.Errorf("good checks: %v", err)
	}
	if entries, err := os.ReadDir(p.repo); err != nil || len(entries) != 0 {
		t.Errorf("the check leaves %v in the repository (%v)", entries, err)
	}
	must(t, b.Remove(deadline(t)))
	t.Run("proxy is dead", func(t *testing.T) {
		made, err := s.newEngine(t).Prepare(deadline(t), spec)
		must(t, err)
		must(t, made.Listener().Close())
		if facts, err := made.Check(deadline(t)); err == nil {
			t.Errorf("passed: %+v", facts)
		}
		must(t, made.Remove(deadline(t)))
	})
	for name, bad := range map[string]sandbox.Check{
		"can be opened":  {Kind: sandbox.MustNotOpen, Path: "/usr/bin/env"},
		"can be written": {Kind: sandbox.MustNotWrite, Path: filepath.Join(p.repo, "f")},
		"is another":     {Kind: sandbox.MustBeSame, Path: p.repo, Device: repo.Dev, Inode: repo.Ino + 1},
		"is missing":     {Kind: sandbox.MustBeSame, Path: "/nowhere", Device: repo.Dev, Inode: repo.Ino},
		"not writable":   {Kind: sandbox.MustWrite, Path: "/usr"},
	} {
		t.Run(name, func(t *testing.T) {
			spec := spec
			spec.Checks = append(append([]sandbox.Check{}, good...), bad)
			b := s.open(t, spec)
			if facts, err := b.Check(deadline(t)); err == nil {
				t.Errorf("passed: %+v", facts)
			}
		})
	}
}

// testB34 starts many sandboxes whose whole command is one request.
func testB34(t *testing.T, s *suite) {
	starts := s.options.Starts
	if starts == 0 {
		starts = kerneltest.Rounds(100, 30)
	}
	p := s.newPlace(t)
	spec := s.spec(t, p)
	engine := s.newEngine(t)
	// bash speaks TCP by itself: no program has to be loaded in between.
	ask := sandbox.Command{Argv: []string{"bash", "-c", "exec 3<>/dev/tcp/${0%:*}/${0##*:} && echo GET / >&3 && read -r line <&3 && echo \"$line\"", proxyAddress}}
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			for i := w; i < starts; i += 4 {
				mine := spec
				mine.ID = fmt.Sprintf("b34-%d-%d", os.Getpid()%100000, i)
				if err := oneRequest(t, engine, mine, ask); err != nil {
					t.Errorf("start %d: %v", i, err)
				}
			}
		})
	}
	workers.Wait()
}

func oneRequest(t *testing.T, e sandbox.Engine, spec sandbox.Spec, ask sandbox.Command) error {
	ctx := deadline(t)
	made, err := e.Prepare(ctx, spec)
	if err != nil {
		return err
	}
	if made.Listener() == nil {
		return errors.Join(errors.New("no listener"), made.Remove(ctx))
	}
	served := serve(made.Listener())
	b := &box{Sandbox: made, t: t}
	r, err := b.try(ask, nil)
	if err == nil && !strings.HasPrefix(r.out, "HTTP/1.1 503") {
		err = fmt.Errorf("exit %d, %q %q", r.Code, r.out, r.err)
	}
	if removed := made.Remove(ctx); err == nil {
		err = removed
	}
	_ = made.Listener().Close()
	<-served
	return err
}

func testB55(t *testing.T, s *suite) {
	p := s.newPlace(t)
	p.write(t, "f", "one\n")
	b := s.open(t, s.spec(t, p))
	for _, script := range []string{
		"mkdir -p a/b c && mv f a/b/f && ln a/b/f c/g && mv a/b c/b && mv c/b/f f && rm -r a c",
		"mv f /tmp/f && mv /tmp/f f && mv f \"$HOME/f\" && mv \"$HOME/f\" f",
		": > /dev/null; head -c1 /dev/urandom > /dev/null; head -c1 /dev/zero > /dev/null",
		"echo x > /dev/stdout; echo y > /dev/stderr; echo z | cat /dev/stdin",
		"truncate -s 3 f && printf abc > f && chmod 755 f && touch -d 2001-01-01 f",
		"mkfifo p && { cat p & echo x > p; wait; } && rm p",
		"tar cf /tmp/t.tar f && mkdir u && tar xf /tmp/t.tar -C u && cmp f u/f && rm -r u",
		"git init -q r && git -C r commit -q --allow-empty -m x && git clone -q r s && rm -rf r s",
		"git init -q /tmp/r && git -C /tmp/r commit -q --allow-empty -m x && git clone -q /tmp/r s && rm -rf s",
	} {
		if r := b.run(shell(p.repo, script)); r.Code != 0 {
			t.Errorf("%s: exit %d\n%s%s", script, r.Code, r.out, r.err)
		}
	}
}

// testB55Nested has a tool with threads set up sandboxes of its own within the
// sandbox. Both hold in every thread, and files can be moved between directories.
func testB55Nested(t *testing.T, s *suite) {
	p := s.newPlace(t)
	for _, dir := range []string{"one", "two", "other", "over"} {
		must(t, os.Mkdir(filepath.Join(p.repo, dir), 0o755))
		must(t, os.Chown(filepath.Join(p.repo, dir), p.id.UID, p.id.GID))
	}
	held := filepath.Join(p.repo, ".mojoup")
	spec := s.spec(t, p)
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: held, Guard: sandbox.HoldDir})
	attack := attackProgram(t)
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: filepath.Dir(attack), Target: filepath.Dir(attack)})
	b := s.open(t, spec)
	with := map[bool]string{true: "rules", false: "rules and a filter"}[s.options.NoFilters]
	if r := b.run(sandbox.Command{Argv: []string{attack, "nested", p.repo, held, with}, Dir: p.repo}); r.Code != 0 || r.out != "" {
		t.Errorf("exit %d\n%s%s", r.Code, r.out, r.err)
	}
}

func testB90(t *testing.T, s *suite) {
	p := s.newPlace(t)
	b := s.open(t, s.spec(t, p))
	for _, path := range []string{"/run/docker.sock", "/var/run/docker.sock", "/run/containerd/containerd.sock", "/run/systemd/private", "/run/dbus/system_bus_socket", fmt.Sprintf("/run/user/%d", p.id.UID)} {
		if r := b.run(sandbox.Command{Argv: []string{"ls", "-d", path}}); r.Code == 0 {
			t.Errorf("%s is there", path)
		}
	}
	if out := b.sh("/", "find / -xdev -type s 2>/dev/null; find /run /tmp /var /dev -type s 2>/dev/null; true"); out != "" {
		t.Errorf("sockets inside: %s", out)
	}
	// One line is the title; the way out listens on TCP.
	if out := b.sh("/", "cat /proc/net/unix | tail -n +2"); out != "" {
		t.Errorf("abstract or other sockets are seen: %s", out)
	}
	for _, name := range []string{"SSH_AUTH_SOCK", "DBUS_SESSION_BUS_ADDRESS", "XDG_RUNTIME_DIR", "DOCKER_HOST", "TMUX", "NOTIFY_SOCKET"} {
		if r := b.run(sandbox.Command{Argv: []string{"printenv", name}}); r.Code == 0 {
			t.Errorf("%s is set to %q", name, r.out)
		}
	}
}
