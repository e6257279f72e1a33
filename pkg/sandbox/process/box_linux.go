package process

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"

	"github.com/creack/pty"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// box is a sandbox in name only: it keeps a session's commands together.
type box struct {
	log  *slog.Logger
	spec sandbox.Spec

	removing chan struct{} // holds one token: Remove is done by one at a time
	done     chan struct{}
	owned    sync.WaitGroup // every goroutine of every command

	mu sync.Mutex
	// mu guards everything that follows.
	removed  bool
	commands map[*command]bool // not yet collected
	pumps    map[*pump]bool    // still open; may outlive their command
}

func prepare(log *slog.Logger, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := validate(spec, os.Geteuid()); err != nil {
		return nil, fmt.Errorf("preparing an ordinary process: %w", err)
	}
	b := &box{
		log: log.With("sandbox", spec.ID), spec: spec,
		removing: make(chan struct{}, 1), done: make(chan struct{}),
		commands: map[*command]bool{}, pumps: map[*pump]bool{},
	}
	return b, nil
}

// Listener is nil: an ordinary process has the host's own network.
func (*box) Listener() net.Listener { return nil }

// Done is closed by Remove; an ordinary session does not end by itself.
func (b *box) Done() <-chan struct{} { return b.done }

// Check says that nothing is enforced. It never fails, because it claims
// nothing that could.
func (b *box) Check(ctx context.Context) (sandbox.Enforced, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	return facts(), nil
}

func (b *box) usable(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return sandbox.ErrGone
	}
	return nil
}

// Exec starts an ordinary process in a session of its own. An empty Dir is "/".
func (b *box) Exec(ctx context.Context, c sandbox.Command, stdio sandbox.Stdio) (sandbox.Process, error) {
	if err := b.usable(ctx); err != nil {
		return nil, err
	}
	cmd, err := b.command(c)
	if err != nil {
		return nil, err
	}
	p := &command{box: b, cmd: cmd, ended: make(chan struct{})}
	if err := p.connect(c.TTY, stdio); err != nil {
		p.abandon()
		return nil, fmt.Errorf("streams of %s: %w", c.Argv[0], err)
	}
	if err := b.start(p, c.Argv[0]); err != nil {
		p.abandon()
		return nil, err
	}
	return p, nil
}

// command fills what does not depend on streams.
func (b *box) command(c sandbox.Command) (*exec.Cmd, error) {
	if len(c.Argv) == 0 || c.Argv[0] == "" {
		return nil, fmt.Errorf("command without a program")
	}
	if strings.Contains(strings.Join(c.Argv, ""), "\x00") {
		return nil, fmt.Errorf("command %q: an argument holds a zero byte", c.Argv[0])
	}
	dir := c.Dir
	if dir == "" {
		dir = "/"
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("working directory: %w", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("working directory %s: %w", dir, syscall.ENOTDIR)
	}
	env := merge(b.spec.Env, c.Env)
	path, err := lookup(c.Argv[0], dir, env)
	if err != nil {
		return nil, err
	}
	return &exec.Cmd{
		Path: path, Args: c.Argv, Env: env, Dir: dir,
		SysProcAttr: &syscall.SysProcAttr{Setsid: true, Credential: credential(b.spec.Identity)},
	}, nil
}

// credential is nil where the node already is who is asked for: only root may
// set groups, even to what they are.
func credential(id sandbox.Identity) *syscall.Credential {
	if os.Geteuid() != 0 {
		return nil
	}
	groups := make([]uint32, len(id.Groups))
	for i, g := range id.Groups {
		groups[i] = uint32(g)
	}
	return &syscall.Credential{Uid: uint32(id.UID), Gid: uint32(id.GID), Groups: groups}
}

// start runs p. The lock is held over the fork, so that a Remove either
// sees the command or keeps it from starting.
func (b *box) start(p *command, program string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.removed {
		return sandbox.ErrGone
	}
	if err := p.cmd.Start(); err != nil {
		if isExecFailure(err) {
			return execError(program, err)
		}
		return fmt.Errorf("starting %s: %w", program, err)
	}
	p.pid = p.cmd.Process.Pid
	b.commands[p] = true
	for _, u := range p.pumps {
		b.pumps[u] = true
		b.owned.Go(func() { b.pump(u) })
	}
	p.run()
	return nil
}

func (b *box) pump(u *pump) {
	u.run()
	b.mu.Lock()
	delete(b.pumps, u)
	b.mu.Unlock()
}

// Remove ends everything that the commands started; see the package comment
// for what cannot be found.
func (b *box) Remove(ctx context.Context) error {
	select {
	case b.removing <- struct{}{}:
		defer func() { <-b.removing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	b.mu.Lock()
	b.removed = true
	sessions, all := map[int]bool{}, []*command{}
	for c := range b.commands {
		sessions[c.pid] = true
		all = append(all, c)
	}
	b.mu.Unlock()

	killed, err := endSessions(ctx, sessions)
	if killed > 0 {
		b.log.Info("ended processes", "count", killed)
	}
	if err != nil {
		return fmt.Errorf("ending processes of %s: %w", b.spec.ID, err)
	}
	return b.collect(ctx, all)
}

// collect reaps the commands and waits for every goroutine.
func (b *box) collect(ctx context.Context, all []*command) error {
	for _, c := range all {
		if _, err := c.Wait(ctx); err != nil {
			return err
		}
		c.reap()
	}
	b.mu.Lock()
	for u := range b.pumps { // somebody who got away may hold the other end
		_ = u.r.Close()
	}
	b.mu.Unlock()
	idle := make(chan struct{})
	go func() { b.owned.Wait(); close(idle) }()
	select {
	case <-idle:
	case <-ctx.Done():
		return ctx.Err()
	}
	select {
	case <-b.done:
	default:
		close(b.done)
	}
	return nil
}

// terminal opens a terminal of the given size.
func terminal(size sandbox.Size) (master, slave *os.File, err error) {
	master, slave, err = pty.Open()
	if err != nil {
		return nil, nil, err
	}
	if err := resize(master, size); err != nil {
		_, _ = master.Close(), slave.Close()
		return nil, nil, err
	}
	return master, slave, nil
}

func resize(master *os.File, s sandbox.Size) error {
	return pty.Setsize(master, &pty.Winsize{Cols: s.Columns, Rows: s.Rows})
}
