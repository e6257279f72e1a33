package child

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	if h.leaving() {
		m.c |= execSettled
	}
	return h.start(ctx, m, program(r.Dir, r.Candidates, r.Argv, r.Env), fds...)
}

func (h *Helper) start(ctx context.Context, m message, payload []byte, fds ...int) (*Running, error) {
	c, err := h.ask(m, payload, fds...)
	if err != nil {
		return nil, err
	}
	return c, c.begun(ctx)
}

// ask sends a request for a process. It does not wait for the answer.
func (h *Helper) ask(m message, payload []byte, fds ...int) (*Running, error) {
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
	return c, nil
}

// begun waits for the answer to ask.
func (c *Running) begun(ctx context.Context) error {
	got, err := c.helper.await(ctx, c.started)
	if err != nil {
		if ctx.Err() != nil { // it may have started all the same
			_ = c.Signal(syscall.SIGKILL)
			c.helper.forget(c.tag)
		}
		return err
	}
	if got.fd >= 0 {
		_ = unix.SetNonblock(got.fd, true) // so that a read ends when it is closed
		c.Terminal = os.NewFile(uintptr(got.fd), "terminal")
	}
	return nil
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

// Attempts are system calls that are being carried out inside.
type Attempts struct {
	running *Running
	results *os.File
	count   int
}

// Probe carries out system calls inside, one after the other.
func (h *Helper) Probe(ctx context.Context, probes []Probe) ([]Finding, error) {
	a, err := h.Try(probes)
	if err != nil {
		return nil, err
	}
	return a.Findings(ctx)
}

// Try has system calls carried out as Probe does, without waiting for them. It
// may be called before Ready: they are then the first thing that happens
// inside. Findings, Drop or Close must follow.
func (h *Helper) Try(probes []Probe) (*Attempts, error) {
	payload, err := encodeProbes(probes)
	if err != nil {
		return nil, err
	}
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	defer w.Close()
	c, err := h.ask(message{kind: msgExec, c: execProbes}, payload, int(w.Fd()))
	if err != nil {
		r.Close()
		return nil, err
	}
	return &Attempts{running: c, results: r, count: len(probes)}, nil
}

// Findings waits until all of them are over and says what came of each.
func (a *Attempts) Findings(ctx context.Context) ([]Finding, error) {
	defer a.results.Close()
	c := a.running
	if err := c.begun(ctx); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = c.Signal(syscall.SIGKILL)
		_ = a.results.SetReadDeadline(time.Unix(1, 0))
	})
	defer stop()
	found, err := readFindings(a.results, a.count)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	// It leaves now, which takes the kernel a moment. Until then it counts
	// against the limits of what is started next, and that waits for it.
	c.helper.mu.Lock()
	defer c.helper.mu.Unlock()
	c.helper.left = append(c.helper.left, c)
	return found, err
}

// leaving reports whether the processes of attempts that are over may still be
// there.
func (h *Helper) leaving() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.left = slices.DeleteFunc(h.left, func(c *Running) bool {
		select {
		case <-c.exited:
			return true
		default:
			return false
		}
	})
	return len(h.left) > 0
}

// Drop ends attempts whose findings nobody wants, and waits for that.
func (a *Attempts) Drop(ctx context.Context) {
	_ = a.running.Signal(syscall.SIGKILL)
	_, _ = a.Findings(ctx)
}

// Close is for attempts that end with their sandbox.
func (a *Attempts) Close() error { return a.results.Close() }
