package child

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A Request is a command to start.
type Request struct {
	Candidates []string // absolute paths, tried in this order
	Argv, Env  []string
	Dir        string
	// Terminal asks for one of this size; otherwise Streams are 0, 1 and 2.
	Terminal      bool
	Columns, Rows uint16
	Streams       [3]int
	// Bare leaves the Landlock domain out that Keep gives every command: for
	// the node's own programs inside, which look at others.
	Bare bool
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
	if r.Bare {
		m.c |= execBare
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
		if hasLeft(err) {
			return nil, ErrGone
		}
		return nil, err
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

// Signal sends to the command's process group, nothing once it has ended, and
// is [os.ErrProcessDone] once the sandbox has.
func (c *Running) Signal(sig syscall.Signal) error {
	err := c.helper.send(message{kind: msgSignal, tag: c.tag, a: int32(sig)})
	if hasLeft(err) {
		return os.ErrProcessDone
	}
	return err
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
	found, err := readFindings(r, len(probes))
	// Its end is waited for: until then it counts against the limits of what
	// is started next.
	select {
	case <-c.Exited():
	case <-c.Gone():
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	return found, err
}
