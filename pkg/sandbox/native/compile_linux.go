package native

import (
	"os"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// machine is what compile has to know of the host and the node's settings.
type machine struct {
	abi     int    // of Landlock
	filter  []byte // the compiled system call filter
	scratch int64  // bytes of a Scratch without a size
	shares  shares // of what the kernel counts per user
}

const (
	// files bounds the number of files in each memory file system: zero would
	// mean unlimited.
	files = 1 << 20

	sharedMemory = 256 << 20 // bytes of /dev/shm

	hard = unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NODEV
	ro   = unix.MOUNT_ATTR_RDONLY
)

// Everything that pid 1 does before the first command comes in three parts. The
// base is what sandboxes of one person have in common: it can be carried out
// before it is known for which of them. The sandbox's own mounts are next, and
// the rest needs what is made on the host meanwhile. The order is the argument:
//
//   - the root of memory first, for every target is below it; but the memory
//     that all scratch directories share stands below the root itself, where it
//     goes with the host's and no call of its own is needed, which would wait
//     for all processors;
//   - /proc while the host's is still visible, or the kernel refuses it;
//   - mounts as the Spec orders them;
//   - the network and the switches of /proc need rights that are about to go;
//   - then the root is changed, and nothing of the host has a name any more:
//     what follows, protections too, is of what has been mounted;
//   - protections, ancestors first, then what is only writable during set-up
//     becomes read-only;
//   - Landlock's rules are of what stands at a path in the final tree: a rule
//     of the base is of what the base has put there, and what covers that
//     later brings a rule of its own. The process takes them on after the last
//     mount, since under Landlock it may not mount;
//   - capabilities go before pid 1's own Landlock domain, the filter is last.
//
// Protections may be carried out as soon as what they need of the host stands,
// the ones that come first before the rest is sent.

// compileBase lists what is the same for sandboxes whose shared mounts are.
func compileBase(s sandbox.Spec, m machine) []child.Op {
	return slices.Concat(
		rootOps(s), procOps(s), deviceOps(s), mountOps(s, m, 0, s.Shared),
		beginOps(s), networkOps(s), switchOps(m), settleOps(s), rulesetOps(m), ruleOps(s.Mounts[:s.Shared], m),
		[]child.Op{{Code: child.Bound}},
	)
}

// compileOwn lists the mounts that are this sandbox's own, after which nothing
// of the host is needed but what stands for missing paths in them.
func compileOwn(s sandbox.Spec, m machine) []child.Op {
	return slices.Concat(
		[]child.Op{{Code: child.Title, First: s.ID}}, mountOps(s, m, s.Shared, len(s.Mounts)),
		[]child.Op{{Code: child.Pivot}}, limitOps(s, m),
	)
}

// compileRest lists what comes once the host has what stands for missing paths.
func compileRest(s sandbox.Spec, m machine) []child.Op {
	return slices.Concat(
		protectOps(s), closeOps(s), ruleOps(s.Mounts[s.Shared:], m), []child.Op{{Code: child.Keep}},
		[]child.Op{{Code: child.Seal}}, firstDomainOps(m), []child.Op{{Code: child.Filter, Flags: child.Notify, Blob: m.filter}},
	)
}

func rootOps(s sandbox.Spec) []child.Op {
	size := int64(1 << 20)
	for _, m := range s.Mounts {
		size += int64(len(m.Begin)+len(m.Content)) + 8192
	}
	// In steps, since a few bytes more of a text would make another base.
	const step = 1 << 20
	size = (size + step - 1) / step * step
	var ops []child.Op
	if s.Limits.Disk > 0 {
		ops = append(ops, child.Op{Code: child.Pool, First: s.WorkDir, A: uint64(s.Limits.Disk), B: files, C: 0o755})
	}
	return append(ops, child.Op{Code: child.Root, First: s.WorkDir, A: uint64(size), B: 16384, C: 0o755})
}

// hidden are files of /proc that show what is the host's: its keys, its
// memory, its timers, and on some settings the kernel's addresses.
var hidden = []string{
	"/proc/keys", "/proc/key-users", "/proc/kcore", "/proc/timer_list", "/proc/sched_debug",
	"/proc/kallsyms", "/proc/modules",
}

// roots are those that only their owner may read, who is user 0 and so a
// session of that user: it needs no capability for them.
var roots = []string{
	"/proc/kpagecount", "/proc/kpageflags", "/proc/kpagecgroup", "/proc/slabinfo", "/proc/vmallocinfo",
	"/proc/pagetypeinfo", "/proc/kmsg", "/proc/iomem", "/proc/ioports",
}

func procOps(s sandbox.Spec) []child.Op {
	ops := []child.Op{{Code: child.Proc, Flags: child.Make, First: "/proc"}}
	files := hidden
	if s.Identity.UID == 0 {
		files = append(files[:len(files):len(files)], roots...)
	}
	for _, f := range files {
		ops = append(ops, child.Op{
			Code: child.Bind, Flags: child.IfThere, First: "/dev/null", Second: f,
			A: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | ro,
		})
	}
	return ops
}

var devices = []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"}

func deviceOps(s sandbox.Spec) []child.Op {
	var ops []child.Op
	for _, d := range devices {
		ops = append(ops, child.Op{
			Code: child.Bind, Flags: child.Make, First: d, Second: d,
			// Writing to a device needs no writable mount; changing the mode,
			// owner or times of the host's node does.
			A: unix.MOUNT_ATTR_NOSUID | unix.MOUNT_ATTR_NOEXEC | ro,
		})
	}
	for _, l := range [][2]string{
		{"/dev/fd", "/proc/self/fd"}, {"/dev/stdin", "/proc/self/fd/0"}, {"/dev/stdout", "/proc/self/fd/1"},
		{"/dev/stderr", "/proc/self/fd/2"}, {"/dev/ptmx", "pts/ptmx"},
	} {
		ops = append(ops, child.Op{Code: child.Link, First: l[0], Second: l[1]})
	}
	ops = append(ops, child.Op{Code: child.Devpts, Flags: child.Make, First: "/dev/pts"})
	shm := sandbox.Mount{Kind: sandbox.Scratch, Target: "/dev/shm", Mode: 0o1777, Size: sharedMemory}
	return append(ops, scratchOps(s, shm, "shm", nil)...)
}

// mountOps makes the Spec's mounts of these numbers. Where the target lies in a directory of
// the host, the mount point must be there: nothing is made on the host.
func mountOps(s sandbox.Spec, mc machine, from, to int) []child.Op {
	var ops []child.Op
	for i := from; i < to; i++ {
		m := s.Mounts[i]
		cover := covering(s.Mounts[:i], m.Target)
		var flags child.Flags
		if cover == nil || cover.Kind == sandbox.Scratch {
			flags = child.Make
		}
		switch m.Kind {
		case sandbox.Bind:
			ops = append(ops, bindOp(m, flags))
		case sandbox.Scratch:
			if m.Size == 0 {
				m.Size = mc.scratch
			}
			ops = append(ops, scratchOps(s, m, strconv.Itoa(i), cover)...)
		case sandbox.Text:
			name := ""
			if i >= s.Shared && len(m.Begin) > 0 {
				name = begun(i - s.Shared)
			} else if len(m.Begin) > 0 {
				m.Content = slices.Concat(m.Begin, m.Content)
			}
			ops = append(ops, textOp(m, name, cover, flags))
		case sandbox.Link:
			ops = append(ops, child.Op{Code: child.Link, First: m.Target, Second: m.Source})
		case sandbox.Seed:
			ops = append(ops, seedOps(m, cover)...)
		}
	}
	return ops
}

func bindOp(m sandbox.Mount, flags child.Flags) child.Op {
	if m.Optional {
		flags |= child.Optional
	}
	if m.Access == sandbox.ReadWrite {
		flags |= child.Strict // a link could be made to point elsewhere meanwhile
	}
	return child.Op{Code: child.Bind, Flags: flags, First: m.Source, Second: m.Target, A: attributes(m)}
}

func attributes(m sandbox.Mount) uint64 {
	attr := uint64(hard)
	if m.NoExec {
		attr |= unix.MOUNT_ATTR_NOEXEC
	}
	if m.Kind == sandbox.Bind && m.Access == sandbox.ReadOnly {
		attr |= ro
	}
	return attr
}

// scratchOps makes a directory of memory: one of its own size, or with a
// limit for all of them, a directory of the common memory.
func scratchOps(s sandbox.Spec, m sandbox.Mount, name string, cover *sandbox.Mount) []child.Op {
	var flags child.Flags
	if cover == nil || cover.Kind == sandbox.Scratch {
		flags = child.Make
	}
	mode := uint64(0o755)
	if m.Mode != 0 {
		mode = uint64(unixMode(m.Mode))
	}
	if s.Limits.Disk > 0 {
		return []child.Op{
			{Code: child.Dir, Flags: child.InPool, First: name, C: mode},
			{Code: child.Bind, Flags: flags | child.InPool, First: name, Second: m.Target, A: attributes(m)},
		}
	}
	ops := []child.Op{{Code: child.Tmpfs, Flags: flags, First: m.Target, A: uint64(m.Size), B: files, C: mode}}
	if m.NoExec {
		ops = append(ops, child.Op{Code: child.Bind, Flags: child.Inside, First: m.Target, Second: m.Target, A: attributes(m)})
	}
	return ops
}

// beginOps writes what the sandbox's own texts begin with.
func beginOps(s sandbox.Spec) []child.Op {
	var ops []child.Op
	for i, m := range s.Mounts[s.Shared:] {
		if m.Kind == sandbox.Text && len(m.Begin) > 0 {
			ops = append(ops, child.Op{Code: child.File, First: begun(i), C: textMode(m), Blob: m.Begin})
		}
	}
	return ops
}

// begun is what the beginning of the text at that place among the sandbox's
// own mounts is called until it is mounted.
func begun(i int) string { return textName + strconv.Itoa(i) }

func textMode(m sandbox.Mount) uint64 {
	if m.Mode == 0 {
		return 0o444
	}
	return uint64(unixMode(m.Mode)) &^ 0o222
}

// textOp makes a file that cannot be changed inside: in a directory that will
// be read-only it is just a file, elsewhere a mount, and so where it has been
// begun, by that name.
func textOp(m sandbox.Mount, begun string, cover *sandbox.Mount, flags child.Flags) child.Op {
	op := child.Op{Code: child.File, First: m.Target, C: textMode(m), Blob: m.Content}
	if begun != "" {
		op.Code, op.Flags, op.A, op.Second = child.Text, flags|child.Inside, hard|ro, begun
		return op
	}
	if cover != nil && (cover.Kind == sandbox.Bind || cover.Access == sandbox.ReadWrite) {
		op.Code, op.Flags, op.A = child.Text, flags|child.Inside, hard|ro
	}
	return op
}

// seedOps makes a file of the session's own, and the directories that lead to
// it, which are nobody else's business.
func seedOps(m sandbox.Mount, cover *sandbox.Mount) (ops []child.Op) {
	for i := len(cover.Target) + 1; i < len(m.Target); i++ {
		if m.Target[i] == '/' {
			ops = append(ops, child.Op{Code: child.Dir, First: m.Target[:i], C: 0o700})
		}
	}
	mode := uint64(0o600)
	if m.Mode != 0 {
		mode = uint64(unixMode(m.Mode))
	}
	return append(ops, child.Op{Code: child.File, First: m.Target, C: mode, Blob: m.Content})
}

func protectOps(s sandbox.Spec) []child.Op {
	var ops []child.Op
	for _, p := range s.Protect {
		m := covering(s.Mounts, p.Path)
		op := child.Op{Code: child.Bind, Flags: child.Inside, First: p.Path, Second: p.Path, A: attributes(*m)}
		switch p.Guard {
		case sandbox.Freeze:
			op.A, op.Flags = op.A|ro, op.Flags|child.Single
		case sandbox.HoldDir, sandbox.HoldFile:
			op.A |= ro
		case sandbox.Thaw:
			op.B = ro
		case sandbox.Shelter:
			op.A, op.Flags = op.A|ro, op.Flags|child.TheLink
		}
		if m.Kind == sandbox.Scratch { // nothing of the host: made inside
			ops = append(ops, heldInside(p)...)
		}
		if p.Guard == sandbox.Shelter {
			dir := sandbox.ShelterDir(p.Path)
			ops = append(ops, child.Op{Code: child.Bind, Flags: child.Inside, First: dir, Second: dir, A: op.A})
		}
		ops = append(ops, op)
	}
	return ops
}

func heldInside(p sandbox.Protection) []child.Op {
	switch p.Guard {
	case sandbox.HoldDir, sandbox.Thaw:
		return []child.Op{{Code: child.Dir, First: p.Path, C: 0o755}}
	case sandbox.HoldFile:
		return []child.Op{{Code: child.File, First: p.Path, C: 0o644, Blob: []byte(p.Content)}}
	case sandbox.Shelter:
		return []child.Op{
			{Code: child.Dir, First: sandbox.ShelterDir(p.Path), C: 0o755},
			{Code: child.Link, First: p.Path, Second: sandbox.ShelterLink(p.Path)},
		}
	}
	return nil
}

// second is an address beside 127.0.0.1: without a global one on any interface
// getaddrinfo with AI_ADDRCONFIG fails for every name. 198.18.0.1, of the range
// for benchmarks (RFC 2544), in the byte order in which the kernel reads it.
const second = 198 | 18<<8 | 0<<16 | 1<<24

func networkOps(s sandbox.Spec) []child.Op {
	at, _ := proxyAddress(s) // validated before
	host := s.Hostname
	if host == "" {
		host = "sandbox"
	}
	return []child.Op{
		{Code: child.Loopback, A: second},
		{Code: child.Listen, First: at.String(), A: uint64(at.Port()), Blob: at.Addr().AsSlice()},
		{Code: child.Hostname, First: host},
	}
}

func limitOps(s sandbox.Spec, m machine) []child.Op {
	limit := func(resource int, n uint64) child.Op {
		return child.Op{Code: child.Rlimit, First: rlimitNames[resource], A: uint64(resource), B: n, C: n}
	}
	ops := []child.Op{
		// Not 0: where the host pipes core dumps to a program, 0 still runs it,
		// as root, on the session's memory.
		limit(unix.RLIMIT_CORE, 1),
		limit(unix.RLIMIT_MEMLOCK, 64<<20),
		limit(unix.RLIMIT_MSGQUEUE, m.shares.queues),
		limit(unix.RLIMIT_SIGPENDING, m.shares.signals),
	}
	if n := s.Limits.Processes; n > 0 {
		// Counted per user namespace since 5.14, so this session's only. The
		// helper's two processes are of them.
		ops = append(ops, limit(unix.RLIMIT_NPROC, uint64(n)+2))
	}
	if n := s.Limits.Files; n > 0 {
		// Not pid 1's: what it sends to the node must not be refused because
		// a command has as many under way as it may.
		ops = append(ops, child.Op{Code: child.Files, A: uint64(n)})
	}
	return ops
}

// switchOps are limits of this user namespace and those below. The host's own
// limits are per user, so a session that took all of them would starve its
// user.
func switchOps(m machine) []child.Op {
	var ops []child.Op
	for _, w := range []struct {
		name string
		n    uint64
	}{
		{"max_user_namespaces", 0}, {"max_inotify_instances", m.shares.watchers}, {"max_inotify_watches", m.shares.watches},
	} {
		ops = append(ops, child.Op{Code: child.Write, Flags: child.Optional, First: "/proc/sys/user/" + w.name, Second: strconv.FormatUint(w.n, 10)})
	}
	return ops
}

var rlimitNames = map[int]string{
	unix.RLIMIT_CORE: "core", unix.RLIMIT_MEMLOCK: "memlock", unix.RLIMIT_MSGQUEUE: "msgqueue",
	unix.RLIMIT_SIGPENDING: "sigpending", unix.RLIMIT_NPROC: "processes",
}

// settled are parts of /proc that a session of root could write, since they
// ask for the user and not for a capability.
var settled = []string{"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"}

// settleOps makes parts of /proc read-only, once nothing is written there.
func settleOps(s sandbox.Spec) []child.Op {
	var ops []child.Op
	for _, p := range settled {
		ops = append(ops, child.Op{
			Code: child.Bind, Flags: child.Inside | child.Optional, First: p, Second: p,
			A: hard | unix.MOUNT_ATTR_NOEXEC | ro,
		})
	}
	if s.Identity.UID == 0 {
		// Files of /proc beside those of processes are one for all process
		// namespaces: their owner could change their mode on the host. What it
		// costs is that nothing below /proc/self can be written.
		ops = append(ops, child.Op{Code: child.Attributes, First: "/proc", A: hard | unix.MOUNT_ATTR_NOEXEC | ro})
	}
	return ops
}

// closeOps makes read-only what was writable for what was made in it.
func closeOps(s sandbox.Spec) []child.Op {
	var ops []child.Op
	for _, m := range s.Mounts {
		if m.Kind == sandbox.Scratch && m.Access == sandbox.ReadOnly {
			ops = append(ops, child.Op{Code: child.Attributes, First: m.Target, A: ro})
		}
	}
	return append(ops, child.Op{Code: child.Attributes, First: "/", A: ro})
}

// unixMode turns Go's bits into the kernel's, of which only the sticky one is
// wanted beside the permissions.
func unixMode(m os.FileMode) uint32 {
	mode := uint32(m.Perm())
	if m&os.ModeSticky != 0 || m&0o1000 != 0 {
		mode |= 0o1000
	}
	return mode
}
