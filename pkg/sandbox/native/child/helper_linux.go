package child

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Options say as whom a helper runs.
type Options struct {
	ID       string
	UID, GID int
	// Groups are the supplementary groups, which only root can choose;
	// otherwise they stay those of the node.
	Groups []int
	// ControlGroup is a descriptor of the group of version 2 in which the
	// helper is to be born; zero or negative means the node's own.
	ControlGroup int
}

// A Helper is one running helper: an outer process and, soon, pid 1.
type Helper struct {
	process *os.Process // nil where somebody else started it
	conn    *net.UnixConn
	done    chan struct{} // closed when both are gone
	set     chan reply    // the answer to the operations
	// notifier came with the answer. What somebody else started may outlive the
	// helper, and is not to wait for answers then. Only read knows it.
	notifier *Notifier

	mu      sync.Mutex // guards what follows, and is never held while sending
	pidfd   int        // of pid 1, or -1
	tag     uint32
	waiting map[uint32]*Running // keyed by tag, from exec until exit
	left    []*Running          // attempts that are over, until their process has been collected
}

// A Place is what a helper made inside for the node.
type Place struct {
	Listener net.Listener // nil without a Listen operation
	// Notifier has the questions of the filter, nil where nobody can have them.
	// It ends with the helper.
	Notifier *Notifier
}

type reply struct {
	fd       int       // what came along, or -1
	notifier *Notifier // what came with a ready beside that
	err      error
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
	attr := &syscall.SysProcAttr{Setsid: true, UseCgroupFD: o.ControlGroup > 0, CgroupFD: max(o.ControlGroup, 0)}
	if os.Geteuid() == 0 {
		// Here and not later: in a user namespace groups cannot be set.
		attr.Credential = &syscall.Credential{Uid: uint32(o.UID), Gid: uint32(o.GID)}
		for _, g := range o.Groups {
			attr.Credential.Groups = append(attr.Credential.Groups, uint32(g))
		}
	}
	// The program is named by the number that it has in the new process: there
	// any other may have been covered, by what the runtime moves between fork and
	// exec. The helper closes it first of all.
	files := []*os.File{i.null, i.null, i.null, theirs, i.program}
	process, err := os.StartProcess("/proc/self/fd/"+strconv.Itoa(len(files)-1), []string{Name, o.ID}, &os.ProcAttr{
		Dir: "/", Env: []string{}, Files: files, Sys: attr,
	})
	if err != nil {
		conn.Close()
		return nil, &StartError{err}
	}
	h := &Helper{
		process: process, conn: conn.(*net.UnixConn), done: make(chan struct{}),
		set: make(chan reply, 1), pidfd: -1, waiting: map[uint32]*Running{},
	}
	go h.read()
	return h, nil
}

// PID is the outer process, for control groups; 0 where somebody else started
// the helper.
func (h *Helper) PID() int {
	if h.process == nil {
		return 0
	}
	return h.process.Pid
}

// Done is closed when the helper and everything inside have ended.
func (h *Helper) Done() <-chan struct{} { return h.done }

// MakeNamespaces lets the helper make its namespaces, with one user and one
// group that have the same number inside. A refusal comes with SetUp.
func (h *Helper) MakeNamespaces(uid, gid int) error {
	return h.send(message{kind: msgNamespaces, a: int32(uid), b: int32(gid)})
}

// Begin has the first part of the operations carried out. It does not wait: a
// refusal comes with Made or SetUp.
func (h *Helper) Begin(ops []Op) error { return h.sendList(ops, listMore) }

// Make has the first part carried out and waits for it. The helper then waits
// for as long as it takes until SetUp brings the rest.
func (h *Helper) Make(ctx context.Context, ops []Op) error {
	if err := h.sendList(ops, listTell); err != nil {
		return err
	}
	_, err := h.await(ctx, h.set)
	return err
}

// SetUp has the operations, or what is left of them, carried out and returns
// what was made inside for the node. After an error the helper is of no use.
func (h *Helper) SetUp(ctx context.Context, ops []Op) (Place, error) {
	if err := h.Finish(ops); err != nil {
		return Place{}, err
	}
	return h.Ready(ctx)
}

// Finish is SetUp without the waiting, which Ready does.
func (h *Helper) Finish(ops []Op) error { return h.sendList(ops, listLast) }

// Ready waits until everything has been carried out, as SetUp does.
func (h *Helper) Ready(ctx context.Context) (Place, error) {
	r, err := h.await(ctx, h.set)
	if err != nil || r.fd < 0 {
		return Place{Notifier: r.notifier}, err
	}
	file := os.NewFile(uintptr(r.fd), "listener")
	defer file.Close()
	ln, err := net.FileListener(file)
	return Place{Listener: ln, Notifier: r.notifier}, err
}

// sendList does not fail where the helper has left: it has said why.
func (h *Helper) sendList(ops []Op, follows int32) error {
	// A list can be large, since files come in it: made anew for each start it
	// would have the node collect its garbage in the middle of another.
	buf := lists.Get().(*[]byte)
	*buf = appendOps((*buf)[:0], ops)
	fd, err := memory(*buf)
	lists.Put(buf)
	if err != nil {
		return fmt.Errorf("%s: %w", StageProtocol, err)
	}
	defer unix.Close(fd)
	if err := h.send(message{kind: msgOperations, a: follows}, fd); err != nil && !hasLeft(err) {
		return err
	}
	return nil
}

// lists are buffers in which lists are encoded.
var lists = sync.Pool{New: func() any { return new([]byte) }}

// hasLeft reports whether sending failed because nobody is there any more.
func hasLeft(err error) bool {
	return errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, net.ErrClosed)
}

func (h *Helper) await(ctx context.Context, from chan reply) (reply, error) {
	select {
	case r := <-from:
		return r, r.err
	case <-ctx.Done():
		return reply{fd: -1}, fmt.Errorf("waiting for the sandbox's helper: %w", context.Cause(ctx))
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
		if errors.Is(err, unix.ECONNRESET) {
			continue // it left without reading all, but may have said why before
		}
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
	if h.notifier != nil {
		_ = h.notifier.Close()
	}
	if h.process != nil {
		_, _ = h.process.Wait()
	}
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
	case msgMade:
		h.answer(reply{fd: -1})
	case msgReady:
		return h.ready(m.a, fds)
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

// ready answers with what came along, in the order of its bits.
func (h *Helper) ready(which int32, fds []int) (kept bool) {
	r := reply{fd: -1}
	if which&readyListener != 0 && len(fds) > 0 {
		r.fd, fds = fds[0], fds[1:]
	}
	if which&readyNotifier != 0 && len(fds) > 0 {
		h.notifier = newNotifier(fds[0])
		r.notifier = h.notifier
	}
	if !h.answer(r) && r.fd >= 0 {
		unix.Close(r.fd)
	}
	return true // or closed, or to be closed
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
	if h.process == nil {
		// Frozen, perhaps: whoever made the sandbox ends it. Here it is over.
		_ = h.conn.Close()
		<-h.done
		return nil
	}
	_ = h.process.Kill()
	select {
	case <-h.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("ending sandbox helper %d: %w", h.process.Pid, context.Cause(ctx))
	}
}
