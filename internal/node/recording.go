package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/recording"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console"
)

// recordedNotice says wherever a session is shown that it was recorded.
const recordedNotice = "what its terminal shows is recorded, as --record-terminal asks"

// recordTerminal keeps what the session's terminal shows until the returned
// function is called. Nothing is kept of a session that did not ask for it.
func (l *life) recordTerminal(ctx context.Context) (end func(), err error) {
	if !l.req.RecordTerminal {
		return func() {}, nil
	}
	f, err := l.n.store.NewRecording(ctx, l.id)
	if err != nil {
		return nil, err
	}
	to, err := recording.Begin(f, recording.About{
		Columns: l.req.Terminal.Columns, Rows: l.req.Terminal.Rows,
		Title: "mojoup-node session " + string(l.id), Terminal: l.variable("TERM"),
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	l.kept = to
	l.hub.record(to)
	l.client.Notice(recordedNotice)
	return func() {
		l.hub.record(nil)
		if err := to.Close(); err != nil {
			l.closing = append(l.closing, fmt.Sprintf("warning: the recording of the terminal is not whole: %v", err))
		}
	}, nil
}

// variable is a variable of the caller's.
func (l *life) variable(name string) string {
	for _, kv := range l.req.Env {
		if value, ok := strings.CutPrefix(kv, name+"="); ok {
			return value
		}
	}
	return ""
}

// Recording is what was recorded of a session's terminal, so far.
func (n *Node) Recording(ctx context.Context, c console.Caller, id string) (io.ReadCloser, error) {
	if err := n.mayAsk(c); err != nil {
		return nil, err
	}
	sid, err := n.called(ctx, id)
	if err != nil {
		return nil, err
	}
	if _, err := n.find(ctx, sid); err != nil {
		return nil, err
	}
	return recordingOf(n.store, sid)
}

// Recording is what was recorded of a past session's terminal.
func (o Offline) Recording(ctx context.Context, id string) (io.ReadCloser, error) {
	var found io.ReadCloser
	err := o.with(ctx, func(s *store.Store) error {
		sid, err := calledIn(ctx, s, id, nil)
		if err == nil {
			found, err = recordingOf(s, sid)
		}
		return err
	})
	if err == nil && found == nil {
		return nil, fault.UnknownSession(id)
	}
	return found, err
}

// recordingOf is what the store keeps, or a refusal for people.
func recordingOf(s *store.Store, id session.ID) (io.ReadCloser, error) {
	f, err := s.Recording(id)
	if _, absent := errors.AsType[*store.NotFoundError](err); absent {
		return nil, fault.Negative("nothing is kept of what the terminal of session %s showed", id).WithCode("not-recorded").
			WithHint("`mojoup-node run --record-terminal` keeps it, from its start").Problem()
	}
	if err != nil {
		return nil, err // not f, which would be a reader that is nil
	}
	return f, nil
}
