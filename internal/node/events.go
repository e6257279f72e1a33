package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// diary is what happened to a session so far. It is written down at its end:
// of one whose node is killed the row and the verdicts are left.
type diary struct {
	mu     sync.Mutex // guards what follows
	events []api.Event
	state  string        // last noted
	news   chan struct{} // closed and replaced when something is added
}

// most bounds a diary: clients may come and go as often as they like.
const most = 2000

func newDiary() *diary { return &diary{news: make(chan struct{})} }

func (d *diary) note(kind, text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.events) < most || kind == api.EventState {
		d.addLocked(kind, text)
	}
	d.tellLocked()
}

// close notes what the client is told at the end, also in a full diary: there
// are few such lines, and warnings are among them.
func (d *diary) close(lines []string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, line := range lines {
		if line != "" {
			d.addLocked(api.EventNotice, line)
		}
	}
	d.tellLocked()
}

func (d *diary) addLocked(kind, text string) {
	d.events = append(d.events, api.Event{Time: time.Now(), Kind: kind, Text: text})
}

// noteState notes each state once.
func (d *diary) noteState(state, reason string) {
	d.mu.Lock()
	known := d.state == state
	d.state = state
	d.mu.Unlock()
	if known {
		return
	}
	if reason != "" {
		state += ": " + reason
	}
	d.note(api.EventState, state)
}

// tell wakes those who follow: there is a verdict.
func (d *diary) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tellLocked()
}

func (d *diary) tellLocked() {
	close(d.news)
	d.news = make(chan struct{})
}

// after is what was noted after the first n, and a channel that is closed when
// there is more.
func (d *diary) after(n int) ([]api.Event, <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.events[n:]), d.news
}

// keep writes the diary down.
func (l *life) keep(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), l.n.o.Times.Remove)
	defer cancel()
	events, _ := l.diary.after(0)
	if err := l.n.store.AddEvents(ctx, l.id, events); err != nil {
		l.n.log.Error("writing the log of a session down", "session", l.id, "err", err)
	}
}

// Events gives the log of a session, live or past, to emit.
func (n *Node) Events(ctx context.Context, c console.Caller, id string, follow bool, emit func([]api.Event) error) error {
	if err := n.mayLook(c); err != nil {
		return err
	}
	sid, l, err := n.carried(ctx, id)
	if err != nil {
		return err
	}
	if l == nil {
		n.flush(ctx)
		all, err := pastEvents(ctx, n.store, sid)
		if err != nil {
			return err
		}
		return emit(all)
	}
	seen, seq, gone := 0, int64(0), false
	for {
		own, news := l.diary.after(seen)
		seen += len(own)
		n.flush(ctx)
		all, last, err := withVerdicts(ctx, n.store, sid, own, seq)
		if err != nil {
			return err
		}
		if seq = last; len(all) > 0 {
			if err := emit(all); err != nil {
				return err
			}
		}
		if !follow || gone {
			return nil
		}
		select {
		case <-news:
		case <-l.gone:
			gone = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Events gives the log of a past session to each.
func (o Offline) Events(ctx context.Context, id string, each func(api.Event) error) error {
	var all []api.Event
	if err := o.with(ctx, func(s *store.Store) error {
		sid, err := calledIn(ctx, s, id, nil)
		if err == nil {
			all, err = pastEvents(ctx, s, sid)
		}
		return err
	}); err != nil {
		return err
	}
	if len(all) == 0 {
		return fault.UnknownSession(id)
	}
	for _, e := range all {
		if err := each(e); err != nil {
			return err
		}
	}
	return nil
}

// pastEvents is the log of a past session.
func pastEvents(ctx context.Context, s *store.Store, id session.ID) ([]api.Event, error) {
	row, err := s.Session(ctx, id)
	if _, ok := errors.AsType[*store.NotFoundError](err); ok {
		return nil, fault.UnknownSession(string(id))
	}
	if err != nil {
		return nil, err
	}
	own, err := s.Events(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(own) == 0 {
		own = rowEvents(row.API())
	}
	all, _, err := withVerdicts(ctx, s, id, own, 0)
	return all, err
}

// rowEvents is what the row of a session whose node was killed tells of it.
func rowEvents(s api.Session) []api.Event {
	out := []api.Event{{Time: s.Since, Kind: api.EventState, Text: string(session.Staging)}}
	for _, n := range s.Notices {
		out = append(out, api.Event{Time: s.Since, Kind: api.EventNotice, Text: n})
	}
	if !s.Ended.IsZero() {
		text := s.State
		if s.Reason != "" {
			text += ": " + s.Reason
		}
		out = append(out, api.Event{Time: s.Ended, Kind: api.EventState, Text: text})
	}
	return out
}

// withVerdicts puts the verdicts after seq among events, by time.
func withVerdicts(ctx context.Context, s *store.Store, id session.ID, events []api.Event, seq int64) ([]api.Event, int64, error) {
	const some = 5000
	for {
		var vs []store.Verdict
		var err error
		if vs, seq, err = s.VerdictsAfter(ctx, id, seq, some); err != nil {
			return nil, seq, err
		}
		for _, v := range vs {
			events = append(events, api.Event{Time: v.Time, Kind: api.EventRequest, Text: verdictText(v.Outcome), Request: &v.Outcome})
		}
		if len(vs) < some {
			break
		}
	}
	slices.SortStableFunc(events, func(a, b api.Event) int { return a.Time.Compare(b.Time) })
	return events, seq, nil
}

func verdictText(o api.Outcome) string {
	word := "denied"
	if o.Allowed {
		word = "allowed"
	}
	target := fmt.Sprintf("%s:%d", o.Host, o.Port)
	if o.Method != "" {
		target = o.Method + " " + target + o.Path
	}
	why := o.Reason
	if o.Failure != "" {
		why += "; but " + o.Failure
	}
	return fmt.Sprintf("%s %s %s: %s", word, o.ID, target, why)
}
