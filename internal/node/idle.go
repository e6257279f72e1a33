package node

import (
	"context"
	"time"
)

// retireAgain is how soon a deputy that may not end yet asks again.
const retireAgain = time.Second

// What a lingering node could not undo is tried again, ever more seldom, before
// it ends: who asks for no other session would have it for good otherwise. What
// a gateway that is gone keeps is left to the next start.
const (
	oweAgain = time.Second
	oweFor   = 10 * time.Minute
)

// linger ends the node once it has had no session for long enough.
func (n *Node) linger(ctx context.Context) {
	retired, again := n.o.Deputy == nil, oweAgain
	settled := false // nothing is owed since the last session, or it was tried for long enough
	for {
		n.mu.Lock()
		changed, busy, left := n.changed, len(n.live) > 0, n.o.Linger-time.Since(n.idle)
		settled = settled && !busy
		if settled && retired && left <= 0 {
			n.stopping = true // under the lock: no session begins any more
			n.end(errEnough)
			n.mu.Unlock()
			return
		}
		n.mu.Unlock()
		if !busy && left <= 0 {
			if settled = settled || -left >= oweFor || !n.owes(ctx); !settled {
				left, again = again, min(2*again, sweepEvery)
			} else if retired = retired || n.o.Deputy.Retire(ctx); retired {
				continue
			} else {
				left = retireAgain
			}
		}
		var due <-chan time.Time
		if !busy {
			due = time.After(left)
		}
		select {
		case <-due:
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// calm is how long no session has begun or ended when a node gives memory back.
const calm = 3 * time.Second

// giveBack gives the memory that starts and ends have used back to the machine,
// once nothing has begun or ended for a while. By itself a node would keep it:
// it collects rarely, so that starts need not wait for that, and sessions that
// idle give it no reason to.
func (n *Node) giveBack(ctx context.Context, free func()) {
	changed := n.next()
	var due <-chan time.Time // nothing to give back before something has happened
	for {
		select {
		case <-changed:
			changed, due = n.next(), time.After(calm)
		case <-due:
			free()
		case <-ctx.Done():
			return
		}
	}
}

// next is closed when the next session begins or ends.
func (n *Node) next() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.changed
}
