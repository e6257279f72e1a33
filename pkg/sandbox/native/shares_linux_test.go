package native

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// asSender makes the test's program one that has as many descriptors under way
// as the kernel allows, says how many, and waits for the end of its input.
const asSender = "MOJOUP_TEST_SENDER"

func beSender() int {
	sent, err := sendAll()
	fmt.Println(sent, unix.ErrnoName(err))
	_, _ = io.Copy(io.Discard, os.Stdin)
	return 0
}

// sendAll opens a pair whenever one is full, and keeps no end to itself.
func sendAll() (sent int, refusal syscall.Errno) {
	const each = 64
	for sent < 1<<17 {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return sent, err.(syscall.Errno)
		}
		fds := make([]int, each)
		for i := range fds {
			fds[i] = pair[1]
		}
		for err == nil {
			if err = unix.Sendmsg(pair[0], []byte{0}, unix.UnixRights(fds...), nil, 0); err == nil {
				sent += each
			}
		}
		if !errors.Is(err, unix.EAGAIN) {
			return sent, err.(syscall.Errno)
		}
	}
	return sent, 0
}

// sender starts one in a sandbox and returns what it said. It stays until its
// sandbox ends.
func sender(t *testing.T, e *Engine) (sent int, refusal string) {
	t.Helper()
	w := newWorld(t)
	program := filepath.Join(w.dir, "native.test")
	check(t, copyProgram("/proc/self/exe", program))
	spec := w.spec()
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: program, Target: "/opt/sender"})
	b := openBy(t, e, spec)
	in, feed, err := os.Pipe()
	check(t, err)
	out, said, err := os.Pipe()
	check(t, err)
	t.Cleanup(func() { in.Close(); feed.Close(); out.Close() })
	_, err = b.Exec(soon(t), sandbox.Command{Argv: []string{"/opt/sender"}, Env: []string{asSender + "=1"}}, sandbox.Stdio{Stdin: in, Stdout: said})
	check(t, err)
	said.Close()
	if _, err := fmt.Fscan(out, &sent, &refusal); err != nil {
		t.Fatal(err)
	}
	return sent, refusal
}

// TestDescriptorsUnderWay: how many may be is counted per user of the host and
// compared with the sender's own limit. A session that has all it can get
// neither stops the user's other programs that may have as many as the node,
// nor keeps the node from starting sessions.
func TestDescriptorsUnderWay(t *testing.T) {
	e := engine(t)
	sent, refusal := sender(t, e)
	t.Logf("%d under way, then %s", sent, refusal)
	// One more than the limit is let through, with all that travels with it.
	if most := int(e.machine.shares.usual) + 256; sent > most || refusal != "ETOOMANYREFS" {
		t.Errorf("%d descriptors were under way, then %s: want at most %d, then ETOOMANYREFS", sent, refusal, most)
	}
	// Another session of the same user: its first process sends a terminal.
	b := openBy(t, e, newWorld(t).spec())
	if out, exit := sh(t, b, "echo well"); out != "well\n" || exit.Code != 0 {
		t.Errorf("a command of another session: %q, %+v", out, exit)
	}
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"true"}, TTY: &sandbox.Size{Columns: 80, Rows: 24}}, sandbox.Stdio{})
	check(t, err)
	if p.Terminal() == nil {
		t.Fatal("no terminal came")
	}
	defer p.Terminal().Close()
	if exit, err := p.Wait(soon(t)); err != nil || exit.Code != 0 {
		t.Errorf("a command with a terminal: %+v, %v", exit, err)
	}
}

// TestSharesLeaveSomething: two sessions that have all they can get leave the
// user's other programs a part of each account.
func TestSharesLeaveSomething(t *testing.T) {
	own := findShares()
	for name, c := range map[string]struct{ got, most uint64 }{
		"descriptors":                {own.files, hardLimit(t, unix.RLIMIT_NOFILE) / 2},
		"usual descriptors":          {own.usual, min(4096, own.files)},
		"processes":                  {uint64(own.processes), hardLimit(t, unix.RLIMIT_NPROC) / 3},
		"pending signals":            {own.signals, hardLimit(t, unix.RLIMIT_SIGPENDING) / 3},
		"bytes of message queues":    {own.queues, hardLimit(t, unix.RLIMIT_MSGQUEUE) / 3},
		"watches of inotify":         {own.watches, switchValue(t, "max_inotify_watches") / 3},
		"instances of inotify":       {own.watchers, switchValue(t, "max_inotify_instances") / 3},
		"bytes of scratch, together": {uint64(own.scratch), 4 << 30},
	} {
		if c.got == 0 || c.got > c.most {
			t.Errorf("%s: %d, want 1 to %d", name, c.got, c.most)
		}
	}
	b := open(t, newWorld(t).spec())
	want(t, b, map[string]string{
		"cat /proc/sys/user/max_inotify_watches /proc/sys/user/max_inotify_instances": fmt.Sprintf("%d\n%d", own.watches, own.watchers),
		"ulimit -n; ulimit -Hn": fmt.Sprintf("%d\n%d", own.usual, own.usual),
		`awk '/^Max pending/ {print $(NF-1)} /^Max msgqueue/ {print $(NF-1)}' /proc/self/limits`: fmt.Sprintf("%d\n%d", own.signals, own.queues),
	})
}

func hardLimit(t *testing.T, resource int) uint64 {
	t.Helper()
	var now unix.Rlimit
	check(t, unix.Getrlimit(resource, &now))
	return now.Max
}

func switchValue(t *testing.T, name string) uint64 {
	t.Helper()
	text, err := os.ReadFile("/proc/sys/user/" + name)
	check(t, err)
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	check(t, err)
	return n
}

// TestLimitsThatNobodyAskedFor are said, and hold.
func TestLimitsThatNobodyAskedFor(t *testing.T) {
	e := engine(t)
	e.machine.shares.processes, e.machine.shares.scratch = 30, 8*mib
	b := openBy(t, e, newWorld(t).spec())
	wantFact(t, b, "process limit", sandbox.Held, "30 processes and threads", "the usual number")
	wantFact(t, b, "open files limit", sandbox.Held, fmt.Sprint(e.machine.shares.usual))
	wantFact(t, b, "disk limit", sandbox.Weaker, "8 MiB of scratch together")
	if _, exit := sh(t, b, "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done"); exit.Code == 0 {
		t.Error("40 processes were started")
	}
	if err := b.Remove(soon(t)); err != nil {
		t.Error(err)
	}
	b = openBy(t, e, newWorld(t).spec())
	if out, exit := sh(t, b, "head -c 9000000 /dev/zero > /tmp/big; stat -c %s /tmp/big"); exit.Code != 0 || strings.Contains(out, "9000000") {
		t.Errorf("9 MB of scratch: %q, %+v", out, exit)
	}
}

// TestTooManyFilesWereAskedFor: with as many as the node itself a session could
// keep it from sending.
func TestTooManyFilesWereAskedFor(t *testing.T) {
	e := engine(t)
	e.machine.shares.files = 500
	spec := newWorld(t).spec()
	spec.Limits.Files = 900
	b := openBy(t, e, spec)
	wantFact(t, b, "open files limit", sandbox.Held, "500 in each process", "900 would be more than half")
	want(t, b, map[string]string{"ulimit -Hn": "500"})
}

// TestUser0HasAUsualProcessLimit, by its control group: RLIMIT_NPROC does not
// bind that user.
func TestUser0HasAUsualProcessLimit(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root")
	}
	eachMeans(t, func(t *testing.T, e *Engine) {
		e.machine.shares.processes = 30
		w := newWorld(t)
		check(t, filepath.WalkDir(w.repo, func(p string, _ os.DirEntry, err error) error { return errors.Join(err, os.Chown(p, 0, 0)) }))
		spec := w.spec()
		spec.Identity = sandbox.Identity{}
		b := openBy(t, e, spec)
		if !e.groups.Has(cgroup.Processes) {
			wantFact(t, b, "process limit", sandbox.Absent, "exempts user 0")
			return
		}
		wantFact(t, b, "process limit", sandbox.Held, "30 processes", "control group")
		if _, exit := sh(t, b, "i=0; while [ $i -lt 40 ]; do sleep 600 & i=$((i+1)); done"); exit.Code == 0 {
			t.Error("40 processes were started")
		}
		dirs := e.groups.Paths(spec.ID, wants(spec))
		check(t, b.Remove(soon(t)))
		for _, dir := range dirs {
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("%s: %v", dir, err)
			}
		}
		if len(dirs) == 0 {
			t.Error("its group is not written down")
		}
	})
}

// TestForkBombWithoutAPolicy: nobody has asked for a limit, and the bomb still
// ends at one of its own.
func TestForkBombWithoutAPolicy(t *testing.T) {
	kerneltest.Long(t)
	e := engine(t)
	neighbour := openBy(t, e, newWorld(t).spec())
	alone := latency(t, neighbour)
	bomb := openBy(t, e, newWorld(t).spec())
	_, err := bomb.Exec(soon(t), sandbox.Command{Argv: []string{"bash", "-c", ":(){ :|:& };:; wait; sleep 600"}}, sandbox.Stdio{})
	check(t, err)
	threads := 0
	eventually(t, func() bool {
		threads = 0
		for _, p := range processes(bomb.helper.PID()) {
			threads += p.threads
		}
		return threads > e.machine.shares.processes/2
	})
	under := latency(t, neighbour)
	t.Logf("%d processes; start and end of a small command, p95: %v alone, %v beside them", threads, alone, under)
	if threads > e.machine.shares.processes {
		t.Errorf("%d processes, more than the usual %d", threads, e.machine.shares.processes)
	}
	check(t, bomb.Remove(soon(t)))
}
