package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// want runs scripts inside and compares what they say.
func want(t *testing.T, b sandbox.Sandbox, scripts map[string]string) {
	t.Helper()
	for script, want := range scripts {
		if got, exit := sh(t, b, script); strings.TrimSpace(got) != want {
			t.Errorf("%s: said %q (exit %d), want %q", script, got, exit.Code, want)
		}
	}
}

func TestInside(t *testing.T) {
	w := newWorld(t)
	spec := w.spec()
	spec.Hostname = "box"
	spec.Limits = sandbox.Limits{Processes: 100, Files: 321}
	spec.Mounts = append(spec.Mounts,
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/opt/closed"},
		sandbox.Mount{Kind: sandbox.Link, Source: "/nowhere", Target: "/opt/closed/link"},
		sandbox.Mount{Kind: sandbox.Scratch, Target: "/opt/data", Access: sandbox.ReadWrite, NoExec: true, Size: 1 << 20},
		sandbox.Mount{Kind: sandbox.Text, Target: "/tmp/text", Content: []byte("text\n"), Mode: 0o640},
		sandbox.Mount{Kind: sandbox.Bind, Source: filepath.Join(w.dir, "nothing"), Target: "/opt/nothing", Optional: true},
	)
	b := open(t, spec)
	facts, err := b.Check(soon(t))
	check(t, err)
	if len(facts) == 0 {
		t.Error("no facts")
	}
	want(t, b, map[string]string{
		"hostname":     "box",
		"id -u; id -g": fmt.Sprintf("%d\n%d", w.id.UID, w.id.GID),
		// A core limit of 0 would have the host's handler of core dumps run.
		`ulimit -c 0 && awk '/^Max (open|core)/ {print $(NF-2), $(NF-1)}' /proc/self/limits`: "1 1\n321 321",
		"cat /proc/sys/user/max_user_namespaces":                                             "0",
		"cat /proc/keys /proc/key-users | wc -c":                                             "0",
		"readlink /opt/closed/link":                                                          "/nowhere",
		"touch /opt/closed/x 2>/dev/null || echo no":                                         "no",
		"touch /x 2>/dev/null || echo no":                                                    "no",
		"cp /bin/sh /opt/data && /opt/data/sh -c : 2>/dev/null || echo no":                   "no",
		"cp /usr/bin/true /tmp && /tmp/true && echo yes":                                     "yes",
		"head -c 2000000 /dev/zero 2>/dev/null >/run/f; stat -c %s /run/f":                   "1048576",
		"cat /tmp/text; stat -c %a /tmp/text; (echo x > /tmp/text) 2>/dev/null || echo no; rm -f /tmp/text 2>/dev/null || echo no": "text\n440\nno\nno",
		"ls /":                                   "bin\ndev\netc\nlib\nlib64\nopt\nproc\nrun\ntmp\nusr",
		"ls /opt":                                "closed\ndata",
		"ls /.scratch 2>/dev/null":               "",
		"cat /etc/shadow 2>/dev/null || echo no": "no",
		"ls /dev":                                "fd\nfull\nnull\nptmx\npts\nrandom\nshm\nstderr\nstdin\nstdout\ntty\nurandom\nzero",
		"ls /proc/self/fd | wc -l":               "4", // 0, 1, 2 and ls' own
		"cat /proc/1/cmdline | tr '\\0' ' '":     "mojoup-child " + spec.ID,
		"cat /proc/net/dev | tail -n +3 | cut -d: -f1 | tr -d ' '": "lo",
		"umask": "0022",
	})
}

func TestRepositoryIsOwnedAndGuarded(t *testing.T) {
	w := newWorld(t)
	b := open(t, w.spec())
	want(t, b, map[string]string{
		fmt.Sprintf("cd %s && echo x > made && mkdir a b && mv made a && mv a b && echo ok", w.repo): "ok",
		fmt.Sprintf("cd %s && mv .git x 2>&1", w.repo):                                               "mv: cannot move '.git' to 'x': Device or resource busy",
		fmt.Sprintf("cd %s/.git && (echo x >> config) 2>&1 | sed 's/.*: //'", w.repo):                "Read-only file system",
		fmt.Sprintf("cd %s/.git && (echo x > hooks/pre-commit) 2>&1 | sed 's/.*: //'", w.repo):       "Read-only file system",
		fmt.Sprintf("cd %s/.git && echo x > HEAD && cat HEAD", w.repo):                               "x",
	})
	var stat unix.Stat_t
	check(t, unix.Stat(filepath.Join(w.repo, "b/a/made"), &stat))
	if int(stat.Uid) != w.id.UID || int(stat.Gid) != w.id.GID {
		t.Errorf("made by %d:%d, want %d:%d", stat.Uid, stat.Gid, w.id.UID, w.id.GID)
	}
}

// TestCommonDisk shares one memory among all scratch directories.
func TestCommonDisk(t *testing.T) {
	spec := newWorld(t).spec()
	spec.Limits.Disk = 8 << 20
	b := open(t, spec)
	want(t, b, map[string]string{
		"head -c 6000000 /dev/zero > /tmp/a; head -c 6000000 /dev/zero 2>/dev/null > /dev/shm/b; [ $(($(stat -c %s /tmp/a) + $(stat -c %s /dev/shm/b))) -lt 8500000 ] && echo bounded": "bounded",
		"ls -d /.scratch 2>/dev/null || echo gone": "gone",
	})
	_, err := b.Check(soon(t))
	check(t, err)
}

// TestCheckSeesWhatIsMissing breaks one promise at a time. A check that
// cannot fail would be worth nothing.
func TestCheckSeesWhatIsMissing(t *testing.T) {
	w := newWorld(t)
	w.write("open", "x")
	check(t, os.Mkdir(filepath.Join(w.repo, "dir"), 0o755))
	check(t, os.Chown(filepath.Join(w.repo, "dir"), w.id.UID, w.id.GID))
	b := open(t, w.spec()).(*box)
	good := b.spec
	in := func(p string) string { return filepath.Join(w.repo, p) }
	guard := func(g sandbox.Guard, p string) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) {
			s.Protect = append(good.Protect[:3:3], sandbox.Protection{Path: in(p), Guard: g})
		}
	}
	must := func(c sandbox.Check) func(*sandbox.Spec) {
		return func(s *sandbox.Spec) { s.Checks = []sandbox.Check{c} }
	}
	for _, c := range []struct {
		change func(*sandbox.Spec)
		want   string
	}{
		{func(*sandbox.Spec) {}, ""},
		{guard(sandbox.Pin, "dir"), "nothing keeps " + in("dir") + " from being renamed"},
		{guard(sandbox.Freeze, "open"), "opening " + in("open") + " for writing succeeded"},
		{guard(sandbox.Freeze, "dir"), "making something in " + in("dir") + " succeeded"},
		{guard(sandbox.HoldDir, "absent"), "making " + in("absent") + " succeeded"},
		{must(sandbox.Check{Kind: sandbox.MustNotOpen, Path: "/usr/bin/env"}), "opening /usr/bin/env succeeded"},
		{must(sandbox.Check{Kind: sandbox.MustNotWrite, Path: "/tmp"}), "making something in /tmp succeeded"},
		{must(sandbox.Check{Kind: sandbox.MustWrite, Path: "/usr"}), "read-only file system"},
		{must(sandbox.Check{Kind: sandbox.MustBeSame, Path: w.repo, Inode: 1}), "another directory"},
		{func(s *sandbox.Spec) { s.Proxy = "127.0.0.1:4" }, "connecting to the proxy"},
	} {
		b.spec = good
		c.change(&b.spec)
		b.tries = b.attacks()
		_, err := b.Check(soon(t))
		var broken *CheckError
		switch {
		case c.want == "" && err != nil:
			t.Errorf("the good one: %v", err)
		case c.want != "" && (!errors.As(err, &broken) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("got %v, want a CheckError with %q", err, c.want)
		}
	}
	left, err := filepath.Glob(in("*"))
	check(t, err)
	if len(left) != 3 { // and .git
		t.Errorf("the checks left something behind: %v", left)
	}
}

func TestB70_OrphansAreCollected(t *testing.T) {
	spec := newWorld(t).spec()
	spec.Limits.Processes = 4096
	b := open(t, spec)
	got, exit := sh(t, b, fmt.Sprintf(`i=0; while [ $i -lt %d ]; do (: &) ; i=$((i+1)); done
left() { set -- /proc/[0-9]*; echo $#; }
until [ "$(left)" -le 3 ]; do :; done; left`, kerneltest.Rounds(5000, 1000)))
	if exit.Code != 0 {
		t.Errorf("exit %d: %s", exit.Code, got)
	}
}

func TestProcessLimit(t *testing.T) {
	spec := newWorld(t).spec()
	spec.Limits.Processes = 20
	got, _ := sh(t, open(t, spec), `for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25; do sleep 60 & done; wait -n; echo all`)
	if strings.Contains(got, "all\n") && !strings.Contains(got, "annot fork") {
		t.Errorf("no limit: %q", got)
	}
}

// TestCommandsSignalEachOther: commands are of one session, each in a domain
// of its own.
func TestCommandsSignalEachOther(t *testing.T) {
	b := open(t, newWorld(t).spec())
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"sleep", "600"}}, sandbox.Stdio{})
	check(t, err)
	if out, exit := sh(t, b, "kill $(cat /proc/[0-9]*/stat | sed -n 's/ (sleep) .*//p')"); exit.Code != 0 {
		t.Fatal(out)
	}
	if exit, err := p.Wait(soon(t)); err != nil || exit.Signal != int(unix.SIGTERM) {
		t.Errorf("got %+v, %v", exit, err)
	}
	if out, exit := sh(t, b, "kill 1"); exit.Code == 0 {
		t.Errorf("a signal to the first process was accepted: %s", out)
	}
}

// TestRootSession: as user 0 without its rights; only a node of root has them.
func TestRootSession(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root")
	}
	w := newWorld(t)
	spec := w.spec()
	spec.Identity = sandbox.Identity{}
	check(t, filepath.WalkDir(w.repo, func(p string, _ os.DirEntry, err error) error { return errors.Join(err, os.Chown(p, 0, 0)) }))
	b := open(t, spec)
	facts, err := b.Check(soon(t))
	check(t, err)
	for _, f := range facts {
		if f.Name == "identity" && f.Strength != sandbox.Weaker {
			t.Errorf("said to be %s", f.Strength)
		}
	}
	want(t, b, map[string]string{
		"id -u": "0",
		"(echo x > /proc/sys/kernel/core_pattern) 2>&1 | sed 's/.*: //'": "Read-only file system",
		"(echo 1 > /proc/sys/kernel/panic) 2>&1 | sed 's/.*: //'":        "Read-only file system",
		"mount -t tmpfs none /tmp 2>/dev/null || echo no":                "no",
		"chown 1 /tmp 2>/dev/null || echo no":                            "no",
	})
}

// TestTheHostsDevicesStayAsTheyAre: a session of root owns what root owns. Each
// change is to what is there already.
func TestTheHostsDevicesStayAsTheyAre(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root")
	}
	w := newWorld(t)
	spec := w.spec()
	spec.Identity = sandbox.Identity{}
	b := open(t, spec)
	for _, d := range devices {
		want(t, b, map[string]string{
			"(chmod $(stat -c %a " + d + ") " + d + ") 2>&1 | sed 's/.*: //'": "Read-only file system",
			"(chown 0:0 " + d + ") 2>&1 | sed 's/.*: //'":                     "Read-only file system",
			"(touch -ha " + d + ") 2>&1 | sed 's/.*: //'":                     "Read-only file system",
		})
	}
	want(t, b, map[string]string{
		"echo x > /dev/null && head -c 3 /dev/zero | wc -c && (echo x > /dev/full) 2>/dev/null || echo full": "3\nfull",
		// Streams that nobody wants are the host's device too, by another mount.
		"(chmod 666 /proc/self/fd/0) 2>&1 | sed 's/.*: //'": "Read-only file system",
		// The mode of such a file is one for all process namespaces.
		"(chmod 444 /proc/version) 2>&1 | sed 's/.*: //'":                                      "Read-only file system",
		"(echo 500 > /proc/1/oom_score_adj) 2>/dev/null || echo no":                            "no",
		"cat /proc/kpageflags /proc/kpagecount /proc/slabinfo 2>/dev/null | head -c 8 | wc -c": "0",
	})
	file, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	check(t, err)
	defer file.Close()
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"chmod", "666", "/proc/self/fd/1"}}, sandbox.Stdio{Stdout: file})
	check(t, err)
	if exit, err := p.Wait(soon(t)); err != nil || exit.Code == 0 {
		t.Errorf("the mode of a device that was handed over: %+v, %v", exit, err)
	}
}

func TestTryTwiceUnderOneID(t *testing.T) {
	w := newWorld(t)
	spec := w.spec()
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: filepath.Join(w.repo, ".mojoup"), Guard: sandbox.HoldDir})
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: filepath.Join(w.dir, "missing"), Target: "/missing"})
	e := engine(t)
	_, err := e.Prepare(soon(t), spec)
	var stage *child.StageError
	if !errors.As(err, &stage) || stage.Stage != child.StageSource || stage.Errno != unix.ENOENT {
		t.Fatalf("got %v", err)
	}
	if got, want := err.Error(), "preparing sandbox "+spec.ID+": opening "+w.dir+"/missing: no such file or directory"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if _, err := os.Lstat(filepath.Join(w.repo, ".mojoup")); !os.IsNotExist(err) {
		t.Errorf("left behind: %v", err)
	}
	spec.Mounts = spec.Mounts[:len(spec.Mounts)-1]
	b, err := e.Prepare(soon(t), spec)
	check(t, err)
	check(t, b.Listener().Close())
	check(t, b.Remove(soon(t)))
}

// TestRefusedPaths: what could be changed by another name is not protected.
func TestRefusedPaths(t *testing.T) {
	w := newWorld(t)
	w.write("linked", "x")
	check(t, os.Link(filepath.Join(w.repo, "linked"), filepath.Join(w.repo, "other")))
	check(t, os.Symlink("linked", filepath.Join(w.repo, "symlink")))
	e := engine(t)
	for name, errno := range map[string]unix.Errno{"linked": unix.EMLINK, "symlink": unix.ELOOP} {
		spec := w.spec()
		spec.Protect = append(spec.Protect, sandbox.Protection{Path: filepath.Join(w.repo, name), Guard: sandbox.Freeze})
		_, err := e.Prepare(soon(t), spec)
		var hint interface{ Hint() string }
		if !errors.Is(err, errno) || !errors.As(err, &hint) || hint.Hint() == "" {
			t.Errorf("%s: %v, want %v with a hint", name, err, errno)
		}
	}
}

func TestSharedPlaceholder(t *testing.T) {
	w := newWorld(t)
	held := filepath.Join(w.repo, ".mojoup")
	file := filepath.Join(w.repo, ".git/commondir")
	guards := []sandbox.Protection{{Path: held, Guard: sandbox.HoldDir}, {Path: file, Guard: sandbox.HoldFile, Content: "."}}
	one, two := w.spec(), w.spec()
	two.ID += "b"
	one.Protect, two.Protect = append(one.Protect, guards...), append(two.Protect, guards...)
	e := engine(t)
	first, err := e.Prepare(soon(t), one)
	check(t, err)
	second := open(t, two)
	check(t, first.Listener().Close())
	check(t, first.Remove(soon(t)))
	want(t, second, map[string]string{
		"touch " + held + "/x 2>/dev/null || echo held":     "held",
		"(echo /x > " + file + ") 2>/dev/null || echo held": "held",
	})
	for _, u := range e.Undo(one) { // nor does a sweep take it from the other
		if did, err := e.Sweep(soon(t), u); err != nil || did != "" {
			t.Errorf("Sweep of %+v: %q, %v", u, did, err)
		}
	}
	check(t, second.Remove(soon(t)))
	for _, p := range []string{held, file} {
		if _, err := os.Lstat(p); !os.IsNotExist(err) {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestSweepLeavesWhatIsNotOurs(t *testing.T) {
	w := newWorld(t)
	e := engine(t)
	check(t, os.MkdirAll(filepath.Join(w.repo, "full/x"), 0o755))
	w.write("changed", "mine")
	check(t, os.Symlink(w.dir, filepath.Join(w.repo, "link")))
	check(t, os.Mkdir(filepath.Join(w.dir, "target"), 0o755))
	for _, u := range []sandbox.Undo{
		{Kind: undoDir, Path: filepath.Join(w.repo, "full")},
		{Kind: undoFile, Path: filepath.Join(w.repo, "changed"), Content: "."},
		{Kind: undoDir, Path: filepath.Join(w.repo, "link/target")},
		{Kind: undoDir, Path: filepath.Join(w.repo, "absent")},
		{Kind: undoFile, Path: filepath.Join(w.repo, "absent/x")},
		{Kind: undoHelper, ID: "no-such"},
	} {
		if did, err := e.Sweep(soon(t), u); did != "" || err != nil {
			t.Errorf("%+v: %q, %v", u, did, err)
		}
	}
	for _, p := range []string{"full/x", "changed", "../target"} {
		if _, err := os.Lstat(filepath.Join(w.repo, p)); err != nil {
			t.Error(err)
		}
	}
	for _, u := range []sandbox.Undo{{Kind: "other"}, {Kind: undoDir, Path: "x"}, {Kind: undoHelper, ID: "A B"}, {Kind: undoHelper, ID: "a", Content: "x"}} {
		if did, err := e.Sweep(soon(t), u); err == nil {
			t.Errorf("%+v was accepted: %q", u, did)
		}
	}
}

// asNode makes the test's program a node with one sandbox, to be killed.
const asNode = "MOJOUP_TEST_NODE"

func beNode() int {
	e, err := New(Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	w := &world{dir: os.Getenv(asNode), repo: filepath.Join(os.Getenv(asNode), "repo"), id: sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}}
	if os.Geteuid() == 0 {
		w.id = sandbox.Identity{UID: ordinary, GID: ordinary}
	}
	ctx := context.Background()
	b, err := e.Prepare(ctx, killedSpec(w))
	if err != nil {
		fmt.Println(err)
		return 1
	}
	p, err := b.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", "setsid sleep 600 & echo ready; sleep 600"}}, sandbox.Stdio{Stdout: os.Stdout})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	_, _ = p.Wait(ctx)
	return 0
}

func killedSpec(w *world) sandbox.Spec {
	s := w.spec()
	s.Protect = append(s.Protect, sandbox.Protection{Path: filepath.Join(w.repo, ".mojoup"), Guard: sandbox.HoldDir})
	s.Limits = sandbox.Limits{Memory: 256 << 20, Processes: 64, CPUs: 1}
	return s
}

var endedSome = regexp.MustCompile(`^ended [1-4] processes of`)

// TestKilledNodeLeavesNothing kills the node's process at once, then the
// outer process of the helper too.
func TestKilledNodeLeavesNothing(t *testing.T) {
	for _, also := range []string{"", "helper"} {
		w := newWorld(t)
		e := engine(t)
		spec := killedSpec(w)
		node := exec.Command("/proc/self/exe")
		node.Env = append(os.Environ(), asNode+"="+w.dir)
		out, err := node.StdoutPipe()
		check(t, err)
		check(t, node.Start())
		t.Cleanup(func() { _ = node.Process.Kill() }) // else its output would be waited for
		ready := make([]byte, 6)
		if n, err := out.Read(ready); string(ready[:n]) != "ready\n" {
			t.Fatalf("%q, %v", ready[:n], err)
		}
		pids, err := helpersOf(spec.ID, spec.Identity.UID)
		check(t, err)
		if len(pids) != 2 {
			t.Fatalf("helpers: %v", pids)
		}
		if also != "" {
			check(t, unix.Kill(pids[0], unix.SIGKILL))
		}
		check(t, node.Process.Kill())
		_ = node.Wait()
		ctx := soon(t)
		for {
			pids, err := helpersOf(spec.ID, spec.Identity.UID)
			check(t, err)
			if len(pids) == 0 {
				break
			}
			select {
			case <-ctx.Done():
				t.Fatalf("still there: %v", pids)
			case <-time.After(5 * time.Millisecond):
			}
		}
		var said, want []string
		for _, dir := range e.groups.Paths(spec.ID, wanted(spec.Limits)) {
			want = append(want, "removed the control group "+dir)
		}
		want = append(want, "removed the placeholder "+filepath.Join(w.repo, ".mojoup"))
		for _, u := range e.Undo(spec) {
			did, err := e.Sweep(ctx, u)
			check(t, err)
			if did != "" { // some may be dying still, of the node's end
				said = append(said, endedSome.ReplaceAllString(did, "removed"))
			}
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("sweeping said (-want +got):\n%s", diff)
		}
		for _, dir := range e.groups.Paths(spec.ID, wanted(spec.Limits)) {
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	}
}

// TestSweepEndsAHelper ends one whose node has not noticed.
func TestSweepEndsAHelper(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	did, err := engine(t).Sweep(soon(t), sandbox.Undo{Kind: undoHelper, ID: b.spec.ID, Content: strconv.Itoa(b.spec.Identity.UID)})
	check(t, err)
	if !strings.HasPrefix(did, "ended ") {
		t.Errorf("said %q", did)
	}
	select {
	case <-b.Done():
	case <-soon(t).Done():
		t.Error("the sandbox lives")
	}
}

// TestImpostorIsNotSwept: a session names a process of its own like a helper.
func TestImpostorIsNotSwept(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	id := fmt.Sprintf("6%d", os.Getpid())
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"bash", "-c", "exec -a mojoup-child sleep " + id}}, sandbox.Stdio{})
	check(t, err)
	for ctx := soon(t); !runs(t, "mojoup-child\x00"+id+"\x00"); {
		check(t, ctx.Err())
	}
	pids, err := helpersOf(id, b.spec.Identity.UID)
	check(t, err)
	if len(pids) != 0 {
		t.Errorf("took %v for helpers", pids)
	}
	check(t, p.Signal(unix.SIGKILL))
}

// TestForeignImpostorIsNotSwept: another user of the machine names a program
// like a helper. It is neither ended nor in the way.
func TestForeignImpostorIsNotSwept(t *testing.T) {
	id, uid := fmt.Sprintf("7%d", os.Getpid()), os.Getuid()
	impostor := exec.Command("bash", "-c", "exec -a mojoup-child sleep "+id)
	if os.Geteuid() == 0 {
		uid = ordinary
		impostor.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: ordinary + 1, Gid: ordinary + 1}}
	} else {
		uid++ // as if it were the other one's
	}
	check(t, impostor.Start())
	t.Cleanup(func() { _ = impostor.Process.Kill(); _ = impostor.Wait() })
	for ctx := soon(t); !runs(t, "mojoup-child\x00"+id+"\x00"); {
		check(t, ctx.Err())
	}
	if did, err := engine(t).Sweep(soon(t), sandbox.Undo{Kind: undoHelper, ID: id, Content: strconv.Itoa(uid)}); did != "" || err != nil {
		t.Errorf("%q, %v", did, err)
	}
	check(t, impostor.Process.Signal(unix.Signal(0)))
	// And what is ours is found by the same line.
	if !isHelper(impostor.Process.Pid, id, mine(t, impostor.Process.Pid)) {
		t.Error("the line and the user would not have been enough: this test proves nothing")
	}
}

// mine is whose a process is.
func mine(t *testing.T, pid int) int {
	t.Helper()
	var stat unix.Stat_t
	check(t, unix.Stat(fmt.Sprintf("/proc/%d", pid), &stat))
	return int(stat.Uid)
}

// runs reports whether some process has exactly this command line.
func runs(t *testing.T, line string) bool {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cmdline")
	check(t, err)
	for _, f := range all {
		if got, err := os.ReadFile(f); err == nil && string(got) == line {
			return true
		}
	}
	return false
}

// TestDebuggers: a command may trace its own children.
func TestDebuggers(t *testing.T) {
	b := open(t, newWorld(t).spec())
	for _, script := range []string{
		"strace -f -o /dev/null sh -c 'exit 7'",
		"gdb -batch -ex run -ex 'info program' --args sh -c 'exit 7' >/dev/null 2>&1 && exit 7",
	} {
		name, _, _ := strings.Cut(script, " ")
		if _, err := exec.LookPath(name); err != nil {
			t.Logf("no %s here", name)
			continue
		}
		if out, exit := sh(t, b, script); exit.Code != 7 {
			t.Errorf("%s: exit %d: %s", name, exit.Code, out)
		}
	}
}

// TestNoDescriptorStays: neither the node nor pid 1 keeps what a command had.
func TestNoDescriptorStays(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	pids, err := helpersOf(b.spec.ID, b.spec.Identity.UID)
	check(t, err)
	count := func() []int {
		var all []int
		for _, pid := range append(pids, os.Getpid()) {
			names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
			if err != nil && os.Geteuid() == 0 {
				t.Fatal(err) // the helper's are closed to an ordinary user
			}
			all = append(all, len(names))
		}
		return all
	}
	once := func() {
		sh(t, b, "echo x")
		p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"true"}, TTY: &sandbox.Size{Columns: 1, Rows: 1}}, sandbox.Stdio{})
		check(t, err)
		_, err = p.Wait(soon(t))
		check(t, err)
		check(t, p.Terminal().Close())
		_, err = b.Exec(soon(t), sandbox.Command{Argv: []string{"no-such-program"}}, sandbox.Stdio{Stdin: strings.NewReader("x")})
		if err == nil {
			t.Fatal("started")
		}
		_, err = b.Check(soon(t))
		check(t, err)
	}
	once()
	before := count()
	for range 10 {
		once()
	}
	after := count()
	// Connections of the check's proxy close a little later.
	grown := func() bool {
		return slices.ContainsFunc([]int{0, 1, 2}, func(i int) bool { return after[i] > before[i] })
	}
	for deadline := soon(t); grown() && deadline.Err() == nil; after = count() {
	}
	if grown() {
		t.Errorf("descriptors of helper, first process and node: %d before, %d after", before, after)
	}
}
