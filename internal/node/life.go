package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/recording"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// life is one session on its way from asked for to gone. Its methods run in
// the order of this file; only stop and the counters are called from outside.
type life struct {
	n       *Node
	id      session.ID
	req     api.RunRequest
	client  console.Stream // the hub
	hub     *hub
	diary   *diary
	caller  console.Caller
	row     store.Session
	begun   time.Time // of the stage that runs
	stages  []api.Stage
	cancel  context.CancelCauseFunc
	gone    chan struct{}                   // closed when nothing of it is left
	ended   api.Ended                       // once gone is closed
	has     atomic.Pointer[[]sandbox.Mount] // of the host, from before its secrets were looked at
	allowed atomic.Int64
	denied  atomic.Int64
	tally   tally
	// wasClosed says that something was asked while the way out was closed.
	wasClosed atomic.Bool
	closing   []string // lines about what limits did to the session, and about what it left
	left      history  // of its repository, once its sandbox has gone
	inside    atomic.Pointer[inside]
	told      atomic.Pointer[told]
	refusals  []string          // closing lines about refused calls
	kept      *recording.Writer // of what its terminal shows, or nil
	keys      keys
	tool      *tool      // nil where it runs any other command
	lent      []*lent    // sign-ins that it has
	staging   sync.Mutex // is held while a file of theirs is put inside
	judged    row        // its push that git is asked about
	cause     string     // the limit that ended the command, in words

	guarded *guard // once there is a sandbox

	mu    sync.Mutex // guards shown
	shown api.Session
}

// Run carries one session from asked for to gone.
func (n *Node) Run(ctx context.Context, c console.Caller, req api.RunRequest, s console.Stream) api.Ended {
	if err := n.mayAsk(c); err != nil {
		return refused(err)
	}
	c = n.within(c)
	hub := newHub(req.Terminal, req.Detach)
	l := &life{
		n: n, id: session.New(), req: req, client: hub, hub: hub, diary: newDiary(), caller: c, begun: time.Now(),
		stages: []api.Stage{}, gone: make(chan struct{}), judged: make(row, 1),
	}
	l.keys = keys{ring: n.book.Open(string(l.id)), kept: map[string]source.Reference{}}
	hub.notedDown = func(line string) { l.diary.note(api.EventNotice, line) }
	return l.begin(n.observed(ctx), s)
}

// refused is the end of a session that never ran.
func refused(err error) api.Ended {
	p := fault.As(err).Problem()
	if p.Exit < fault.ExitCannotRun && p.Exit != fault.ExitUsage {
		p.Exit = fault.ExitCannotRun
	}
	return api.Ended{Code: p.Exit, Problem: p}
}

func (l *life) stop(why error) { l.cancel(why) }

// stage ends one stage of the start and begins the next.
func (l *life) stage(name string) {
	now := time.Now()
	took := float64(now.Sub(l.begun).Microseconds()) / 1000
	l.stages = append(l.stages, api.Stage{Name: name, Milliseconds: took})
	l.diary.note(api.EventStage, fmt.Sprintf("%s took %.1f ms", name, took))
	l.begun = now
	if l.n.o.Observe != nil {
		l.n.o.Observe("stage " + name)
	}
}

func (l *life) run(ctx context.Context) api.Ended {
	// However far it has come: a client that takes nothing must not hold up an
	// end that has begun.
	hurry := context.AfterFunc(ctx, func() { l.client.Hurry(l.n.o.Times.HangUp) })
	defer hurry()
	defer l.keys.ring.Close() // its stand-ins are void
	defer l.returnSignIns()
	p, release, err := l.admitted(ctx)
	defer release() // when nothing is left of it
	if err == nil {
		p, err = bounded(ctx, l.n.o.Times.Patience, func() (prepared, error) { return l.plan(ctx, p) }, nil)
	}
	if err == nil {
		err = l.record(ctx, p)
	}
	if err != nil {
		if ctx.Err() != nil {
			return endedEarly(ctx)
		}
		return refused(l.goneMeanwhile(err, p, whileStarting))
	}
	code, err, left := l.carry(ctx, p)
	return l.finish(ctx, code, err, left)
}

// record writes the session and all of its undo down, before the first act.
func (l *life) record(ctx context.Context, p prepared) error {
	l.row = store.Session{
		ID: l.id, State: session.Staging, User: l.n.user.Username, UID: l.caller.UID,
		Repository: p.repository.Top, Tool: l.req.Tool, Command: p.command.Argv,
		Engine: p.engine.Name(), Sandboxed: p.sandboxed, Since: time.Now(), Node: l.n.key,
		Notices: p.notices,
	}
	if others := l.n.working(p.repository.Top); len(others) > 0 {
		line := "also at work in this working tree, and each sees what the other writes: session " + several(others)
		l.row.Notices = append(l.row.Notices, line)
		l.client.Notice(line)
	}
	if l.req.RecordTerminal {
		l.row.Notices = append(l.row.Notices, recordedNotice)
	}
	var undo []store.Undo
	for _, u := range p.engine.Undo(p.spec) {
		undo = append(undo, store.Undo{Owner: enginePart(p.engine.Name()), Undo: u})
	}
	if p.repository.GitDir != "" {
		l.diary.note(api.EventHead, cmp.Or(p.repository.Head(), noCommit))
	}
	err := l.n.store.CreateSession(ctx, l.row, undo)
	l.publish()
	l.stage("journal")
	return err
}

// carry makes the sandbox, serves its way out, runs the command in it and
// takes everything down again. The code is the command's own, err is why there
// is none, and left says that something may be left of the sandbox.
func (l *life) carry(ctx context.Context, p prepared) (code int, err error, left error) {
	making := sandbox.Narrate(ctx, l.client.Notice)
	box, err := bounded(ctx, l.n.o.Times.Patience, func() (sandbox.Sandbox, error) { return p.engine.Prepare(making, p.spec) }, func(late sandbox.Sandbox) {
		_ = late.Remove(context.WithoutCancel(ctx))
	})
	if err != nil {
		return 0, l.goneMeanwhile(cannotStart(err), p, whileStarting), l.sweep(ctx)
	}
	// Before the way out answers: after that answer the self-check looks whether
	// all stands, and what goes later is noticed.
	guard := l.guard(ctx, p)
	l.guarded = guard
	wayOut := l.serveWayOut(ctx, p, box)
	told := l.follow(ctx, box)
	door := l.watchDoor(box)
	defer func() {
		if err != nil { // else the client has taken all that there was
			l.client.Hurry(l.n.o.Times.HangUp)
		}
		guard.stop() // the teardown takes the protections away
		left = l.remove(ctx, box, wayOut)
		l.refusals = told.end(ctx)
		l.closing = append(l.closing, door()...)
		l.left = guard.end(ctx)
		l.closing = append(l.closing, l.left.lines...)
	}()
	l.stage("sandbox")
	if err := l.move(ctx, session.Starting, nil); err != nil {
		return 0, err, nil
	}
	enforced, err := bounded(ctx, l.n.o.Times.Patience, func() (sandbox.Enforced, error) { return box.Check(ctx) }, nil)
	if err != nil {
		return 0, l.goneMeanwhile(cannotStart(err), p, whileStarting), nil
	}
	<-guard.surveyed
	l.stage("self-check")
	code, err = l.command(ctx, p, box, enforced)
	return code, err, nil
}

// cannotStart keeps an engine's sentence and makes it the node's refusal.
func cannotStart(err error) error { return fault.CannotRun("starting the sandbox: %w", err) }

// serveWayOut serves the session's listener until the returned function is
// called, which waits for the last connection.
func (l *life) serveWayOut(ctx context.Context, p prepared, box sandbox.Sandbox) (end func()) {
	ln := box.Listener()
	if ln == nil {
		return func() {}
	}
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var done sync.WaitGroup
	done.Go(func() { l.refreshKeys(serving) })
	if len(l.lent) > 0 {
		done.Go(func() { l.keepSignIns(serving, box, p) })
	}
	done.Go(func() {
		err := l.n.proxy.Serve(serving, ln, egress.Session{
			ID: string(l.id), Judge: func() egress.Judge { return p.policy }, CA: p.authority, Keys: l.keys.ring, Keeper: l.keeper(), Answers: l.answers(), Record: func(v egress.Verdict) { l.verdict(v); l.diary.tell() },
			Closed: l.wayClosed, Failed: l.failed, WhoAsked: whoAsked(ln),
			Forward: func(ctx context.Context, moves []egress.Move) []error { return l.forward(ctx, p.repository.Top, moves) },
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

// whoAsked is the listener's own word on who opened a connection, where it has
// one.
func whoAsked(ln net.Listener) func(net.Addr) (egress.Program, bool) {
	asker, ok := ln.(sandbox.Asker)
	if !ok {
		return nil
	}
	return func(from net.Addr) (egress.Program, bool) {
		pid, name, ok := asker.WhoAsked(from)
		return egress.Program{PID: pid, Name: name}, ok
	}
}

// command runs the session's command with the client's streams.
func (l *life) command(ctx context.Context, p prepared, box sandbox.Sandbox, enforced sandbox.Enforced) (int, error) {
	unrecord, err := l.recordTerminal(ctx)
	if err != nil {
		return 0, fault.CannotRun("recording the terminal: %w", err)
	}
	defer unrecord()
	pipes, err := openPipes(l.client, p.command.TTY != nil)
	if err != nil {
		return 0, fault.CannotRun("making the command's streams: %w", err)
	}
	defer pipes.close()
	// Written before acted on: the command may ask who it is at once.
	err = l.move(ctx, session.Running, func(row *store.Session) {
		row.Stages, row.Enforced = l.stages, attributed(slices.Concat(enforced, p.facts), p.limitsFrom)
	})
	if err != nil {
		return 0, err
	}
	var proc sandbox.Process
	if err = l.stillThere(ctx, p); err == nil {
		proc, err = l.start(ctx, box, p.command, pipes.stdio)
	}
	pipes.started(proc)
	if err != nil {
		return 0, l.goneMeanwhile(execFailed(err, l.tool, p.engine.Name()), p, whileStarting)
	}
	l.stage("command")
	l.publish()
	l.guarded.begin(ctx)
	forwarded := newPorts(ctx, p.policy.Ports, box)
	defer forwarded.close()
	l.inside.Store(&inside{box: box, directory: p.command.Dir, ports: forwarded})
	if err := l.client.Started(api.Started{Session: l.show()}); err != nil {
		l.stop(errClientGone) // the command runs, and is told
	}
	pipes.serve()
	if wall := p.limits.Wall; wall > 0 {
		due := time.AfterFunc(wall, func() { l.stop(overTime{wall, p.limitsFrom["time limit"]}) })
		defer due.Stop()
	}
	exit, err := l.attend(ctx, box, proc)
	l.hit(exit, p.limitsFrom)
	if err == nil && exit.Signal == int(syscall.SIGKILL) && exit.Limit == "" {
		err = endOf(ctx, box)
	}
	return exit.Code, err
}

// start starts a command. An end that is asked for meanwhile does not break the
// start off: a command that has begun is told of its end like any other, and not
// killed unheard.
func (l *life) start(ctx context.Context, box sandbox.Sandbox, cmd sandbox.Command, stdio sandbox.Stdio) (sandbox.Process, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	exec := func() (sandbox.Process, error) { return box.Exec(context.WithoutCancel(ctx), cmd, stdio) }
	return bounded(ctx, l.n.o.Times.Patience, exec, func(late sandbox.Process) { _ = late.Signal(syscall.SIGKILL) })
}

func execFailed(err error, t *tool, engine string) error {
	if e, ok := errors.AsType[*sandbox.ExecError](err); ok {
		f := fault.As(e).WithExit(e.Code)
		if e.Code == 127 && engine == string(capability.Docker) {
			return f.WithHint("%s", inImage(e.Program))
		}
		if e.Code == 127 && t != nil {
			return f.WithHint("%s", t.installed())
		}
		if e.Code == 127 {
			return f.WithHint("inside there are /usr, /opt, the directories of PATH and known toolchains; a program elsewhere is not there")
		}
		return f
	}
	return cannotStart(err)
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
	l.diary.noteState(l.shown.State, l.shown.Reason)
	l.shown.Stages = slices.Clone(l.stages)
}

// show is the session as listings see it now.
func (l *life) show() api.Session {
	l.mu.Lock()
	s := l.shown
	l.mu.Unlock()
	s.Allowed, s.Denied = int(l.allowed.Load()), int(l.denied.Load())
	s.Attached = l.hub.watching()
	return s
}
