package native

import (
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// shares are what one sandbox gets at most of what the kernel counts per user
// of the host, or takes from the machine's memory. None may be zero: whoever
// asks for no limit must still hurt itself only.
type shares struct {
	files     uint64 // descriptors per process that may be asked for
	usual     uint64 // descriptors per process where nobody asks
	processes int    // processes and threads where nobody asks
	signals   uint64 // pending ones, and timers
	queues    uint64 // bytes of POSIX message queues
	watches   uint64 // of inotify
	watchers  uint64 // instances of inotify
	scratch   int64  // bytes of all Scratch mounts together where nobody asks
}

// most are the shares of a machine that has plenty.
var most = shares{
	files: 1 << 20, usual: 4096, processes: 4096, signals: 16384, queues: 256 << 10,
	watches: 65536, watchers: 64, scratch: 4 << 30,
}

// findShares takes at most a third of each account, so that neither one
// session nor a second one leaves nothing for the user's other programs.
//
// Descriptors are another matter: how many may be under way between processes
// is counted per user and compared with the limit of the one that sends. With
// half of the node's own limit a session cannot keep the node from sending.
func findShares() shares {
	s := most
	s.files = min(s.files, share(unix.RLIMIT_NOFILE, 2))
	s.usual = min(s.usual, s.files)
	s.processes = int(min(uint64(s.processes), share(unix.RLIMIT_NPROC, 3)))
	s.signals = min(s.signals, share(unix.RLIMIT_SIGPENDING, 3))
	s.queues = min(s.queues, share(unix.RLIMIT_MSGQUEUE, 3))
	s.watches = min(s.watches, switchShare("max_inotify_watches"))
	s.watchers = min(s.watchers, switchShare("max_inotify_instances"))
	var machine unix.Sysinfo_t
	if err := unix.Sysinfo(&machine); err == nil {
		s.scratch = min(s.scratch, int64(machine.Totalram)*int64(machine.Unit)/2)
	}
	return s
}

// share is a part of one of this process' hard limits.
func share(resource int, parts uint64) uint64 {
	var now unix.Rlimit
	if err := unix.Getrlimit(resource, &now); err != nil {
		return 1
	}
	return max(now.Max/parts, 1)
}

// switchShare is a third of one of the limits below /proc/sys/user, or what
// nothing is less than where the kernel has none of that name.
func switchShare(name string) uint64 {
	text, err := os.ReadFile("/proc/sys/user/" + name)
	if err != nil {
		return 1<<64 - 1
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 63)
	if err != nil {
		return 1
	}
	return max(n/3, 1)
}

// wants are the limits that a control group holds for a sandbox. RLIMIT_NPROC
// does not bind user 0, so only there the usual limit needs a group.
func wants(s sandbox.Spec) cgroup.Limits {
	l := wanted(s.Limits)
	if l.Processes == 0 && s.Identity.UID == 0 {
		l.Processes = most.processes
	}
	return l
}

// limited fills in what nobody has asked for.
func (sh shares) limited(s sandbox.Spec, each int64) sandbox.Limits {
	l := s.Limits
	if l.Processes == 0 {
		l.Processes = sh.processes
	}
	switch {
	case l.Files == 0:
		l.Files = int(sh.usual)
	case uint64(l.Files) > sh.files:
		l.Files = int(sh.files)
	}
	if total := scratch(s, each); l.Disk == 0 && total > sh.scratch {
		l.Disk = sh.scratch
	}
	return l
}

// scratch is how much all Scratch mounts could hold if each were filled.
func scratch(s sandbox.Spec, each int64) int64 {
	total := int64(sharedMemory)
	for _, m := range s.Mounts {
		switch {
		case m.Kind != sandbox.Scratch || m.Access != sandbox.ReadWrite:
		case m.Size == 0:
			total += each
		default:
			total += m.Size
		}
	}
	return total
}
