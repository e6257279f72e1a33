package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Name is the helper's name in a process list; the sandbox's ID is its only
// argument, so that one left by a dead node can be found.
const Name = "mojoup-child"

// An Image is the helper's program in sealed memory: what is executed is
// never a file that the session's user could write.
type Image struct {
	fd   int
	null *os.File
}

// Available reports whether this build holds a helper: nil, or a
// [*MissingError].
func Available() error {
	_, err := embedded()
	return err
}

func embedded() ([]byte, error) {
	image, err := built.ReadFile("bin/helper-" + runtime.GOARCH)
	if err != nil {
		return nil, &MissingError{Arch: runtime.GOARCH}
	}
	return image, nil
}

// Load puts the embedded helper into memory. The caller closes it.
func Load() (*Image, error) {
	image, err := embedded()
	if err != nil {
		return nil, err
	}
	// Since 6.3 the kernel wants to be told that this file is a program;
	// before, it does not know the flag.
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(Name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate(Name, flags)
	}
	if err != nil {
		return nil, fmt.Errorf("making memory for the sandbox helper: %w", err)
	}
	defer unix.Close(fd)
	if err := writeAll(fd, image); err != nil {
		return nil, fmt.Errorf("loading the sandbox helper: %w", err)
	}
	const seals = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		return nil, fmt.Errorf("sealing the sandbox helper: %w", err)
	}
	// Above the four descriptors that the helper gets, or one of them would
	// cover it between fork and exec.
	high, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 16)
	if err != nil {
		return nil, fmt.Errorf("loading the sandbox helper: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		unix.Close(high)
		return nil, fmt.Errorf("loading the sandbox helper: %w", err)
	}
	return &Image{fd: high, null: null}, nil
}

// Close frees the memory. Helpers that run are not touched.
func (i *Image) Close() error {
	return errors.Join(unix.Close(i.fd), i.null.Close())
}

func writeAll(fd int, b []byte) error {
	for len(b) > 0 {
		n, err := unix.Write(fd, b)
		if err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}

// memory is a file that holds b, for a payload larger than a packet.
func memory(b []byte) (int, error) {
	fd, err := unix.MemfdCreate("payload", unix.MFD_CLOEXEC|unix.MFD_NOEXEC_SEAL)
	if errors.Is(err, unix.EINVAL) {
		fd, err = unix.MemfdCreate("payload", unix.MFD_CLOEXEC)
	}
	if err != nil {
		return -1, err
	}
	if err := writeAll(fd, b); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// Options say as whom a helper runs.
type Options struct {
	ID       string
	UID, GID int
	// Groups are the supplementary groups, which only root can choose;
	// otherwise they stay those of the node.
	Groups []int
}

// A Helper is one running helper: an outer process and, soon, pid 1.
type Helper struct {
	process *os.Process
	conn    *net.UnixConn
	done    chan struct{} // closed when both are gone
	set     chan reply    // the answer to the operations

	mu      sync.Mutex // guards what follows, and is never held while sending
	pidfd   int        // of pid 1, or -1
	tag     uint32
	waiting map[uint32]*Running // keyed by tag, from exec until exit
}

type reply struct {
	fd  int // what came along, or -1
	err error
}

// Start starts a helper. It does nothing yet: the caller may put its PID into
// control groups, then calls MakeNamespaces.
//
// No namespace flag is given to the fork: with one the runtime would copy the
// page tables of the node's heap. The helper unshares itself.
func (i *Image) Start(o Options) (*Helper, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control")
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	attr := &syscall.SysProcAttr{Setsid: true}
	if os.Geteuid() == 0 {
		// Here and not later: in a user namespace groups cannot be set.
		attr.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}
		for _, g := range o.Groups {
			attr.Credential.Groups = append(attr.Credential.Groups, uint32(g))
		}
	}
	process, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(i.fd), []string{Name, o.ID}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: []*os.File{i.null, i.null, i.null, theirs}, Sys: attr,
	})
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("starting the sandbox helper: %w", err)
	}
	h := &Helper{
		process: process, conn: conn.(*net.UnixConn), done: make(chan struct{}),
		set: make(chan reply, 1), pidfd: -1, waiting: map[uint32]*Running{},
	}
	go h.read()
	return h, nil
}

// PID is the outer process, for control groups.
func (h *Helper) PID() int { return h.process.Pid }

// Done is closed when the helper and everything inside have ended.
func (h *Helper) Done() <-chan struct{} { return h.done }

// MakeNamespaces lets the helper make its namespaces, with one user and one
// group that have the same number inside. A refusal comes with SetUp.
func (h *Helper) MakeNamespaces(uid, gid int) error {
	return h.send(message{kind: msgNamespaces, a: int32(uid), b: int32(gid)})
}

// SetUp has the operations carried out and returns the listener that was made
// inside, if one was asked for. After an error the helper is of no use.
func (h *Helper) SetUp(ctx context.Context, ops []Op) (net.Listener, error) {
	fd, err := memory(Encode(ops))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	err = h.send(message{kind: msgOperations}, fd)
	unix.Close(fd)
	if err != nil && !errors.Is(err, unix.EPIPE) && !errors.Is(err, unix.ECONNRESET) {
		return nil, err
	}
	// A helper that has left already has said why.
	r, err := h.await(ctx, h.set)
	if err != nil || r.fd < 0 {
		return nil, err
	}
	file := os.NewFile(uintptr(r.fd), "listener")
	defer file.Close()
	return net.FileListener(file)
}

func (h *Helper) await(ctx context.Context, from chan reply) (reply, error) {
	select {
	case r := <-from:
		return r, r.err
	case <-ctx.Done():
		return reply{fd: -1}, context.Cause(ctx)
	case <-h.done:
	}
	select { // it may have answered and then left
	case r := <-from:
		return r, r.err
	default:
		return reply{fd: -1}, ErrGone
	}
}

func (h *Helper) send(m message, fds ...int) error {
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	if _, _, err := h.conn.WriteMsgUnix(m.encode(), rights, nil); err != nil {
		return fmt.Errorf("%s: %w", StageProtocol, err)
	}
	return nil
}

// read serves every answer until pid 1's end closes, then waits for the outer
// process, which ends only when pid 1 has been collected.
func (h *Helper) read() {
	defer close(h.done)
	packet, rights := make([]byte, 8192), make([]byte, unix.CmsgSpace(4*4))
	for {
		n, nrights, _, _, err := h.conn.ReadMsgUnix(packet, rights)
		if err != nil || n == 0 {
			break
		}
		fds := received(rights[:nrights])
		m, err := decode(packet[:n])
		if err != nil {
			h.answer(reply{fd: -1, err: err})
			break
		}
		if kept := h.handle(m, fds); !kept {
			closeAll(fds)
		}
	}
	h.conn.Close() // pid 1, if it lives, sees the end
	_, _ = h.process.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.pidfd >= 0 {
		unix.Close(h.pidfd)
		h.pidfd = -1
	}
}

func received(rights []byte) (fds []int) {
	list, err := unix.ParseSocketControlMessage(rights)
	if err != nil {
		return nil
	}
	for _, m := range list {
		if got, err := unix.ParseUnixRights(&m); err == nil {
			fds = append(fds, got...)
		}
	}
	return fds
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func (h *Helper) answer(r reply) bool {
	select {
	case h.set <- r:
		return true
	default:
		return false
	}
}

// handle serves one message and reports whether it has kept the descriptors.
func (h *Helper) handle(m message, fds []int) (kept bool) {
	fd := -1
	if len(fds) == 1 {
		fd = fds[0]
	}
	h.mu.Lock()
	running := h.waiting[m.tag]
	if m.kind == msgExited || m.kind == msgFailed {
		delete(h.waiting, m.tag)
	}
	if m.kind == msgSpawned && fd >= 0 {
		h.pidfd = fd
	}
	h.mu.Unlock()

	switch m.kind {
	case msgSpawned:
		return true
	case msgReady:
		return h.answer(reply{fd: fd}) && fd >= 0
	case msgFailed:
		err := stageError(m.a, m.b, m.operand)
		if m.tag == 0 {
			h.answer(reply{fd: -1, err: err})
		} else if running != nil {
			running.started <- reply{fd: -1, err: err}
		}
	case msgStarted:
		if running != nil {
			running.started <- reply{fd: fd}
			return fd >= 0
		}
	case msgExited:
		if running != nil {
			running.status = syscall.WaitStatus(uint32(m.b))
			close(running.exited)
		}
	}
	return false
}

// Kill ends everything inside and the helper itself, and waits until all are
// gone. It may be called more than once.
func (h *Helper) Kill(ctx context.Context) error {
	h.mu.Lock()
	if h.pidfd >= 0 {
		_ = unix.PidfdSendSignal(h.pidfd, unix.SIGKILL, nil, 0)
	}
	h.mu.Unlock()
	_ = h.conn.CloseWrite()
	// Without a pid 1 yet, or with one that hangs in a file system, the outer
	// process is next; the kernel then kills pid 1 for want of a parent.
	patience := time.NewTimer(2 * time.Second)
	defer patience.Stop()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
	case <-patience.C:
	}
	_ = h.process.Kill()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ending sandbox helper %d: %w", h.process.Pid, context.Cause(ctx))
	}
}

// A Request is a command to start.
type Request struct {
	Candidates []string // absolute paths, tried in this order
	Argv, Env  []string
	Dir        string
	// Terminal asks for one of this size; otherwise Streams are 0, 1 and 2.
	Terminal      bool
	Columns, Rows uint16
	Streams       [3]int
}

// Running is a command that has been started.
type Running struct {
	// Terminal is the master side of its terminal, or nil. The caller closes it.
	Terminal *os.File

	helper  *Helper
	tag     uint32
	started chan reply
	exited  chan struct{}
	status  syscall.WaitStatus // valid once exited is closed
}

// Exec starts a command and returns when its program has been loaded. A
// refusal is a [*StageError].
func (h *Helper) Exec(ctx context.Context, r Request) (*Running, error) {
	m := message{kind: msgExec}
	fds := r.Streams[:]
	if r.Terminal {
		m.a, m.b, m.c, fds = int32(r.Columns), int32(r.Rows), execTerminal, nil
	}
	return h.start(ctx, m, program(r.Dir, r.Candidates, r.Argv, r.Env), fds...)
}

func (h *Helper) start(ctx context.Context, m message, payload []byte, fds ...int) (*Running, error) {
	file, err := memory(payload)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	defer unix.Close(file)
	c := &Running{helper: h, started: make(chan reply, 1), exited: make(chan struct{})}
	h.mu.Lock()
	h.tag++
	c.tag, m.tag = h.tag, h.tag
	h.waiting[c.tag] = c
	h.mu.Unlock()
	if err := h.send(m, append([]int{file}, fds...)...); err != nil {
		h.forget(c.tag)
		select {
		case <-h.done:
			return nil, ErrGone
		default:
			return nil, err
		}
	}
	got, err := h.await(ctx, c.started)
	if err != nil {
		if ctx.Err() != nil { // it may have started all the same
			_ = c.Signal(syscall.SIGKILL)
			h.forget(c.tag)
		}
		return nil, err
	}
	if got.fd >= 0 {
		_ = unix.SetNonblock(got.fd, true) // so that a read ends when it is closed
		c.Terminal = os.NewFile(uintptr(got.fd), "terminal")
	}
	return c, nil
}

func (h *Helper) forget(tag uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.waiting, tag)
}

// Exited is closed when the command itself has ended.
func (c *Running) Exited() <-chan struct{} { return c.exited }

// Status is how it ended; valid once Exited is closed.
func (c *Running) Status() syscall.WaitStatus { return c.status }

// Gone is closed when the sandbox has ended, perhaps without telling how the
// command did.
func (c *Running) Gone() <-chan struct{} { return c.helper.done }

// Signal sends to the command's process group, nothing once it has ended.
func (c *Running) Signal(sig syscall.Signal) error {
	return c.helper.send(message{kind: msgSignal, tag: c.tag, a: int32(sig)})
}

// Probe carries out system calls inside, one after the other.
func (h *Helper) Probe(ctx context.Context, probes []Probe) ([]Finding, error) {
	payload, err := encodeProbes(probes)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	defer r.Close()
	c, err := h.start(ctx, message{kind: msgExec, c: execProbes}, payload, int(w.Fd()))
	w.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Signal(syscall.SIGKILL)
		_ = r.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	raw, err := io.ReadAll(r)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	return decodeFindings(raw, len(probes))
}
