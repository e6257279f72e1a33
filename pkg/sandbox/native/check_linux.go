package native

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// A CheckError says what a sandbox let through, or did not allow, when it was
// attacked from inside.
type CheckError struct{ Broken []string }

func (e *CheckError) Error() string {
	return "the sandbox does not hold: " + strings.Join(e.Broken, "; ")
}

// Hint says what to do.
func (e *CheckError) Hint() string {
	return "do not use it; run mojoup-node doctor, and report what it says"
}

// request asks the proxy, as the node answers it about itself.
const request = "GET http://node.mojoup.internal/healthz HTTP/1.1\r\nHost: node.mojoup.internal\r\n\r\n"

// proxy wants that the only way out answers. It is asked first and listened to
// last: what takes it time is then not waited for.
func (a *attack) proxy(at netip.AddrPort) (listen func()) {
	s := a.reaches(at)
	// Without a connection a plain write would end this process by a signal.
	a.call(unix.SYS_SENDTO, child.Result(s), child.Data([]byte(request)), num(len(request)), num(unix.MSG_NOSIGNAL), num(0), num(0))
	return func() {
		r := a.call(unix.SYS_READ, child.Result(s), child.Buffer(1024), num(1024))
		a.verify = append(a.verify, func(all []child.Finding) string {
			answer := ""
			if n := all[r].Result; n > 0 {
				answer, _, _ = strings.Cut(string(all[r].Data[:n]), "\r\n")
			}
			if f := strings.Fields(answer); len(f) < 2 || f[1] != "204" {
				return fmt.Sprintf("the proxy at %s answered %q", at, answer)
			}
			return ""
		})
	}
}

// reaches wants that the only way out takes connections, and returns one.
func (a *attack) reaches(at netip.AddrPort) (socket int) {
	s := a.call(unix.SYS_SOCKET, num(family(at)), num(unix.SOCK_STREAM|unix.SOCK_CLOEXEC), num(0))
	address := sockaddr(at)
	c := a.call(unix.SYS_CONNECT, child.Result(s), child.Data(address), num(len(address)))
	a.must(c, "connecting to the proxy "+at.String())
	return s
}

func family(at netip.AddrPort) int {
	if at.Addr().Is6() {
		return unix.AF_INET6
	}
	return unix.AF_INET
}

func sockaddr(at netip.AddrPort) []byte {
	out := binary.NativeEndian.AppendUint16(nil, uint16(family(at)))
	out = binary.BigEndian.AppendUint16(out, at.Port())
	if at.Addr().Is6() {
		out = append(out, 0, 0, 0, 0) // flow
		return append(append(out, at.Addr().AsSlice()...), 0, 0, 0, 0)
	}
	return append(append(out, at.Addr().AsSlice()...), make([]byte, 8)...)
}

// anywhereAddr is of a range that nobody has.
var anywhereAddr = netip.MustParseAddrPort("192.0.2.1:53")

// kernel tries what only one layer stands against: where that layer is
// missing, it succeeds.
func (a *attack) kernel() {
	a.status("self", sealed())
	a.status("1", sealed())
	const seize = 0x4206
	a.must(a.call(unix.SYS_PTRACE, num(seize), num(1), num(0), num(0)), "tracing the first process", unix.EPERM, unix.EACCES)
	a.refused(a.open("/proc/1/mem", unix.O_RDONLY), "opening the first process' memory")
	a.must(a.call(unix.SYS_SOCKET, num(unix.AF_VSOCK), num(unix.SOCK_STREAM), num(0)), "a socket to the hypervisor", unix.EAFNOSUPPORT)
	a.must(a.call(unix.SYS_UNSHARE, num(unix.CLONE_NEWUSER)), "a new user namespace", unix.EPERM)
	a.must(a.call(unix.SYS_MOUNT, child.Path("none"), child.Path("/dev/shm"), child.Path("tmpfs"), num(0), num(0)), "mounting", unix.EPERM)
	a.must(a.call(unix.SYS_IO_URING_SETUP, num(1), child.Buffer(120)), "io_uring", unix.EPERM)
	out := a.call(unix.SYS_SOCKET, num(unix.AF_INET), num(unix.SOCK_DGRAM|unix.SOCK_CLOEXEC), num(0))
	anywhere := sockaddr(anywhereAddr)
	a.must(a.call(unix.SYS_CONNECT, child.Result(out), child.Data(anywhere), num(len(anywhere))), "a packet past the proxy", unix.ENETUNREACH)
	// The errno tells the layer: the mount's here, Landlock's there, where
	// without it the lost capability would answer EPERM.
	a.must(a.mkdir("/.check"), "making something in /", unix.EROFS)
	a.must(a.call(unix.SYS_MKNODAT, num(cwd), child.Path("/dev/shm/.check"), num(unix.S_IFCHR|0o600), num(1<<8|3)), "making a device", unix.EACCES)
	a.notWritable("/etc", ".check")
	for _, d := range devices {
		a.device(d)
	}
}

// What the file is called that an attempt makes beside its directory, and how
// once it has been moved into it.
const triedFile, triedMoved = "-file", "file"

// checkName is what attempts call what they make.
func checkName(s sandbox.Spec) string { return ".check-" + s.ID }

// attacks lists everything that is tried in a sandbox of this Spec, with what
// the engine itself promises by own.
func attacks(s sandbox.Spec, own func(*attack)) *attack {
	a := &attack{}
	at, _ := proxyAddress(s) // validated before
	listen := a.proxy(at)
	// While the proxy answers, which is the node's work as are the calls that it
	// is told of: those come after what it has no part in.
	a.spec(s)
	own(a)
	listen()
	a.standing(s)
	a.covers(s)
	return a
}

// attacks lists everything that is tried in a sandbox of this engine.
func (b *box) attacks() *attack {
	return attacks(b.spec, func(a *attack) {
		a.kernel()
		a.writable("/dev/shm", checkName(b.spec))
	})
}

// spec tries everything that a Spec protects or asks to be looked at.
func (a *attack) spec(s sandbox.Spec) {
	name := checkName(s)
	for _, p := range s.Protect {
		switch p.Guard {
		case sandbox.Pin:
			a.pinned(p.Path)
		case sandbox.Freeze, sandbox.HoldDir, sandbox.HoldFile:
			a.notWritable(p.Path, name)
		case sandbox.Shelter:
			a.notWritable(sandbox.ShelterDir(p.Path), name)
			a.pinned(sandbox.ShelterDir(p.Path))
			a.pinned(p.Path)
		}
	}
	for _, c := range s.Checks {
		switch c.Kind {
		case sandbox.MustNotOpen:
			a.refused(a.open(c.Path, unix.O_RDONLY), "opening "+c.Path)
		case sandbox.MustNotWrite:
			a.notWritable(c.Path, name)
		case sandbox.MustBeSame:
			a.same(c)
		case sandbox.MustWrite:
			a.writable(c.Path, name)
		}
	}
}

// attack makes the attempts, and those that the Spec asks for, by a process
// that is sealed as a command is.
func (b *box) attack(ctx context.Context, a *attack) error {
	under, err := b.begin(a)
	if err != nil {
		return b.unchecked(err)
	}
	return b.judge(ctx, a, under)
}

// begin has the attempts made, without waiting for what comes of them.
func (b *box) begin(a *attack) (*child.Attempts, error) {
	b.teller.checking.Store(true)
	b.trying.Store(true)
	return b.helper.Try(a.probes)
}

func (b *box) unchecked(err error) error {
	if errors.Is(err, child.ErrGone) {
		return sandbox.ErrGone
	}
	return fmt.Errorf("checking sandbox %s: %w", b.spec.ID, err)
}

// judge waits for what came of the attempts.
func (b *box) judge(ctx context.Context, a *attack, under *child.Attempts) error {
	findings, err := under.Findings(ctx)
	b.checked()
	if err != nil {
		return b.unchecked(err)
	}
	b.trying.Store(false)
	var broken []string
	for _, v := range a.verify {
		if problem := v(findings); problem != "" {
			broken = append(broken, problem)
		}
	}
	if len(broken) > 0 {
		return &CheckError{Broken: broken}
	}
	return nil
}

// Check attacks the sandbox from inside. The attempts are made by a process
// that is sealed as a command is.
func (b *box) Check(ctx context.Context) (sandbox.Enforced, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	if err := b.first(ctx); err != nil {
		return nil, err
	}
	out := append(facts(b.spec, b.machine.abi, b.notifier != nil), CrashFacts()...)
	out = append(out, b.bounds.facts()...)
	return append(out, unshelteredFacts(b.bare)...), nil
}

// first is the attack that has begun with the sandbox, or else a new one.
func (b *box) first(ctx context.Context) error {
	if under := b.under.Swap(nil); under != nil {
		return b.judge(ctx, b.tries, under)
	}
	return b.attack(ctx, b.tries)
}
