package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Why a session is ended before its command has ended.
var (
	errNodeStops  = errors.New("the node stopped")
	errClientGone = errors.New("its client went away")
	errStopped    = errors.New("it was stopped")
)

// overTime ends a session that has run for as long as it may. from is the
// setting that says so, or "" where it is the policy.
type overTime struct {
	limit time.Duration
	from  string
}

// Hint says where the limit is set.
func (e overTime) Hint() string { return raises(e.from, "limits.wall") }

func (e overTime) Error() string { return "it reached its time limit of " + spelled(e.limit) }

// spelled is a duration as policies write it: 8h, not 8h0m0s.
func spelled(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Times bound how long an end takes. Zero fields mean the defaults.
type Times struct {
	// HangUp is how long a command has after SIGHUP or SIGTERM, 5 s.
	HangUp time.Duration
	// Remove bounds the teardown of one session, 30 s.
	Remove time.Duration
	// Patience is how much longer than its context a call into a part may
	// last before the session goes on without it, 5 s.
	Patience time.Duration
	// Keys is how often sources of keys are asked again while a session runs,
	// 5 s.
	Keys time.Duration
}

func (t Times) orDefault() Times {
	return Times{
		HangUp:   cmp.Or(t.HangUp, 5*time.Second),
		Remove:   cmp.Or(t.Remove, 30*time.Second),
		Patience: cmp.Or(t.Patience, 5*time.Second),
		Keys:     cmp.Or(t.Keys, 5*time.Second),
	}
}

// A teardownError says that something of a session may be left. Its undo
// stays in the journal, and is tried again.
type teardownError struct{ err error }

func (e *teardownError) Error() string { return "taking the sandbox down: " + e.err.Error() }
func (e *teardownError) Unwrap() error { return e.err }
func (e *teardownError) Hint() string {
	return "the node tries again every minute and when it starts; `mojoup-node status` names what is left"
}

// remove takes the sandbox down, on every path and whatever has become of ctx.
func (l *life) remove(ctx context.Context, box sandbox.Sandbox, wayOut func()) error {
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.n.o.Times.Remove)
	defer cancel()
	l.stopping(down)
	_, err := bounded(down, l.n.o.Times.Patience, func() (struct{}, error) { return struct{}{}, box.Remove(down) }, nil)
	wayOut()
	if err == nil {
		err = l.n.store.UndoAllDone(context.WithoutCancel(ctx), l.id)
	}
	if err != nil {
		l.n.log.Error("teardown", "session", l.id, "err", err)
		return &teardownError{err}
	}
	return nil
}

// sweep undoes a sandbox that could not be made. The engine has done so
// already, and nothing but the journal knows where it could not.
func (l *life) sweep(ctx context.Context) error {
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.n.o.Times.Remove)
	defer cancel()
	l.stopping(down)
	pending, err := l.n.store.PendingOf(down, l.id)
	if err == nil {
		err = errors.Join(undo(down, l.n.store, pending, l.n.sweep, func(string) {})...)
	}
	if err != nil {
		l.n.log.Error("undoing a failed start", "session", l.id, "err", err)
		return &teardownError{err}
	}
	return nil
}

// finish writes the end down and tells the client. Every verdict of the
// session is in the store before.
func (l *life) finish(ctx context.Context, code int, err, left error) api.Ended {
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.n.o.Times.Remove)
	defer cancel()
	l.n.flush(last)
	end := api.Ended{Code: code}
	to, reason := session.Gone, l.cause
	switch {
	case err != nil && ctx.Err() != nil:
		reason = because(ctx)
		end = endedEarly(ctx)
	case err != nil:
		end = refused(err)
		to, reason = session.Failed, end.Problem.Sentence
	}
	if l.wasClosed.Load() {
		l.closing = append(l.closing, "for some time nothing could get out: "+unrecorded)
	}
	end.Notices = append(end.Notices, l.closing...)
	if left != nil {
		to, reason = session.Failed, left.Error()
		end.Notices = append(end.Notices, "warning: "+left.Error(), fault.As(left).Hint)
	}
	row := l.row
	row.State, row.Ended, row.Reason, row.Stages = to, time.Now(), reason, l.stages
	row.Notices = withAll(row.Notices, l.closing)
	row.Commits, row.References = l.left.commits, l.left.references
	if end.Problem == nil {
		row.ExitCode = &code
	}
	row.Allowed, row.Denied = int(l.allowed.Load()), int(l.denied.Load())
	if merr := l.n.writeEnd(last, row); merr != nil {
		l.n.log.Error("writing the end of a session down", "session", l.id, "err", merr)
		l.n.remember(row)
	}
	l.row = row
	more := l.tally.lines(l.id)
	if line := deniedLine(row); line != "" {
		more = append(more, line)
	}
	// The log has the refused calls already, each when it happened.
	l.diary.close(slices.Concat(end.Notices, more))
	l.publish()
	end.Notices = slices.Concat(end.Notices, l.refusals, more)
	return end
}

// deniedLine says at the end of a session that something was denied: a tool
// may have kept that to itself.
func deniedLine(s store.Session) string {
	if s.Denied == 0 {
		return ""
	}
	return fmt.Sprintf("%s: mojoup-node session show %s", counted(s.Denied, "request was denied", "requests were denied"), s.ID)
}

// endedEarly is the end of a session that was ended before its command was.
func endedEarly(ctx context.Context) api.Ended {
	p := &api.Problem{Code: "ended", Sentence: "the session was ended: " + because(ctx), Hint: fault.As(context.Cause(ctx)).Hint, Exit: fault.ExitCannotRun}
	return api.Ended{Code: p.Exit, Problem: p}
}

// because says in words why a session ended early.
func because(ctx context.Context) string {
	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		cause = errClientGone // what its connection says
	}
	return cause.Error()
}
