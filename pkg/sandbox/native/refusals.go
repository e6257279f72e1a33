package native

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
)

// A condition looks at one argument of a system call: the bits of mask must
// be those of value, or, of another, must not. Arguments that the kernel takes
// as 32 bits are compared as 32 bits, or a set high bit would slip through.
type condition struct {
	arg         uint
	mask, value uint64
	another     bool // libseccomp knows this with all bits in mask only
}

func (c condition) holds(args [6]uint64) bool {
	return (args[c.arg]&c.mask == c.value) != c.another
}

// A refusal is one row of the filter: these calls, when every condition
// holds, are answered by errno and not carried out. Errno 0 is for calls whose
// purpose is met without them.
type refusal struct {
	calls  []string
	when   []condition
	answer syscall.Errno
	// tried is what a program tries to do by such a call, as in "python3 tried
	// to …": those calls are held up for the node, which counts them. Without
	// it nobody is told: what programs ask of every kernel and do without, and
	// what a debugger does a thousand times in a second.
	tried string
	why   string
}

const (
	low32 = 0xffffffff
	all64 = 1<<64 - 1
)

func is(arg uint, value uint64) condition { return condition{arg, low32, value, false} }
func has(arg uint, bits uint64) condition { return condition{arg, bits, bits, false} }
func given(arg uint) condition            { return condition{arg, all64, 0, true} }
func null(arg uint) condition             { return condition{arg, all64, 0, false} }
func calls(names ...string) []string      { return names }
func when(all ...condition) []condition   { return all }
func deny(c []string, tried, why string) refusal {
	return refusal{c, nil, syscall.EPERM, tried, why}
}
func hide(c []string, why string) refusal { return refusal{c, nil, syscall.ENOSYS, "", why} }
func denyIf(c []string, w []condition, tried, why string) refusal {
	return refusal{c, w, syscall.EPERM, tried, why}
}

// untold are refusals that nobody is told of.
const untold = ""

// newest is the last system call that somebody has looked at for this table:
// removexattrat, Linux 6.13. What is newer does not exist inside. The numbers
// are the same on amd64 and arm64 from 424 on.
const newest = 466

// refusals is the whole policy of the filter. What neither a lost capability
// nor an own namespace refuses already, or what has been a way through them, is
// here; and what those do refuse and a person should hear of.
func refusals() []refusal {
	const (
		keys   = "reach the keys of the host's user"
		first  = "change the sandbox's first process"
		signal = "signal the sandbox's first process"
		place  = "open files by number"
	)
	rows := []refusal{
		deny(calls("io_uring_setup", "io_uring_enter", "io_uring_register"), "use io_uring", "does most of what other calls do, past this filter"),
		deny(calls("add_key", "request_key", "keyctl"), keys, "keyrings are the host user's and know no namespace"),
		deny(calls("perf_event_open"), "read performance counters", "measures what is outside, and a long list of kernel faults"),
		deny(calls("userfaultfd"), "handle page faults by itself", "holds the kernel inside a copy for as long as one likes: the exploit writer's tool"),
		deny(calls("memfd_secret"), "make memory that the kernel cannot read", "memory that cannot be swapped or counted"),
		deny(calls("bpf"), "load a program into the kernel", "programs in the kernel"),
		deny(calls("kexec_load", "kexec_file_load", "reboot"), "start the machine anew", "the machine is not the session's"),
		deny(calls("init_module", "finit_module", "delete_module"), "load or remove a kernel module", "kernel modules"),
		deny(calls("setns"), "join a namespace", "joins namespaces by a descriptor that came from outside"),
		hide(calls("clone3"), "its flags are in memory, where a filter cannot look; C libraries then use clone"),
		hide(calls("openat2"), "its mode is in memory, where a filter cannot look; programs then use openat"),
		deny(calls("process_vm_readv", "process_vm_writev"), untold, "reach into other processes; debuggers then use /proc"),
		deny(calls("pidfd_getfd", "kcmp"), "reach into another process", "as above"),
		deny(calls("open_by_handle_at", "name_to_handle_at"), place, "opens files by number, past every path"),
		deny(calls("fanotify_init"), "watch a whole file system", "watches whole file systems, the host's too"),
		deny(calls("modify_ldt", "iopl", "ioperm"), "reach the processor's segments or ports", "old ways into the processor that only emulators want"),
		deny(calls("mbind", "set_mempolicy", "migrate_pages", "move_pages"), untold, "places memory, and tells where others' is; programs do without"),
		deny(calls("swapon", "swapoff", "acct", "quotactl", "syslog", "settimeofday", "clock_settime", "lookup_dcookie", "vhangup", "sethostname", "setdomainname"), "touch what is the machine's", "the machine's affairs"),
		denyIf(calls("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"), when(is(0, 1)), signal, "the first process keeps the sandbox"),
		denyIf(calls("prlimit64", "sched_setscheduler", "sched_setparam", "sched_setattr", "sched_setaffinity"), when(is(0, 1)), first, "the first process keeps the sandbox"),
		denyIf(calls("setpriority"), when(is(0, 0), is(1, 1)), first, "the first process keeps the sandbox"),
		denyIf(calls("setpriority"), when(is(0, 1), is(1, 1)), first, "the first process is a group of its own"),
		denyIf(calls("setpriority"), when(is(0, 2)), first, "the first process is of the same user"),
		denyIf(calls("ioprio_set"), when(is(0, 1), is(1, 1)), first, "the first process keeps the sandbox"),
		denyIf(calls("ioprio_set"), when(is(0, 2), is(1, 1)), first, "the first process is a group of its own"),
		denyIf(calls("ioprio_set"), when(is(0, 3)), first, "the first process is of the same user"),
		denyIf(calls("ptrace"), when(is(0, 16), is(1, 1)), "trace the sandbox's first process", "PTRACE_ATTACH; it cannot be traced anyway"),
		denyIf(calls("ptrace"), when(is(0, 0x4206), is(1, 1)), "trace the sandbox's first process", "PTRACE_SEIZE; it cannot be traced anyway"),
		hide(calls("io_setup"), "requests are counted for the machine as a whole; programs then use threads"),
		denyIf(calls("ioctl"), when(is(1, 0x5412)), "type into a terminal", "TIOCSTI types into a terminal as if its user had"),
		denyIf(calls("ioctl"), when(is(1, 0x541c)), "paste into a console", "TIOCLINUX pastes into a console"),
		denyIf(calls("fcntl"), when(is(1, 1031)), untold, "F_SETPIPE_SZ: pages of pipes are counted per user of the host; programs do without"),
		// Bit 31 is spare; with it the argument is a question, not a wish.
		denyIf(calls("personality"), when(condition{0, 0x80400000, 0x00400000, false}), "make all that it reads executable", "READ_IMPLIES_EXEC makes data executable"),
		denyIf(calls("personality"), when(condition{0, 0x80100000, 0x00100000, false}), "map what null pointers reach", "MMAP_PAGE_ZERO maps what null pointers reach"),
	}
	rows = append(rows, namespaceRows()...)
	rows = append(rows, mountRows()...)
	rows = append(rows, modeRows()...)
	rows = append(rows, coreRows()...)
	return append(rows, socketRows()...)
}

// coreRows keep the limit of core files at 1, at which the kernel neither writes
// one nor runs the host's handler; at 0 it runs that. Programs with keys in
// memory set 0 and end where they may not, so they are told that it is done: no
// core file comes of them. Who asks for the old value as well cannot be given it.
func coreRows() []refusal {
	const why = "with a limit of 0 the host's handler of core dumps runs, as root"
	core := func(arg uint) condition { return is(arg, 4) } // RLIMIT_CORE
	return []refusal{
		{calls("setrlimit"), when(core(0)), 0, untold, why},
		{calls("prlimit64"), when(core(1), given(2), null(3)), 0, untold, why},
		{calls("prlimit64"), when(core(1), given(2), given(3)), syscall.EPERM, untold, why},
	}
}

// mountRows name what takes a capability that nobody inside has.
func mountRows() []refusal {
	const mounts = "change what is mounted"
	return []refusal{
		deny(calls("mount", "umount2", "fsopen", "fspick", "fsmount", "move_mount", "mount_setattr"), mounts, "what is mounted is the sandbox"),
		denyIf(calls("open_tree"), when(has(2, 1)), mounts, "OPEN_TREE_CLONE copies a mount; without it this is another way to open a path"),
		deny(calls("chroot", "pivot_root"), "change the root directory", "the root is the sandbox's"),
	}
}

// namespaceRows refuse new namespaces: the kernel's largest attack surface
// for an ordinary user. max_user_namespaces is 0 as well.
func namespaceRows() []refusal {
	kinds := []struct {
		name string
		flag uint64
	}{
		// The user namespace first: who asks for several is after that one.
		{"user", 0x10000000}, {"mount", 0x00020000}, {"control group", 0x02000000}, {"host name", 0x04000000}, {"IPC", 0x08000000},
		{"process", 0x20000000}, {"network", 0x40000000},
	}
	var rows []refusal
	for _, k := range kinds {
		rows = append(rows, denyIf(calls("unshare", "clone"), when(has(0, k.flag)), "make "+a(k.name)+" namespace", "a new "+k.name+" namespace"))
	}
	// For clone this bit belongs to the signal number.
	return append(rows, denyIf(calls("unshare"), when(has(0, 0x80)), "make a time namespace", "a new time namespace"))
}

// a puts the article before a name.
func a(name string) string {
	if strings.ContainsRune("AEIO", rune(name[0])) {
		return "an " + name
	}
	return "a " + name
}

// modeRows refuse files that run as their owner: made in a mounted
// directory, they would do so on the host, for whoever starts them there.
func modeRows() []refusal {
	const create, tmpfile = 0o100, 0o20000000
	var rows []refusal
	for _, bit := range []struct {
		mode       uint64
		tried, why string
	}{{0o4000, "set a set-user-ID bit", "a program that runs as its owner"}, {0o2000, "set a set-group-ID bit", "a program that runs as its group"}} {
		row := func(name string, mode uint, more ...condition) {
			rows = append(rows, denyIf(calls(name), when(append(more, has(mode, bit.mode))...), bit.tried, bit.why))
		}
		row("chmod", 1)
		row("fchmod", 1)
		row("fchmodat", 2)
		row("fchmodat2", 2)
		row("creat", 1)
		row("mknod", 1)
		row("mknodat", 2)
		for _, flag := range []uint64{create, tmpfile} {
			row("open", 2, has(1, flag))
			row("openat", 3, has(2, flag))
		}
	}
	return rows
}

// socketRows leave UNIX, IPv4, IPv6 and netlink's ROUTE, with which programs
// list interfaces. The network namespace confines these. It does not confine
// AF_VSOCK, which reaches the hypervisor from an empty one.
func socketRows() []refusal {
	const unix, inet, inet6, netlink, vsock = 1, 2, 10, 16, 40
	var rows []refusal
	for family := uint64(0); family < 64; family++ {
		if family == unix || family == inet || family == inet6 || family == netlink {
			continue
		}
		tried, why := familyName(family), "no such network inside"
		if family == vsock {
			tried, why = "open a socket to the hypervisor", "AF_VSOCK knows no network namespace: it reaches the hypervisor"
		}
		rows = append(rows, refusal{calls("socket", "socketpair"), when(is(0, family)), syscall.EAFNOSUPPORT, tried, why})
	}
	const mptcp = 262
	rows = append(rows, refusal{calls("socket"), when(is(2, mptcp)), syscall.EPROTONOSUPPORT, untold, "a second implementation of TCP; programs then use the first"})
	for protocol := uint64(1); protocol < 32; protocol++ {
		// This errno is what programs take for "the kernel has no audit".
		rows = append(rows, refusal{
			calls("socket"), when(is(0, netlink), is(2, protocol)), syscall.EPROTONOSUPPORT,
			fmt.Sprintf("open a netlink socket of protocol %d", protocol), "of netlink only ROUTE: some protocols know no network namespace",
		})
	}
	return rows
}

// familyName says what a socket of a family is after. Those without a name are
// told by their number.
func familyName(family uint64) string {
	names := map[uint64]string{15: "IPsec keys", 17: "raw packets", 29: "the CAN bus", 30: "TIPC", 31: "Bluetooth", 38: "the kernel's cryptography", 44: "XDP"}
	if name := names[family]; name != "" {
		return "open a socket for " + name
	}
	return fmt.Sprintf("open a socket of address family %d", family)
}

// fewer is the same table for the filter, which costs each start what it has:
// two rows that answer the same and differ in one bit of one argument are one
// row that does not look at that bit.
func fewer(rows []refusal) []refusal {
	rows = slices.Clone(rows)
	for bit := uint64(1); bit <= 1<<31; bit <<= 1 {
		for i := 0; i < len(rows); i++ {
			other := slices.IndexFunc(rows[i+1:], func(r refusal) bool { return rows[i].differsIn(r, bit) >= 0 })
			if other < 0 {
				continue
			}
			other += i + 1
			at := rows[i].differsIn(rows[other], bit)
			rows[i].when = slices.Clone(rows[i].when)
			rows[i].when[at].mask &^= bit
			rows[i].when[at].value &^= bit
			rows = slices.Delete(rows, other, other+1)
		}
	}
	return rows
}

// differsIn is the place of the only condition in which two rows for the same
// calls and with the same answer differ, by this bit alone; -1 otherwise.
func (r refusal) differsIn(o refusal, bit uint64) (at int) {
	if r.answer != o.answer || (r.tried == untold) != (o.tried == untold) || len(r.when) != len(o.when) || !slices.Equal(r.calls, o.calls) {
		return -1
	}
	at = -1
	for i, c := range r.when {
		if c == o.when[i] {
			continue
		}
		if at >= 0 || c.arg != o.when[i].arg || c.mask != o.when[i].mask || c.value^o.when[i].value != bit {
			return -1
		}
		at = i
	}
	return at
}
