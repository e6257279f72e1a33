package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Why a session is ended before its command has ended.
var (
	errNodeStops  = errors.New("the node stopped")
	errClientGone = errors.New("its client went away")
	errStopped    = errors.New("it was stopped")
)

const (
	// hangUpGrace is how long a command has after SIGHUP or SIGTERM.
	hangUpGrace = 5 * time.Second
	// removeWithin bounds the teardown of one session.
	removeWithin = 30 * time.Second
)

// life is one session on its way from asked for to gone. Its methods run in
// the order of this file; only stop and the counters are called from outside.
type life struct {
	n       *Node
	id      session.ID
	req     api.RunRequest
	client  console.Stream
	caller  console.Caller
	row     store.Session
	begun   time.Time // of the stage that runs
	stages  []api.Stage
	cancel  context.CancelCauseFunc
	gone    chan struct{} // closed when nothing of it is left
	allowed atomic.Int64
	denied  atomic.Int64

	mu    sync.Mutex // guards shown
	shown api.Session
}

// Run carries one session from asked for to gone.
func (n *Node) Run(ctx context.Context, c console.Caller, req api.RunRequest, s console.Stream) api.Ended {
	if err := n.mayAsk(c); err != nil {
		return refused(err)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l := &life{
		n: n, id: session.New(), req: req, client: s, caller: c, begun: time.Now(),
		stages: []api.Stage{}, cancel: cancel, gone: make(chan struct{}),
	}
	if err := n.enter(l); err != nil {
		return refused(err)
	}
	defer close(l.gone)
	defer n.leave(l)
	return l.run(ctx)
}

// refused is the end of a session that never ran.
func refused(err error) api.Ended {
	p := fault.As(err).Problem()
	if p.Exit < fault.ExitCannotRun && p.Exit != fault.ExitUsage {
		p.Exit = fault.ExitCannotRun
	}
	return api.Ended{Code: p.Exit, Problem: p}
}

// mayAsk lets in the node's own user only: what a session may touch is what
// that user may touch, and nobody else's files are ever opened by name.
func (n *Node) mayAsk(c console.Caller) error {
	if c.UID == n.uid {
		return nil
	}
	return &api.Problem{Code: "not-allowed", Sentence: fmt.Sprintf("this node serves user %s only", n.user.Username), Exit: 125,
		Hint: "run your own node: `mojoup-node run` starts one"}
}

func (l *life) stop(why error) { l.cancel(why) }

// stage ends one stage of the start and begins the next.
func (l *life) stage(name string) {
	now := time.Now()
	l.stages = append(l.stages, api.Stage{Name: name, Milliseconds: float64(now.Sub(l.begun).Microseconds()) / 1000})
	l.begun = now
}

func (l *life) run(ctx context.Context) api.Ended {
	p, err := l.prepare(ctx)
	if err != nil {
		return refused(err)
	}
	if err := l.record(ctx, p); err != nil {
		return refused(err)
	}
	code, err := l.carry(ctx, p)
	return l.finish(context.WithoutCancel(ctx), code, err)
}

// record writes the session and all of its undo down, before the first act.
func (l *life) record(ctx context.Context, p prepared) error {
	l.row = store.Session{
		ID: l.id, State: session.Staging, User: l.n.user.Username, UID: l.caller.UID,
		Repository: p.repository.Top, Tool: l.req.Tool, Command: p.command.Argv,
		Engine: p.engine.Name(), Sandboxed: p.sandboxed, Since: time.Now(), Node: l.n.key,
		Notices: p.notices,
	}
	var undo []store.Undo
	for _, u := range p.engine.Undo(p.spec) {
		undo = append(undo, store.Undo{Owner: enginePart(p.engine.Name()), Undo: u})
	}
	err := l.n.store.CreateSession(ctx, l.row, undo)
	l.publish()
	l.stage("journal")
	return err
}

// carry makes the sandbox, serves its way out, runs the command in it and
// takes everything down again. The code is the command's own.
func (l *life) carry(ctx context.Context, p prepared) (code int, err error) {
	box, err := p.engine.Prepare(ctx, p.spec)
	if err != nil {
		return 0, cannotStart(err)
	}
	wayOut := l.serveWayOut(ctx, p, box.Listener())
	defer func() {
		// On every path, whatever has become of ctx.
		down, cancel := context.WithTimeout(context.WithoutCancel(ctx), removeWithin)
		defer cancel()
		l.stopping(down)
		rerr := box.Remove(down)
		wayOut()
		if rerr == nil {
			rerr = l.n.store.UndoAllDone(down, l.id)
		}
		if rerr != nil {
			l.n.log.Error("teardown", "session", l.id, "err", rerr)
			err = errors.Join(err, fmt.Errorf("tearing the sandbox down: %w", rerr))
		}
	}()
	l.stage("sandbox")
	if err := l.move(ctx, session.Starting, nil); err != nil {
		return 0, err
	}
	enforced, err := box.Check(ctx)
	if err != nil {
		return 0, cannotStart(err)
	}
	l.stage("self-check")
	return l.command(ctx, p, box, enforced)
}

// cannotStart keeps an engine's sentence and makes it the node's refusal.
func cannotStart(err error) error {
	if errors.Is(err, context.Canceled) {
		return errClientGone
	}
	return fault.CannotRun("starting the sandbox: %w", err)
}

// serveWayOut serves the session's listener until the returned function is
// called, which waits for the last connection.
func (l *life) serveWayOut(ctx context.Context, p prepared, ln net.Listener) (end func()) {
	if ln == nil {
		return func() {}
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() {
		err := l.n.proxy.Serve(serving, ln, egress.Session{
			ID: string(l.id), Judge: func() egress.Judge { return p.policy }, CA: p.authority, Record: l.verdict,
		})
		if err != nil && serving.Err() == nil {
			l.n.log.Error("way out", "session", l.id, "err", err)
		}
	})
	return func() {
		cancel()
		_ = ln.Close()
		done.Wait()
	}
}

// command runs the session's command with the client's streams.
func (l *life) command(ctx context.Context, p prepared, box sandbox.Sandbox, enforced sandbox.Enforced) (int, error) {
	pipes, err := l.openPipes(p.command.TTY != nil)
	if err != nil {
		return 0, fault.CannotRun("making the command's streams: %w", err)
	}
	// Written before acted on: the command may ask who it is at once.
	err = l.move(ctx, session.Running, func(row *store.Session) {
		row.Stages, row.Enforced = l.stages, append(enforced, p.facts...)
	})
	var proc sandbox.Process
	if err == nil {
		if proc, err = box.Exec(ctx, p.command, pipes.stdio); err != nil {
			err = execFailed(err)
		}
	}
	pipes.started()
	if err == nil {
		l.stage("command")
		l.publish()
		err = l.client.Started(api.Started{Session: l.show()})
	}
	if err != nil {
		pipes.close()
		return 0, err
	}
	exit, err := l.attend(ctx, box, proc, pipes)
	if err != nil {
		return 0, err
	}
	return exit.Code, nil
}

func execFailed(err error) error {
	if e, ok := errors.AsType[*sandbox.ExecError](err); ok {
		f := fault.As(e).WithExit(e.Code)
		if e.Code == 127 {
			return f.WithHint("inside there are /usr, /opt, the directories of PATH and known toolchains; a program elsewhere is not there")
		}
		return f
	}
	return cannotStart(err)
}

// attend waits for the command while the client's signals and sizes reach it.
// A session that is to end early gets SIGHUP or SIGTERM and some grace; what
// is still there after that ends with the sandbox.
func (l *life) attend(ctx context.Context, box sandbox.Sandbox, proc sandbox.Process, pipes *pipes) (sandbox.Exit, error) {
	pipes.serve(proc)
	defer pipes.close()
	type ended struct {
		exit sandbox.Exit
		err  error
	}
	waited := make(chan ended, 1)
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var waiter sync.WaitGroup
	waiter.Go(func() {
		exit, err := proc.Wait(waiting)
		waited <- ended{exit, err}
	})
	defer waiter.Wait()
	defer cancel()
	var grace <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case e := <-waited:
			if early := context.Cause(ctx); early != nil {
				return e.exit, early
			}
			return e.exit, e.err
		case size := <-l.client.Resizes():
			_ = proc.Resize(sandbox.Size{Columns: size.Columns, Rows: size.Rows})
		case n := <-l.client.Signals():
			_ = proc.Signal(signalNumber(n))
		case <-done:
			done = nil
			l.stopping(context.WithoutCancel(ctx))
			_ = proc.Signal(goodbye(context.Cause(ctx)))
			grace = time.After(hangUpGrace)
		case <-grace:
			return sandbox.Exit{}, context.Cause(ctx)
		case <-box.Done():
			select {
			case e := <-waited:
				return e.exit, e.err
			case <-time.After(time.Second): // the exit may still be on its way
				return sandbox.Exit{}, fault.CannotRun("the sandbox ended before its command")
			}
		}
	}
}

// finish writes the end down and tells the client.
func (l *life) finish(ctx context.Context, code int, err error) api.Ended {
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	early := errors.Is(err, errStopped) || errors.Is(err, errNodeStops) || errors.Is(err, errClientGone) || errors.Is(err, context.Canceled)
	ended := api.Ended{Code: code}
	to, reason := session.Gone, ""
	switch {
	case early:
		reason = because(err)
		ended.Problem = &api.Problem{Code: "ended", Sentence: "the session was ended: " + reason, Exit: fault.ExitCannotRun}
		ended.Code = ended.Problem.Exit
	case err != nil:
		f := fault.As(err)
		to, reason = session.Failed, f.Sentence
		ended.Problem = f.Problem()
		ended.Code = f.Exit
		if f.Exit < fault.ExitCannotRun {
			ended.Code, ended.Problem.Exit = fault.ExitCannotRun, fault.ExitCannotRun
		}
	}
	merr := l.move(ctx, to, func(row *store.Session) {
		row.Ended, row.Reason, row.Stages = time.Now(), reason, l.stages
		if ended.Problem == nil {
			row.ExitCode = &code
		}
	})
	if merr != nil {
		l.n.log.Error("writing the end of a session down", "session", l.id, "err", merr)
	}
	return ended
}

// because says in words why a session ended early.
func because(err error) string {
	for _, e := range []error{errStopped, errNodeStops} {
		if errors.Is(err, e) {
			return e.Error()
		}
	}
	return errClientGone.Error()
}

// move writes a new state down, then shows it.
func (l *life) move(ctx context.Context, to session.State, change func(*store.Session)) error {
	err := l.n.store.MoveSession(ctx, l.id, to, func(row *store.Session) {
		if change != nil {
			change(row)
		}
		l.row = *row
	})
	if err != nil {
		return err
	}
	l.row.State = to
	l.publish()
	return nil
}

// stopping is written down before the teardown begins, once.
func (l *life) stopping(ctx context.Context) {
	if l.row.State == session.Stopping {
		return
	}
	if err := l.move(ctx, session.Stopping, nil); err != nil {
		l.n.log.Error("writing a session's stopping down", "session", l.id, "err", err)
	}
}

func (l *life) publish() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.shown = l.row.API()
	l.shown.Stages = slices.Clone(l.stages)
}

// show is the session as listings see it now.
func (l *life) show() api.Session {
	l.mu.Lock()
	s := l.shown
	l.mu.Unlock()
	s.Allowed, s.Denied = int(l.allowed.Load()), int(l.denied.Load())
	return s
}
