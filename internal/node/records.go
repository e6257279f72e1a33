package node

import (
	"context"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// recorded is one message to the writer of verdicts: a verdict, or the request
// to say when everything before it has been written.
type recorded struct {
	verdict store.Verdict
	flushed chan<- struct{}
}

// verdict is egress.Session.Record: it counts, and hands the verdict to the
// one writer. It waits where the writer cannot keep up: a verdict that is not
// recorded must not be possible.
func (l *life) verdict(v egress.Verdict) {
	if v.Allowed {
		l.allowed.Add(1)
	} else {
		l.denied.Add(1)
	}
	l.tally.see(v)
	l.hand(v, false)
}

// failed is egress.Session.Failed: what an allow came to.
func (l *life) failed(v egress.Verdict) {
	l.tally.see(v)
	l.hand(v, true)
}

func (l *life) hand(v egress.Verdict, again bool) {
	r := recorded{verdict: store.Verdict{Session: l.id, Again: again, Outcome: api.Outcome{
		ID: v.ID, Time: v.Time, Allowed: v.Allowed, Host: v.Host, Port: int(v.Port),
		Method: v.Method, Path: v.Path, Rule: v.Rule, Layer: v.Layer, Reason: v.Reason, Failure: v.Failure,
	}}}
	select {
	case l.n.records <- r:
	case <-l.n.written: // only of a session that the node could not end
		l.n.log.Error("verdict after the end of the node", "session", l.id, "host", v.Host, "allowed", v.Allowed)
	}
}

// flush returns once every verdict handed over so far is in the store.
func (n *Node) flush(ctx context.Context) {
	done := make(chan struct{})
	select {
	case n.records <- recorded{flushed: done}:
	case <-n.written:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// gatherFor is how long the writer gathers verdicts for one transaction.
const gatherFor = 20 * time.Millisecond

// gather takes what follows the first record: whatever is there, and what
// comes within gatherFor unless somebody waits for the writing.
func gather(first recorded, more <-chan recorded) (batch []store.Verdict, waiting []chan<- struct{}) {
	due := time.NewTimer(gatherFor)
	defer due.Stop()
	for r := first; ; {
		if r.flushed != nil {
			return batch, append(waiting, r.flushed)
		}
		if batch = append(batch, r.verdict); len(batch) == batchSize {
			return batch, waiting
		}
		select {
		case r = <-more:
		case <-due.C:
			return batch, waiting
		}
	}
}
