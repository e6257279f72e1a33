//go:build cgo

package native

import (
	"fmt"
	"maps"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// TestEveryRefusal makes each system call of the table from inside, in a way
// that its row refuses, and wants that it is told or not as the row says.
func TestEveryRefusal(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	b.unlooked(soon(t)) // what is tried here is to be told
	var probes []child.Probe
	var rows []string
	var answers []syscall.Errno
	named := map[string]int64{} // by call and what was tried, like told
	for _, r := range refusals() {
		for _, name := range r.calls {
			nr, err := number(name)
			check(t, err)
			if nr < 0 {
				continue
			}
			values := [6]uint64{}
			for _, c := range r.when {
				values[c.arg] |= c.value
				if c.another {
					values[c.arg] ^= 1
				}
			}
			var args []child.Arg
			for _, v := range values {
				args = append(args, child.Number(int(v)))
			}
			probes = append(probes, child.Probe{Number: uintptr(nr), Args: args})
			rows, answers = append(rows, fmt.Sprintf("%s%v", name, values)), append(answers, r.answer)
			key := fmt.Sprintf("%s (%s): %s", r.tried, name, unix.ErrnoName(r.answer))
			if r.tried != untold {
				named[key]++
			}
			if len(r.when) > 0 && r.when[0].mask&low32 == low32 { // a high bit changes nothing
				args[r.when[0].arg] = child.Number(int(values[r.when[0].arg] | 1<<32))
				probes = append(probes, child.Probe{Number: uintptr(nr), Args: args})
				rows, answers = append(rows, "high bit in "+rows[len(rows)-1]), append(answers, r.answer)
				if r.tried != untold {
					named[key]++
				}
			}
		}
	}
	for _, n := range []uintptr{newest + 1, newest + 100, 0x3fffffff} {
		probes, rows, answers = append(probes, child.Probe{Number: n}), append(rows, fmt.Sprint("call ", n)), append(answers, unix.ENOSYS)
	}
	found, err := b.helper.Probe(soon(t), probes)
	check(t, err)
	if len(found) < 100 {
		t.Fatalf("only %d attempts", len(found))
	}
	if got := told(b); !maps.Equal(got, named) {
		t.Errorf("told (-want +got):\n%s", cmp.Diff(named, got))
	}
	for i, f := range found {
		if f.Errno != answers[i] {
			t.Errorf("%s: %v, want %v", rows[i], f.Errno, answers[i])
		}
	}
}

// TestWantedCalls are neighbours of refused ones that programs need.
func TestWantedCalls(t *testing.T) {
	b := open(t, newWorld(t).spec()).(*box)
	n := child.Number
	calls := map[string]child.Probe{
		"question of personality":            {Number: unix.SYS_PERSONALITY, Args: []child.Arg{n(0xffffffff)}},
		"no address randomising":             {Number: unix.SYS_PERSONALITY, Args: []child.Arg{n(0x40000)}},
		"route socket":                       {Number: unix.SYS_SOCKET, Args: []child.Arg{n(16), n(3), n(0)}},
		"UNIX socket":                        {Number: unix.SYS_SOCKET, Args: []child.Arg{n(1), n(1), n(0)}},
		"IPv6 socket":                        {Number: unix.SYS_SOCKET, Args: []child.Arg{n(10), n(1), n(0)}},
		"signal to oneself":                  {Number: unix.SYS_KILL, Args: []child.Arg{n(0), n(0)}},
		"limits of oneself":                  {Number: unix.SYS_PRLIMIT64, Args: []child.Arg{n(0), n(unix.RLIMIT_CORE), n(0), child.Buffer(16)}},
		"processors of oneself":              {Number: unix.SYS_SCHED_SETAFFINITY, Args: []child.Arg{n(0), n(8), child.Data([]byte{255, 0, 0, 0, 0, 0, 0, 0})}},
		"priority of oneself":                {Number: unix.SYS_SETPRIORITY, Args: []child.Arg{n(0), n(0), n(19)}},
		"UNIX pair":                          {Number: unix.SYS_SOCKETPAIR, Args: []child.Arg{n(1), n(1), n(0), child.Buffer(8)}},
		"new file":                           {Number: unix.SYS_OPENAT, Args: []child.Arg{n(unix.AT_FDCWD), child.Path("/tmp/new"), n(unix.O_CREAT | unix.O_WRONLY), n(0o755)}},
		"mode with set-uid but nothing made": {Number: unix.SYS_OPENAT, Args: []child.Arg{n(unix.AT_FDCWD), child.Path("/"), n(unix.O_RDONLY), n(0o4755)}},
	}
	for name, p := range calls {
		found, err := b.helper.Probe(soon(t), []child.Probe{p})
		check(t, err)
		if found[0].Errno != 0 {
			t.Errorf("%s: %v", name, found[0].Errno)
		}
	}
}

// TestForeignCallsKill is about calls by other numbers.
func TestForeignCallsKill(t *testing.T) {
	if unix.SYS_PERSONALITY != 135 {
		t.Skip("x32 is amd64's")
	}
	b := open(t, newWorld(t).spec()).(*box)
	if _, err := b.helper.Probe(soon(t), []child.Probe{{Number: 0x40000000 + 39}}); err == nil {
		t.Error("getpid by its x32 number was answered")
	}
}
