package node

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// inside is a running session as one who comes later finds it.
type inside struct {
	box       sandbox.Sandbox
	directory string // of the session's own command
	ports     *ports
}

// Exec runs one more command in a session that runs, sealed as the session's
// own is. It ends with the session at the latest, and gets SIGHUP where its
// client goes.
func (n *Node) Exec(ctx context.Context, c console.Caller, id string, req api.ExecRequest, s console.Stream) api.Ended {
	l, err := n.living(ctx, c, id)
	if err != nil {
		return refused(err)
	}
	in := l.inside.Load()
	if in == nil {
		return refused(fault.Negative("session %s does not run yet", id).WithCode("not-yet").
			WithHint("`mojoup-node session show %s` says how far it has come", id))
	}
	cmd, err := in.command(req)
	if err != nil {
		return refused(err)
	}
	l.diary.note(api.EventCommand, "one more command: "+strings.Join(req.Command, " "))
	exit, err := l.another(ctx, in.box, cmd, s)
	if err != nil {
		return refused(err)
	}
	end := api.Ended{Code: exit.Code}
	// The command may be gone a moment before all that was with it.
	if l.show().State != string(session.Running) {
		end.Notices = append(end.Notices, "the session has ended, and its other commands with it")
	}
	return end
}

func (in *inside) command(req api.ExecRequest) (sandbox.Command, error) {
	switch {
	case len(req.Command) == 0 || req.Command[0] == "":
		return sandbox.Command{}, fault.Usage("there is no command to run").WithCode("bad-request")
	case req.Directory != "" && !filepath.IsAbs(req.Directory):
		return sandbox.Command{}, fault.Usage("the directory %q is not absolute", req.Directory).WithCode("bad-request")
	}
	cmd := sandbox.Command{Argv: req.Command, Dir: req.Directory, Env: req.Env, TTY: size(req.Terminal)}
	if cmd.Dir == "" {
		cmd.Dir = in.directory
	}
	return cmd, nil
}

func size(s *api.Size) *sandbox.Size {
	if s == nil {
		return nil
	}
	return &sandbox.Size{Columns: s.Columns, Rows: s.Rows}
}

// another starts a command and carries it to its end.
func (l *life) another(ctx context.Context, box sandbox.Sandbox, cmd sandbox.Command, s console.Stream) (sandbox.Exit, error) {
	pipes, err := openPipes(s, cmd.TTY != nil)
	if err != nil {
		return sandbox.Exit{}, fault.CannotRun("making the command's streams: %w", err)
	}
	defer pipes.close()
	proc, err := l.start(ctx, box, cmd, pipes.stdio)
	pipes.started(proc)
	if err != nil {
		return sandbox.Exit{}, execFailed(err, nil, "")
	}
	if err := s.Started(api.Started{Session: l.show(), Terminal: cmd.TTY != nil}); err != nil {
		_ = proc.Signal(goodbye(errClientGone))
	}
	pipes.serve()
	return l.accompany(ctx, box, proc, s)
}

// accompany waits for a command that is not the session's own, while its
// client's signals and sizes reach it. What is left of it when its client has
// gone and some time has passed is killed.
func (l *life) accompany(ctx context.Context, box sandbox.Sandbox, proc sandbox.Process, s console.Stream) (sandbox.Exit, error) {
	waited, letGo := l.await(ctx, proc)
	defer letGo()
	done, gone := ctx.Done(), box.Done()
	var grace, patience <-chan time.Time
	for {
		select {
		case e := <-waited:
			return e.exit, e.err
		case size := <-s.Resizes():
			_ = proc.Resize(sandbox.Size{Columns: size.Columns, Rows: size.Rows})
		case n := <-s.Signals():
			_ = proc.Signal(signalNumber(n))
		case <-done:
			done = nil
			s.Hurry(0) // nobody reads any more
			_ = proc.Signal(goodbye(errClientGone))
			grace = time.After(l.n.o.Times.HangUp)
		case <-grace:
			_ = proc.Signal(killed)
			patience = time.After(l.n.o.Times.HangUp)
		case <-gone:
			gone = nil
			s.Hurry(l.n.o.Times.HangUp)
			patience = time.After(l.n.o.Times.HangUp)
		case <-patience:
			return sandbox.Exit{}, fault.CannotRun("the session ended before the command")
		}
	}
}
