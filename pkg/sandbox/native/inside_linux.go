package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	landlock "github.com/landlock-lsm/go-landlock/landlock/syscall"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// An Inside is a sandbox that somebody else has made, driven by this engine's
// helper: commands start in it and are watched as in this engine's own, with
// its system call filter and its Landlock rules beneath whatever the maker has
// put there already. It must be closed.
type Inside struct {
	box  *box
	from int // the helper's process, as the host counts
}

// Readable are the directories of a whole system in which programs, libraries
// and their data lie, and which a command may read and run.
var Readable = []string{
	"/bin", "/etc", "/lib", "/lib32", "/lib64", "/libx32", "/nix", "/opt", "/sbin", "/srv", "/usr", "/var",
}

// Join takes over the helper at the other end of conn, which runs inside as
// the user of spec, and seals it. The paths in own are the engine's own inside
// and may be read; whatever else may be reached is what spec mounts.
func (e *Engine) Join(ctx context.Context, conn *net.UnixConn, spec sandbox.Spec, own ...string) (*Inside, error) {
	who, err := child.PeerOf(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if who.UID != spec.Identity.UID || who.GID != spec.Identity.GID {
		conn.Close()
		return nil, fmt.Errorf("the helper inside runs as user %d and group %d, not as %d and %d", who.UID, who.GID, spec.Identity.UID, spec.Identity.GID)
	}
	helper, err := child.Join(conn)
	if err != nil {
		return nil, err
	}
	b := &box{
		log: e.log.With("sandbox", spec.ID), spec: spec, machine: e.machine, helper: helper, wake: func() {}, removing: make(chan struct{}, 1), gone: make(chan struct{}),
		bounds: &bounds{asked: spec.Limits, limits: e.machine.shares.limited(spec, e.machine.scratch), killed: killedOf(who.PID)},
		teller: newTeller(e.told, &e.floods),
	}
	go b.watch()
	in := &Inside{box: b, from: who.PID}
	inner := spec
	inner.Limits = b.bounds.limits
	made, err := helper.SetUp(ctx, joined(inner, e.machine, own))
	if err != nil {
		return nil, errors.Join(err, in.Close(context.WithoutCancel(ctx)))
	}
	b.listen(made.Notifier)
	return in, nil
}

// killedOf counts the processes that were killed for memory in the control
// group of a process, or is nil where that cannot be read.
func killedOf(pid int) func() int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		file := ""
		switch {
		case slices.Contains(strings.Split(parts[1], ","), "memory"):
			file = filepath.Join("/sys/fs/cgroup/memory", parts[2], "memory.oom_control")
		case parts[0] == "0":
			file = filepath.Join("/sys/fs/cgroup", parts[2], "memory.events")
		}
		if _, err := os.Stat(file); file != "" && err == nil {
			return func() int { return killedIn(file) }
		}
	}
	return nil
}

// killedIn reads the line oom_kill of a control group's file, which both
// versions have.
func killedIn(file string) int {
	text, _ := os.ReadFile(file) // gone with its group
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == "oom_kill" {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}

// joined is what is left for a helper to do where the mounts, the network and
// the user are somebody else's work.
func joined(s sandbox.Spec, m machine, own []string) []child.Op {
	s.Limits.Processes = 0 // without a user namespace all of the user's would count
	ops := []child.Op{{Code: child.Here}}
	ops = append(ops, limitOps(s, m)...)
	ops = append(ops, switchOps(m)...)
	ops = append(ops, joinedRules(s, m, own)...)
	ops = append(ops, child.Op{Code: child.Seal})
	ops = append(ops, firstDomainOps(m)...)
	return append(ops, child.Op{Code: child.Filter, Flags: child.Notify, Blob: m.filter})
}

func joinedRules(s sandbox.Spec, m machine, own []string) []child.Op {
	all := handled(m.abi)
	ops := []child.Op{{Code: child.Ruleset, A: all}}
	rule := func(p string, rights uint64, flags child.Flags) {
		ops = append(ops, child.Op{Code: child.Rule, Flags: flags, First: p, A: rights & all, B: onFile & all})
	}
	rule("/", landlock.AccessFSReadDir, 0)
	rule("/proc", look|landlock.AccessFSWriteFile|landlock.AccessFSTruncate, 0)
	for _, d := range devices {
		rule(d, device, child.Optional)
	}
	rule("/dev/pts", device|look, 0)
	rule("/dev/shm", change|run|landlock.AccessFSResolveUnix, child.Optional)
	for _, dir := range slices.Concat(Readable, own) {
		rule(dir, look|run, child.Optional)
	}
	for _, dir := range Shared {
		rule(dir, change|run|landlock.AccessFSResolveUnix, child.Optional)
	}
	for _, mount := range s.Mounts {
		if rights, ok := rightsOf(mount); ok {
			rule(mount.Target, rights, child.Optional)
		}
	}
	return append(ops, child.Op{Code: child.Keep})
}

// Shared are the directories of a whole system in which everybody may write.
var Shared = []string{"/tmp", "/var/tmp"}

// PID is the helper's process as the host counts it.
func (i *Inside) PID() int { return i.from }

// Exec starts a command inside, see [sandbox.Sandbox].
func (i *Inside) Exec(ctx context.Context, c sandbox.Command, stdio sandbox.Stdio) (sandbox.Process, error) {
	return i.box.exec(ctx, c, stdio, false)
}

// Own starts a program of the node's own inside. It lacks the Landlock rules
// of commands, so that it may look at them.
func (i *Inside) Own(ctx context.Context, c sandbox.Command, stdio sandbox.Stdio) (sandbox.Process, error) {
	return i.box.exec(ctx, c, stdio, true)
}

// Dial connects to what listens inside.
func (i *Inside) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return i.box.Dial(ctx, port)
}

// Done is closed when the helper has ended, and with it what it drives.
func (i *Inside) Done() <-chan struct{} { return i.box.gone }

// Close lets the helper end. What it has started is its maker's to end, who has
// done so before: then nothing of a check that was broken off is left either.
func (i *Inside) Close(ctx context.Context) error {
	i.box.bounds.removing.Store(true)
	if err := i.box.helper.Kill(ctx); err != nil {
		return err
	}
	return errors.Join(i.box.idle(ctx), i.box.untry())
}

// Check attacks the sandbox from inside, see [sandbox.Sandbox], and returns
// what the limit of open files is worth. What else holds, who hears of refused
// calls, and whether the way out answers is its maker's to say.
func (i *Inside) Check(ctx context.Context) ([]sandbox.Fact, error) {
	if err := i.box.usable(ctx); err != nil {
		return nil, err
	}
	if err := i.box.attack(ctx, joinedAttacks(i.box.spec)); err != nil {
		return nil, err
	}
	strength, detail := i.box.bounds.filesFact()
	return []sandbox.Fact{{Name: "open files limit", Strength: strength, Detail: detail}}, nil
}

// joinedAttacks are like those of a sandbox of this engine, but that the way out
// only has to take connections: that it answers is its maker's to find out.
func joinedAttacks(s sandbox.Spec) *attack {
	a := &attack{}
	at, _ := proxyAddress(s) // validated before
	a.reaches(at)
	a.joined()
	a.spec(s)
	a.standing(s)
	return a
}

// joined is like kernel, for a sandbox of which only the helper is ours: the
// first process is its maker's, and so are the root and the network.
func (a *attack) joined() {
	a.status("self", sealed())
	const seize = 0x4206
	a.must(a.call(unix.SYS_PTRACE, num(seize), num(1), num(0), num(0)), "tracing the first process", unix.EPERM, unix.EACCES)
	a.refused(a.open("/proc/1/mem", unix.O_RDONLY), "opening the first process' memory")
	a.refused(a.open("/proc/1/environ", unix.O_RDONLY), "reading the first process' environment")
	a.must(a.call(unix.SYS_SOCKET, num(unix.AF_VSOCK), num(unix.SOCK_STREAM), num(0)), "a socket to the hypervisor", unix.EAFNOSUPPORT, unix.EPERM)
	a.must(a.call(unix.SYS_UNSHARE, num(unix.CLONE_NEWUSER)), "a new user namespace", unix.EPERM)
	a.must(a.call(unix.SYS_MOUNT, child.Path("none"), child.Path("/tmp"), child.Path("tmpfs"), num(0), num(0)), "mounting", unix.EPERM)
	a.must(a.call(unix.SYS_IO_URING_SETUP, num(1), child.Buffer(120)), "io_uring", unix.EPERM)
	a.outward()
	a.refused(a.mkdir("/.check"), "making something in /")
	a.refused(a.call(unix.SYS_MKNODAT, num(cwd), child.Path("/tmp/.check"), num(unix.S_IFCHR|0o600), num(1<<8|3)), "making a device")
	a.notWritable("/etc", ".check")
	for _, d := range devices {
		a.must(a.open(d, unix.O_RDWR|unix.O_NOCTTY), "opening "+d, 0, unix.ENXIO)
	}
}

// outward wants that nothing gets out past the proxy: neither a packet nor a
// connection. Where nobody says no at once, there is a way.
func (a *attack) outward() {
	anywhere := sockaddr(anywhereAddr)
	packet := a.call(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), num(0))
	a.refused(a.call(unix.SYS_SENDTO, child.Result(packet), child.Data([]byte("x")), num(1), num(unix.MSG_NOSIGNAL), child.Data(anywhere), num(len(anywhere))), "a packet past the proxy")
	// A packet of the host's own that is refused says so at once, but to a
	// connection that is just being made as a soft error only, which it would
	// try again a second later.
	stream := a.call(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK), num(0))
	connect := a.call(unix.SYS_CONNECT, child.Result(stream), child.Data(anywhere), num(len(anywhere)))
	size := binary.NativeEndian.AppendUint32(nil, 4)
	soft := a.call(unix.SYS_GETSOCKOPT, child.Result(stream), num(unix.SOL_SOCKET), num(unix.SO_ERROR), child.Buffer(4), child.Data(size))
	a.verify = append(a.verify, func(all []child.Finding) string {
		e := all[connect].Errno
		if e == unix.EINPROGRESS && len(all[soft].Data) == 4 {
			e = unix.Errno(binary.NativeEndian.Uint32(all[soft].Data))
		}
		switch e {
		case unix.ECONNREFUSED, unix.EPERM, unix.EACCES, unix.ENETUNREACH, unix.EHOSTUNREACH:
			return ""
		case 0:
			return "a connection past the proxy was not refused"
		}
		return fmt.Sprintf("a connection past the proxy: %v, and nobody refused it", e)
	})
}

// An Arrangement is what takes rights that nobody inside has: the maker's own
// mounts cannot express it. It is done by a helper that runs as root in the
// sandbox's mount namespace, before any command starts.
type Arrangement struct {
	Hostname string
	// Links are made in the root of the sandbox.
	Links []sandbox.Mount
	// Pinned are symbolic links that become mounts of themselves: so they can
	// be neither replaced nor removed.
	Pinned []string
}

// Arrange has the helper at the other end of conn carry an arrangement out,
// after which it ends.
func Arrange(ctx context.Context, conn *net.UnixConn, a Arrangement) error {
	who, err := child.PeerOf(conn)
	if err == nil && who.UID != 0 {
		err = fmt.Errorf("the helper that arranges runs as user %d", who.UID)
	}
	if err != nil {
		conn.Close()
		return err
	}
	helper, err := child.Join(conn)
	if err != nil {
		return err
	}
	ops := []child.Op{{Code: child.Here}}
	if a.Hostname != "" {
		ops = append(ops, child.Op{Code: child.Hostname, First: a.Hostname})
	}
	for _, l := range a.Links {
		ops = append(ops, child.Op{Code: child.Link, First: l.Target, Second: l.Source})
	}
	for _, p := range a.Pinned {
		ops = append(ops, child.Op{Code: child.Bind, Flags: child.Inside | child.TheLink, First: p, Second: p, A: hard | ro})
	}
	_, err = helper.SetUp(ctx, ops)
	return errors.Join(err, helper.Kill(context.WithoutCancel(ctx)))
}

// A Held is what keeps the missing paths of a Spec's protections, and its
// sheltered files, on the host, while a sandbox lives.
type Held struct {
	all  []*hold
	bare []string
}

// Hold makes what a sandbox's protections need on the host, and returns the
// Spec as it can then be kept: a file that could not be sheltered is read-only
// by itself.
func Hold(ctx context.Context, spec sandbox.Spec) (sandbox.Spec, *Held, error) {
	all, err := holdAll(ctx, spec, nil)
	h := &Held{all: all}
	if err != nil {
		return spec, nil, errors.Join(err, h.Release(ctx))
	}
	spec, h.bare = unsheltered(spec, all)
	return spec, h, nil
}

// Facts say what could not be had.
func (h *Held) Facts() []sandbox.Fact { return unshelteredFacts(h.bare) }

// Release takes away again what was made.
func (h *Held) Release(ctx context.Context) error {
	var errs []error
	for _, one := range slices.Backward(h.all) {
		_, err := one.release(ctx)
		errs = append(errs, err)
		sandbox.Reached(ctx, "released "+one.path)
	}
	h.all = nil
	return errors.Join(errs...)
}

// UndoInside lists what Hold and [Inside.Check] may leave on the host, see
// [sandbox.Engine]; [Engine.Sweep] carries it out.
func (e *Engine) UndoInside(s sandbox.Spec) []sandbox.Undo {
	return append(undoTried(s), undoHold(s)...)
}

// Validate refuses a Spec that cannot be made or would not mean what it says.
func Validate(s sandbox.Spec) error { return validate(s) }
