//go:build cgo

package native

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// told are the refusals of a sandbox by what was tried, call and answer.
func told(b sandbox.Sandbox) map[string]int64 {
	return toldOf(b, func(sandbox.Refusal) string { return "" })
}

// toldBy are the same by program too.
func toldBy(b sandbox.Sandbox) map[string]int64 {
	return toldOf(b, func(r sandbox.Refusal) string { return r.Program + ": " })
}

func toldOf(b sandbox.Sandbox, who func(sandbox.Refusal) string) map[string]int64 {
	out := map[string]int64{}
	list, _ := b.(sandbox.Teller).Refusals()
	for _, r := range list {
		out[fmt.Sprintf("%s%s (%s): %s", who(r), r.Tried, r.Call, r.Answer)] += r.Count
	}
	return out
}

// perl is a script that makes a system call by its number and says how it ended.
func perl(script string) sandbox.Command {
	return sandbox.Command{Argv: []string{"perl", "-e", script}}
}

var unshareUser = fmt.Sprintf("syscall(%d, %d)", unix.SYS_UNSHARE, unix.CLONE_NEWUSER)

// TestRefusalsAreNamed by whoever makes them: the session's command, a further
// one with a terminal, their children and threads. What is not told is not.
func TestRefusalsAreNamed(t *testing.T) {
	b := open(t, newWorld(t).spec())
	if _, err := b.Check(soon(t)); err != nil {
		t.Fatal(err)
	}
	if got := told(b); len(got) != 0 {
		t.Errorf("the self-check is told: %v", got)
	}
	_, news := b.(sandbox.Teller).Refusals()
	for _, script := range []string{"unshare -U true", "sh -c 'unshare -n true' & wait", "exec 3<>/dev/tty"} {
		sh(t, b, script)
	}
	<-news
	p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"unshare", "-U", "true"}, TTY: &sandbox.Size{Columns: 80, Rows: 24}}, sandbox.Stdio{})
	check(t, err)
	defer p.Terminal().Close()
	if exit, err := p.Wait(soon(t)); err != nil || exit.Code == 0 {
		t.Errorf("unshare: %+v, %v", exit, err)
	}
	odd := fmt.Sprintf(`$0 = "a\e[31m\n\xffb"; %s; syscall(%d, 1, 1, 262); syscall(%d, 0); print $!+0`, unshareUser, unix.SYS_SOCKET, unix.SYS_OPENAT2)
	if out, _ := sh(t, b, "perl -e '"+odd+"'"); out != "38" {
		t.Errorf("openat2: %s", out)
	}
	want := map[string]int64{
		"unshare: make a user namespace (unshare): EPERM":    2,
		"unshare: make a network namespace (unshare): EPERM": 1,
		"a?[31m??b: make a user namespace (unshare): EPERM":  1,
	}
	got := toldBy(b)
	for name, n := range want {
		if got[name] != n {
			t.Errorf("%s: %d times, want %d", name, got[name], n)
		}
		delete(got, name)
	}
	if len(got) > 0 {
		t.Errorf("told besides: %v", got)
	}
	list, _ := b.(sandbox.Teller).Refusals()
	first := list[0]
	if first.PID < 2 || first.Last.Before(first.First) || time.Since(first.First) > time.Minute {
		t.Errorf("%+v", first)
	}
	check(t, b.Remove(soon(t)))
	if after, _ := b.(sandbox.Teller).Refusals(); !slices.Equal(after, list) {
		t.Errorf("after the end: %v", after)
	}
}

// TestRefusalsAreBounded: programs may have any number of names.
func TestRefusalsAreBounded(t *testing.T) {
	b := open(t, newWorld(t).spec())
	sh(t, b, fmt.Sprintf(`perl -e 'for (1..300) { $0 = "n$_"; %s; syscall(%d, 1, 0) }'`, unshareUser, unix.SYS_KEYCTL))
	list, _ := b.(sandbox.Teller).Refusals()
	if len(list) != mostKinds+2 {
		t.Errorf("%d kinds", len(list))
	}
	sum := int64(0)
	for _, r := range list {
		sum += r.Count
	}
	if rest := list[len(list)-1]; sum != 600 || rest.Program != "" || rest.Count != 300-mostKinds/2 {
		t.Errorf("%d calls in all; the last kind: %+v", sum, rest)
	}
}

// TestFloodOfRefusedCalls: who floods waits, a neighbour does not, the node's
// time is hardly taken, and the sandbox ends as quickly as any.
func TestFloodOfRefusedCalls(t *testing.T) {
	t.Parallel()
	e := engine(t)
	flooding, calm := openIn(t, e, newWorld(t).spec()), openIn(t, e, newWorld(t).spec())
	said, theirs, err := os.Pipe()
	check(t, err)
	defer said.Close()
	began := time.Now()
	for range 8 {
		_, err := flooding.Exec(soon(t), perl(fmt.Sprintf("$| = 1; for (my $n = 1;; $n++) { %s; print 1 if $n %% 50 == 0 }", unshareUser)), sandbox.Stdio{Stdout: theirs})
		check(t, err)
	}
	theirs.Close()
	pass := func(calls int) {
		_, err := io.ReadFull(said, make([]byte, calls/50))
		check(t, err)
	}
	pass(2 * burst) // beyond what is answered at once
	before, from := cpuTime(t), time.Now()
	pass(500)
	spent, within := cpuTime(t)-before, time.Since(from)
	// A hundred refusals of the neighbour's, with its own start.
	from = time.Now()
	sh(t, calm, fmt.Sprintf("perl -e '%s for 1..100'", unshareUser))
	took := time.Since(from)
	if took > 20*time.Second {
		t.Errorf("a neighbour's hundred refusals took %v", took)
	}
	list, _ := flooding.(sandbox.Teller).Refusals()
	ran := time.Since(began)
	if most := burst + int64(ran.Seconds()*steady) + 2*handful; list[0].Count > most {
		t.Errorf("%d calls answered in %v, at most %d were to be", list[0].Count, ran, most)
	}
	t.Logf("%d refusals in %v; the node used %v of a processor in %v of it; a neighbour's hundred took %v", list[0].Count, ran, spent, within, took)
	from = time.Now()
	check(t, flooding.Remove(soon(t)))
	if took := time.Since(from); took > 20*time.Second {
		t.Errorf("Remove took %v", took)
	}
	if n := e.floods.Load(); n != 0 {
		t.Errorf("%d still flood", n)
	}
}

// cpuTime is the processor time of this process.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u unix.Rusage
	check(t, unix.Getrusage(unix.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestPace is the arithmetic of waiting.
func TestPace(t *testing.T) {
	var floods atomic.Int64
	now := time.Unix(1000, 0)
	p := pace{floods: &floods, left: burst}
	for i := range burst {
		if d := p.next(now); d != 0 {
			t.Fatalf("call %d waits %v", i, d)
		}
	}
	if d := p.next(now); d != handful*time.Second/steady || floods.Load() != 1 {
		t.Errorf("waits %v, %d flood", d, floods.Load())
	}
	floods.Store(100) // all of them together
	p.left = -1
	if d := p.next(now); d != handful*100*time.Second/together {
		t.Errorf("waits %v", d)
	}
	floods.Store(1)
	if d := p.next(now.Add(time.Second)); d != 0 || floods.Load() != 0 {
		t.Errorf("rested, it waits %v, and %d flood", d, floods.Load())
	}
}

// TestNobodyAnswers: a node that has died answers nobody, and nobody waits.
func TestNobodyAnswers(t *testing.T) {
	e := engine(t)
	b := openIn(t, e, newWorld(t).spec()).(*box)
	in, feed, err := os.Pipe()
	check(t, err)
	defer feed.Close()
	var out strings.Builder
	p, err := b.Exec(soon(t), perl(fmt.Sprintf(`<STDIN>; %s; print $!+0, " "; <STDIN>; %s; print $!+0`, unshareUser, unshareUser)), sandbox.Stdio{Stdin: in, Stdout: &out})
	check(t, err)
	in.Close()
	check(t, b.notifier.Close()) // as the kernel does for a process that ends
	for range 2 {
		_, err = feed.WriteString("\n")
		check(t, err)
	}
	if _, err := p.Wait(soon(t)); err != nil || out.String() != "38 38" {
		t.Errorf("said %q, %v; want ENOSYS twice", out.String(), err)
	}
}

// TestSignalsDuringARefusal: they are delivered, and what was refused stays
// refused and is counted once each.
func TestSignalsDuringARefusal(t *testing.T) {
	b := open(t, newWorld(t).spec())
	// perl's own handlers have the kernel restart nothing; sigaction's SA_RESTART does.
	script := fmt.Sprintf(`use POSIX; use Time::HiRes "setitimer"; my ($ticks, %%errno) = (0);
		my $on = POSIX::SigAction->new(sub { $ticks++ }, POSIX::SigSet->new, SA_RESTART); $on->safe(1); POSIX::sigaction(SIGALRM, $on);
		setitimer(Time::HiRes::ITIMER_REAL, 0.0005, 0.0005);
		for (1..400) { %s; $errno{$!+0}++ } setitimer(Time::HiRes::ITIMER_REAL, 0);
		print join(" ", map { "$_:$errno{$_}" } sort keys %%errno), $ticks > 3 ? "" : " no signals"`, unshareUser)
	out, _ := sh(t, b, "perl -e '"+script+"'")
	if out != "1:400" {
		t.Errorf("errnos %s, want 1:400", out)
	}
	if got := toldBy(b)["perl: make a user namespace (unshare): EPERM"]; got != 400 {
		t.Errorf("%d counted", got)
	}
}

// TestAnotherListenerAbove is about a node that itself runs below a program
// that listens to its filter, of which the kernel allows one: calls are refused
// as ever, and the facts say that nobody is told.
func TestAnotherListenerAbove(t *testing.T) {
	e := engine(t)
	w := newWorld(t)
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // for good: the filter stays with the thread
		done <- func() error {
			listener, err := listenAbove()
			if err != nil {
				return err
			}
			defer unix.Close(listener)
			b, err := e.Prepare(soon(t), w.spec())
			if err != nil {
				return err
			}
			defer b.Remove(context.WithoutCancel(t.Context()))
			defer b.Listener().Close()
			go serve(b.Listener())
			facts, err := b.Check(soon(t))
			if err != nil {
				return err
			}
			if out, _ := sh(t, b, "perl -e '"+unshareUser+"; print $!+0'"); out != "1" {
				return fmt.Errorf("unshare: errno %s", out)
			}
			if got := told(b); len(got) > 0 {
				return fmt.Errorf("told: %v", got)
			}
			i := slices.IndexFunc(facts, func(f sandbox.Fact) bool { return f.Name == "refused calls" })
			if i < 0 || facts[i].Strength != sandbox.Weaker {
				return fmt.Errorf("facts: %v", facts)
			}
			return nil
		}()
	}()
	check(t, <-done)
}

// listenAbove lets this thread, and what it starts, have a filter with a
// listener.
func listenAbove() (int, error) {
	allow := []unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}
	program := unix.SockFprog{Len: 1, Filter: &allow[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return -1, err
	}
	fd, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_NEW_LISTENER, uintptr(unsafe.Pointer(&program)))
	if errno != 0 {
		return -1, errno
	}
	return int(fd), nil
}

// TestDebuggersDoNotFlood: what strace and gdb ask a thousand times in a second
// is not told, and so not slowed down.
func TestDebuggersDoNotFlood(t *testing.T) {
	if _, err := exec.LookPath("strace"); err != nil {
		t.Skip("wanted strace, found none")
	}
	b := open(t, newWorld(t).spec())
	sh(t, b, "strace -f -o /dev/null sh -c 'ls / >/dev/null; true | cat'")
	for name := range toldBy(b) {
		if !strings.Contains(name, "strace") && !strings.Contains(name, "sh:") {
			continue
		}
		t.Errorf("told: %s", name)
	}
}

// TestNotifierEnds: nothing waits for calls of a sandbox that has ended.
func TestNotifierEnds(t *testing.T) {
	e := engine(t)
	b := openIn(t, e, newWorld(t).spec()).(*box)
	check(t, b.helper.Kill(soon(t)))
	idle := make(chan struct{})
	go func() { b.owned.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-soon(t).Done():
		t.Fatal("the teller still waits")
	}
	if c, err := b.notifier.Next(); err == nil {
		t.Errorf("Next: %+v", c)
	}
	var none child.Notified
	if b.notifier.Waits(none) {
		t.Error("a closed notifier knows a call")
	}
}

// TestLandlockScopes is about a socket of the host's network that a command was
// handed: no namespace stands between it and the host's abstract sockets.
func TestLandlockScopes(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	if b.machine.abi < 6 {
		kerneltest.Lacking(t, "Landlock ABI 6, which has scopes", b.machine.abi)
	}
	name := "mojoup-scope-" + b.spec.ID
	l, err := net.Listen("unix", "@"+name)
	check(t, err)
	defer l.Close()
	outside, err := net.Dial("unix", "@"+name) // anybody on the host may
	check(t, err)
	outside.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	check(t, err)
	socket := os.NewFile(uintptr(fd), "socket")
	defer socket.Close()
	var out strings.Builder
	script := fmt.Sprintf(`my $to = pack("S a*", 1, "\0%s"); syscall(%d, 0, $to, length $to); print $!+0`, name, unix.SYS_CONNECT)
	p, err := b.Exec(soon(t), perl(script), sandbox.Stdio{Stdin: socket, Stdout: &out})
	check(t, err)
	if _, err := p.Wait(soon(t)); err != nil || out.String() != "1" {
		t.Errorf("connecting: errno %s, %v; want EPERM", out.String(), err)
	}
}
