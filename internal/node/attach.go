package node

import (
	"context"
	"fmt"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// begin lets the session live on its own and stays with it as its owner, until
// it has ended or the owner leaves it with its key. An owner who is simply gone
// takes the session along.
func (l *life) begin(ctx context.Context, s console.Stream) api.Ended {
	own, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	l.cancel = cancel
	owner := l.hub.own(s)
	if err := l.n.enter(l); err != nil {
		cancel(nil)
		return refused(err)
	}
	end := l.hub.attend(owner, true)
	defer end()
	go func() { // stopSessions waits for it, by gone
		defer cancel(nil)
		defer close(l.gone)
		defer l.n.leave(l)
		defer l.hub.end()
		l.ended = l.run(own)
		l.keep(own)
	}()
	select {
	case <-l.gone:
		return l.ended
	case <-ctx.Done():
		l.stop(errClientGone)
		<-l.gone
		return l.ended
	case <-s.Detached():
		owner.hearOut(l.gone)
		l.hub.disown()
	case <-l.hub.unowned:
	}
	l.diary.note(api.EventClient, "its client left, it goes on")
	s.Hurry(l.n.o.Times.HangUp)
	return api.Ended{Detached: true}
}

// Attach shows a live session to one more client until it ends, or the client
// leaves or goes, which the session does not notice.
func (n *Node) Attach(ctx context.Context, c console.Caller, id string, req api.AttachRequest, s console.Stream) api.Ended {
	l, err := n.living(ctx, c, id)
	if err != nil {
		return refused(err)
	}
	v := l.hub.join(s, req)
	l.diary.note(api.EventClient, "a client attached")
	defer l.diary.note(api.EventClient, "a client left")
	defer l.hub.leave(v)
	end := l.hub.attend(v, false)
	defer end()
	if err := s.Started(api.Started{Session: l.show(), Terminal: l.hub.terminal}); err != nil {
		return api.Ended{Detached: true}
	}
	return l.watch(ctx, v)
}

// watch shows what comes until the session has ended and all of it was shown.
func (l *life) watch(ctx context.Context, v *viewer) api.Ended {
	over := make(chan struct{})
	defer close(over)
	go func() { // ends with watch
		select {
		case <-l.gone:
			v.stream.Hurry(l.n.o.Times.HangUp)
		case <-over:
		}
	}()
	for gone := false; ; {
		for {
			p, skipped, ok := l.hub.next(v)
			if skipped > 0 {
				l.skip(v, skipped)
			}
			if !ok {
				break
			}
			if v.show(p) != nil {
				return api.Ended{Detached: true}
			}
		}
		if gone {
			return l.ended
		}
		select {
		case <-v.wake:
		case <-l.gone:
			gone = true
		case <-v.stream.Detached():
			v.hearOut(l.gone)
			return api.Ended{Detached: true}
		case <-ctx.Done():
			return api.Ended{Detached: true}
		}
	}
}

// skip says that a viewer missed something. What a terminal shows is mended by
// drawing it anew.
func (l *life) skip(v *viewer, bytes int) {
	if l.hub.terminal {
		_ = v.show(part{api.FrameStdout, []byte("\x1b\\")}) // whatever was cut off ends here
		l.hub.redraw(v)
		return
	}
	v.stream.Notice(fmt.Sprintf("%d bytes of output were skipped: this viewer takes it too slowly", bytes))
}

// living is a session that lives, by what a client calls it.
func (n *Node) living(ctx context.Context, c console.Caller, id string) (*life, error) {
	if err := n.mayAsk(c); err != nil {
		return nil, err
	}
	sid, l, err := n.carried(ctx, id)
	if err != nil {
		return nil, err
	}
	if l != nil {
		return l, nil
	}
	s, err := n.find(ctx, sid)
	if err != nil {
		return nil, err
	}
	how := s.State
	if s.ExitCode != nil {
		how = fmt.Sprintf("its command's exit code was %d", *s.ExitCode)
	}
	return nil, fault.Negative("session %s has ended: %s", s.ID, how).WithCode("ended").
		WithHint("`mojoup-node session show %s` says how", s.ID)
}
