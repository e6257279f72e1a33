package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A command is one started process, leader of its own session and group.
type command struct {
	box    *box
	cmd    *exec.Cmd
	pid    int
	master *os.File // nil without a terminal

	pumps []*pump
	stdin io.Reader // copied into feed; nil where the file itself was given
	feed  *os.File
	child []*os.File // ends that belong to the child

	ended chan struct{} // closed when exit is known and all output delivered
	exit  sandbox.Exit
	err   error

	mu sync.Mutex
	// mu guards everything that follows, and with it the meaning of pid: a
	// number that has been collected may be somebody else's.
	over, collected bool
}

// connect opens the streams.
func (p *command) connect(size *sandbox.Size, s sandbox.Stdio) error {
	if size != nil {
		master, slave, err := terminal(*size)
		if err != nil {
			return fmt.Errorf("opening a terminal: %w", err)
		}
		p.master, p.child = master, append(p.child, slave)
		p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = slave, slave, slave
		p.cmd.SysProcAttr.Setctty = true
		return p.giveTerminal(slave)
	}
	if err := p.input(s.Stdin); err != nil {
		return err
	}
	var err error
	if p.cmd.Stdout, err = p.output(s.Stdout); err != nil {
		return err
	}
	p.cmd.Stderr, err = p.output(s.Stderr)
	return err
}

// giveTerminal makes the command's user the owner of the terminal, as a login
// would: programs open /dev/tty by name.
func (p *command) giveTerminal(slave *os.File) error {
	c := p.cmd.SysProcAttr.Credential
	if c == nil {
		return nil
	}
	return slave.Chown(int(c.Uid), int(c.Gid))
}

func (p *command) input(r io.Reader) error {
	if f, ok := r.(*os.File); ok || r == nil {
		if ok && f != nil {
			p.cmd.Stdin = f
		}
		return nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return err
	}
	p.cmd.Stdin, p.stdin, p.feed = read, r, write
	p.child = append(p.child, read)
	return nil
}

func (p *command) output(w io.Writer) (io.Writer, error) {
	if w == nil {
		return nil, nil
	}
	if f, ok := w.(*os.File); ok {
		return f, nil
	}
	read, write, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	p.pumps, p.child = append(p.pumps, newPump(read, w)), append(p.child, write)
	return write, nil
}

// abandon closes every end of a command that was never started.
func (p *command) abandon() {
	p.closeChildEnds()
	for _, u := range p.pumps {
		_ = u.r.Close()
	}
	if p.feed != nil {
		_ = p.feed.Close()
	}
	if p.master != nil {
		_ = p.master.Close()
	}
}

func (p *command) closeChildEnds() {
	for _, f := range p.child {
		_ = f.Close()
	}
}

// run starts the goroutines. The one that reads the caller's Stdin cannot be
// waited for, because a foreign Read cannot be interrupted: it ends at the
// next return of that Read.
func (p *command) run() {
	p.closeChildEnds()
	if p.stdin != nil {
		go func() { _, _ = io.Copy(p.feed, p.stdin); _ = p.feed.Close() }()
	}
	p.box.owned.Go(p.await)
}

// await learns how the command ended, and sees to it that all that it wrote
// has been delivered.
func (p *command) await() {
	defer close(p.ended)
	p.exit, p.err = awaitExit(p.pid)
	p.mu.Lock()
	p.over = true
	p.mu.Unlock()
	if p.feed != nil {
		_ = p.feed.Close()
	}
	for _, u := range p.pumps {
		u.commandEnded()
		<-u.drained
	}
	if p.alone() {
		p.reap()
	}
}

// awaitExit waits for the end of a child without collecting it: as long as it
// is not collected its number cannot become another session's.
func awaitExit(pid int) (sandbox.Exit, error) {
	var info unix.Siginfo
	for {
		err := unix.Waitid(unix.P_PID, pid, &info, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			break
		}
		if !errors.Is(err, unix.EINTR) {
			return sandbox.Exit{}, fmt.Errorf("waiting for process %d: %w", pid, err)
		}
	}
	// siginfo_t (sigaction(2)) on 64-bit Linux: three ints, one of padding,
	// si_pid, si_uid, si_status. x/sys does not name the last.
	status := int((*[7]int32)(unsafe.Pointer(&info))[6])
	const exited = 1 // CLD_EXITED
	if info.Code == exited {
		return sandbox.Exit{Code: status}, nil
	}
	return sandbox.Exit{Code: 128 + status, Signal: status}, nil
}

// alone reports whether nothing of the command's session lives on. If
// something does, the command stays uncollected, so that Remove can find it.
func (p *command) alone() bool {
	all, err := snapshot()
	return err == nil && len(belonging(all, map[int]bool{p.pid: true})) == 0
}

// reap collects the ended command and forgets it.
func (p *command) reap() {
	p.mu.Lock()
	if !p.collected {
		p.collected = true
		_ = p.cmd.Wait() // how it ended is known already
	}
	p.mu.Unlock()
	p.box.mu.Lock()
	delete(p.box.commands, p)
	p.box.mu.Unlock()
}

// Wait returns when the command has ended and its own output is delivered.
func (p *command) Wait(ctx context.Context) (sandbox.Exit, error) {
	select {
	case <-p.ended:
		return p.exit, p.err
	default:
	}
	select {
	case <-p.ended:
		return p.exit, p.err
	case <-ctx.Done():
		return sandbox.Exit{}, ctx.Err()
	}
}

// Signal sends to the process group. After the end it is os.ErrProcessDone.
func (p *command) Signal(sig os.Signal) error {
	s, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: %w", sig, errors.ErrUnsupported)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.over {
		return os.ErrProcessDone
	}
	return syscall.Kill(-p.pid, s)
}

// Resize changes the terminal's size; the kernel tells the foreground group.
func (p *command) Resize(s sandbox.Size) error {
	if p.master == nil {
		return nil
	}
	return resize(p.master, s)
}

// Terminal is the master side, or nil.
func (p *command) Terminal() *os.File { return p.master }

// isExecFailure separates what the program is to blame for from a node that
// cannot fork.
func isExecFailure(err error) bool {
	for _, e := range []error{
		syscall.ENOENT, syscall.EACCES, syscall.ENOEXEC, syscall.ENOTDIR, syscall.EISDIR,
		syscall.ELOOP, syscall.EPERM, syscall.E2BIG, syscall.ETXTBSY, syscall.ELIBBAD, syscall.ENAMETOOLONG,
	} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
