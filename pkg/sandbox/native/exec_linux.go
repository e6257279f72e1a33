package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

const defaultPath = "/usr/local/bin:/usr/bin:/bin"

// Exec starts a command inside. Commands of one sandbox share everything but
// their Landlock domain: one cannot trace another, but can signal it.
func (b *box) Exec(ctx context.Context, c sandbox.Command, stdio sandbox.Stdio) (sandbox.Process, error) {
	return b.exec(ctx, c, stdio, false)
}

// exec starts a command; a bare one lacks the Landlock rules of its own.
func (b *box) exec(ctx context.Context, c sandbox.Command, stdio sandbox.Stdio, bare bool) (sandbox.Process, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	request, err := b.request(c)
	if err != nil {
		return nil, err
	}
	b.unlooked(ctx)
	request.Bare = bare
	p := &process{bounds: b.bounds, before: b.bounds.seen()}
	if c.TTY == nil {
		if p.streams, err = connect(stdio); err != nil {
			return nil, fmt.Errorf("streams of %s: %w", c.Argv[0], err)
		}
		request.Streams = p.streams.fds()
	}
	p.running, err = b.helper.Exec(ctx, request)
	p.streams.release()
	if err != nil {
		p.streams.close()
		return nil, b.bounds.refused(execError(c, err))
	}
	p.streams.start(&b.owned, p.running.Exited(), p.running.Gone())
	b.wake()
	return p, nil
}

func (b *box) request(c sandbox.Command) (child.Request, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return child.Request{}, errors.New("command without a program")
	}
	for _, text := range append([]string{c.Dir}, c.Argv...) {
		if strings.IndexByte(text, 0) >= 0 {
			return child.Request{}, fmt.Errorf("command %q: zero byte in an argument or the directory", c.Argv[0])
		}
	}
	if err := checkEnv(c.Env); err != nil {
		return child.Request{}, err
	}
	r := child.Request{Argv: c.Argv, Env: merge(b.spec.Env, c.Env), Dir: c.Dir}
	switch {
	case r.Dir == "":
		r.Dir = "/"
	case !path.IsAbs(r.Dir):
		return child.Request{}, fmt.Errorf("command %q: directory %q is not absolute", c.Argv[0], c.Dir)
	}
	r.Candidates = candidates(c.Argv[0], r.Env)
	if c.TTY != nil {
		r.Terminal, r.Columns, r.Rows = true, c.TTY.Columns, c.TTY.Rows
	}
	return r, nil
}

// candidates are the files that a program's name may mean, by the PATH
// inside: only there can be seen which of them exists. An empty entry would
// mean the working directory, which belongs to the session: left out.
func candidates(name string, env []string) []string {
	if strings.ContainsRune(name, '/') {
		return []string{name}
	}
	search := defaultPath
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, "PATH="); ok {
			search = v
		}
	}
	var out []string
	for _, dir := range strings.Split(search, ":") {
		if path.IsAbs(dir) {
			out = append(out, path.Join(dir, name))
		}
	}
	return out
}

// merge keeps the first place and the last value of each variable.
func merge(lists ...[]string) []string {
	at := map[string]int{}
	var out []string
	for _, kv := range slices.Concat(lists...) {
		name, _, _ := strings.Cut(kv, "=")
		if i, ok := at[name]; ok {
			out[i] = kv
			continue
		}
		at[name] = len(out)
		out = append(out, kv)
	}
	return out
}

// execError turns a refusal into what a shell would say.
func execError(c sandbox.Command, err error) error {
	var stage *child.StageError
	switch {
	case errors.Is(err, child.ErrGone):
		return sandbox.ErrGone
	case !errors.As(err, &stage):
		return err
	case stage.Stage == child.StageProgram && stage.Errno == unix.ENOENT:
		return &sandbox.ExecError{Program: c.Argv[0], Code: 127, Err: stage.Errno}
	case stage.Stage == child.StageProgram:
		return &sandbox.ExecError{Program: c.Argv[0], Code: 126, Err: stage.Errno}
	case stage.Stage == child.StageDir:
		return &sandbox.ExecError{Program: c.Argv[0], Code: 126, Err: fmt.Errorf("working directory %s: %w", stage.Operand, stage.Errno)}
	}
	return fmt.Errorf("starting %s: %w", c.Argv[0], err)
}

// process is one command inside.
type process struct {
	running *child.Running
	streams *streams
	bounds  *bounds
	before  seen        // what the limits had done when it was started
	killed  atomic.Bool // somebody sent it SIGKILL
	ended   sync.Once
	exit    sandbox.Exit // set by ended
}

// Wait returns when the command has ended and what it wrote has been handed
// on. Its children may live, and hold the pipes: they are not waited for.
func (p *process) Wait(ctx context.Context) (sandbox.Exit, error) {
	if ctx.Err() != nil {
		return sandbox.Exit{}, context.Cause(ctx)
	}
	select {
	case <-p.running.Exited():
	case <-p.running.Gone():
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	}
	select {
	case <-p.streams.drained():
	case <-ctx.Done():
		return sandbox.Exit{}, context.Cause(ctx)
	}
	p.ended.Do(func() {
		killed := p.killed.Load()
		select {
		case <-p.running.Exited():
			p.exit = exitOf(p.running.Status())
		default: // killed with the sandbox, and nobody was left to say so
			p.exit = sandbox.Exit{Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)}
			killed = killed || p.bounds.removing.Load()
		}
		p.bounds.tell(&p.exit, p.before, killed)
	})
	return p.exit, nil
}

func exitOf(s syscall.WaitStatus) sandbox.Exit {
	if s.Signaled() {
		return sandbox.Exit{Code: 128 + int(s.Signal()), Signal: int(s.Signal())}
	}
	return sandbox.Exit{Code: s.ExitStatus()}
}

// Signal sends to the command's process group; os.ErrProcessDone once it has
// ended.
func (p *process) Signal(sig os.Signal) error {
	number, ok := sig.(syscall.Signal)
	if !ok {
		return fmt.Errorf("signal %v: not one of this system", sig)
	}
	select {
	case <-p.running.Exited():
		return os.ErrProcessDone
	case <-p.running.Gone():
		return os.ErrProcessDone
	default:
		if number == unix.SIGKILL {
			p.killed.Store(true)
		}
		return p.running.Signal(number)
	}
}

// Terminal is the master side of the command's terminal, or nil.
func (p *process) Terminal() *os.File { return p.running.Terminal }

// Resize tells the terminal its size; the kernel tells the foreground group.
func (p *process) Resize(s sandbox.Size) error {
	if p.running.Terminal == nil {
		return nil
	}
	conn, err := p.running.Terminal.SyscallConn()
	if err != nil {
		return fmt.Errorf("resizing the terminal: %w", err)
	}
	var failed error
	err = conn.Control(func(fd uintptr) {
		failed = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Rows, Col: s.Columns})
	})
	if err := errors.Join(err, failed); err != nil {
		return fmt.Errorf("resizing the terminal: %w", err)
	}
	return nil
}
