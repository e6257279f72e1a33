package node

import (
	"context"
	"fmt"
	"slices"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

const (
	// shownVerdicts is how many verdicts of a session are shown.
	shownVerdicts = 1000
	// shownBytes bounds them together, so that a client takes the answer: JSON
	// may need six bytes for one.
	shownBytes = 4 << 20
)

// detail adds the newest verdicts and the refused calls to what is shown of a session, and says what
// there was besides them.
func detail(ctx context.Context, s *store.Store, out *api.Session) error {
	id := session.ID(out.ID)
	rows, err := s.Verdicts(ctx, id, shownVerdicts)
	if err != nil {
		return err
	}
	forgotten, err := s.Forgotten(ctx, id)
	if err != nil {
		return err
	}
	if out.Refused == nil {
		if out.Refused, err = s.Refusals(ctx, id); err != nil {
			return err
		}
	}
	out.Verdicts, out.RecordedBytes = newest(rows, shownBytes), s.Recorded(id)
	notices := slices.Clone(out.Notices)
	if older := out.Allowed + out.Denied - forgotten - len(out.Verdicts); older > 0 {
		notices = append(notices, counted(older, "older verdict is not shown", "older verdicts are not shown"))
	}
	if forgotten > 0 {
		notices = append(notices, counted(forgotten, "older verdict is no longer kept", "older verdicts are no longer kept"))
	}
	out.Notices = notices
	return nil
}

func counted(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// newest are as many of the last verdicts as have at most so many bytes.
func newest(rows []store.Verdict, most int) []api.Outcome {
	from := len(rows)
	for from > 0 {
		r := rows[from-1]
		most -= len(r.ID) + len(r.Host) + len(r.Method) + len(r.Path) + len(r.Rule) + len(r.Layer) + len(r.Reason) + len(r.Failure)
		if most < 0 {
			break
		}
		from--
	}
	out := make([]api.Outcome, 0, len(rows)-from)
	for _, r := range rows[from:] {
		out = append(out, r.Outcome)
	}
	return out
}

// remembered are the ends of sessions that could not be written down yet, the
// newest first.
func (n *Node) remembered() []store.Session {
	n.mu.Lock()
	defer n.mu.Unlock()
	out := slices.Clone(n.ends)
	slices.Reverse(out)
	return out
}

func (n *Node) forget(id session.ID) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = slices.DeleteFunc(n.ends, func(s store.Session) bool { return s.ID == id })
}

// rowOf is what is known of a session that does not live.
func (n *Node) rowOf(ctx context.Context, id session.ID) (store.Session, error) {
	for _, end := range n.remembered() {
		if end.ID == id {
			return end, nil
		}
	}
	return n.store.Session(ctx, id)
}

// past lists the sessions that have ended, the newest first.
func (n *Node) past(ctx context.Context) ([]api.Session, error) {
	ends := n.remembered()
	rows, err := n.store.Sessions(ctx, store.Filter{Which: store.Past, Limit: listed})
	if err != nil {
		return nil, err
	}
	out := make([]api.Session, 0, len(ends)+len(rows))
	known := map[session.ID]bool{} // one may have been written just now
	for _, r := range slices.Concat(ends, rows) {
		if !known[r.ID] {
			known[r.ID] = true
			out = append(out, r.API())
		}
	}
	return out[:min(len(out), listed)], nil
}
