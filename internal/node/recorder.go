package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
)

const (
	// batchSize is how many verdicts are written in one transaction at most.
	batchSize = 512
	// tryAgain is how long what could not be written waits for the next try.
	tryAgain = time.Second
	// heldLimit is how many verdicts are held while nothing can be written. Of
	// denials beyond it only the number is held; there are no allows then.
	heldLimit = 4096
)

// recorder is the one writer of verdicts. It holds what could not be written
// until it can be; meanwhile the ways out are closed.
type recorder struct {
	n      *Node
	held   []store.Verdict
	denied map[session.ID]int // that are counted and no more
	again  *time.Timer
}

// writeRecords writes verdicts until told to end, a batch at a time: nobody on
// the way out ever waits for the disk.
func (n *Node) writeRecords(ctx context.Context, end <-chan struct{}) {
	defer close(n.written)
	r := &recorder{n: n, denied: map[session.ID]int{}, again: time.NewTimer(tryAgain)}
	r.again.Stop()
	defer r.again.Stop()
	for {
		select {
		case first := <-n.records:
			r.take(ctx, first)
		case <-r.again.C:
			r.write(ctx)
		case <-end:
			r.last(ctx)
			return
		}
	}
}

func (r *recorder) take(ctx context.Context, first recorded) {
	batch, waiting := gather(first, r.n.records)
	for _, v := range batch {
		if len(r.held) >= heldLimit && !v.Allowed {
			r.denied[v.Session]++
			continue
		}
		r.held = append(r.held, v)
	}
	if len(waiting) > 0 || !r.n.unwritable.Load() {
		r.write(ctx)
	}
	for _, w := range waiting {
		close(w)
	}
}

// write tries once to write all that is held.
func (r *recorder) write(ctx context.Context) {
	if len(r.held)+len(r.denied) == 0 {
		return
	}
	err := r.writeHeld(ctx)
	if err == nil {
		err = r.n.store.CountDenied(ctx, r.denied)
	}
	if err == nil {
		clear(r.denied)
	} else {
		r.again.Reset(tryAgain)
	}
	r.n.recording(ctx, err)
}

// writeHeld writes a batch at a time: a disk may have room for some of it.
func (r *recorder) writeHeld(ctx context.Context) error {
	for len(r.held) > 0 {
		batch := r.held[:min(len(r.held), batchSize)]
		err := r.n.store.AddVerdicts(ctx, batch)
		if _, ok := errors.AsType[*store.NotFoundError](err); ok {
			r.n.log.Error("recording verdicts", "err", err) // the others are written
			err = nil
		}
		if err != nil {
			return err
		}
		r.held = r.held[len(batch):]
	}
	r.held = nil
	return nil
}

// last takes what is left, at the end of the node. What cannot be written goes
// to the log, which may be on another disk.
func (r *recorder) last(ctx context.Context) {
	for {
		select {
		case first := <-r.n.records:
			r.take(ctx, first)
			continue
		default:
		}
		break
	}
	r.write(ctx)
	for _, v := range r.held {
		if v.Allowed {
			r.n.log.Error("allowed and not recorded", "session", v.Session, "id", v.ID, "host", v.Host, "port", v.Port, "method", v.Method)
		} else {
			r.denied[v.Session]++
		}
	}
	for id, n := range r.denied {
		r.n.log.Error("denied and not recorded", "session", id, "count", n)
	}
}

// unrecorded is why nothing gets out while verdicts cannot be written.
const unrecorded = "the node cannot record what it lets through"

// wayClosed is egress.Session.Closed.
func (l *life) wayClosed() string {
	if !l.n.unwritable.Load() {
		return ""
	}
	l.wasClosed.Store(true)
	return unrecorded
}

// recording opens and closes the ways out by whether verdicts can be written,
// and says so to everybody.
func (n *Node) recording(ctx context.Context, err error) {
	was := n.unwritable.Swap(err != nil)
	switch {
	case err != nil && !was:
		n.log.Error("recording verdicts: the ways out are closed", "err", err)
		n.tellAll(fmt.Sprintf("warning: %s; nothing gets out until it can: %s", unrecorded, fault.As(err).Sentence))
	case err == nil && was:
		n.log.Warn("verdicts are recorded again: the ways out are open")
		n.tellAll("the node records again what it lets through; the way out is open")
		n.writeEnds(ctx)
	}
}

// tellAll gives a line to everybody who looks at a session. It waits for
// nobody: the owner of one may take nothing.
func (n *Node) tellAll(line string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.live {
		n.telling.Go(func() { l.client.Notice(line) }) // serve waits for it
	}
}

// writeEnd writes the end of a session down. Where that it stopped could not be
// written before, that comes first: the table of moves asks for it.
func (n *Node) writeEnd(ctx context.Context, end store.Session) error {
	change := func(row *store.Session) {
		row.Ended, row.Reason, row.Stages, row.Notices, row.ExitCode = end.Ended, end.Reason, end.Stages, end.Notices, end.ExitCode
		row.Commits, row.References = end.Commits, end.References
	}
	err := n.store.MoveSession(ctx, end.ID, end.State, change)
	if _, ok := errors.AsType[*session.MoveError](err); !ok {
		return err
	}
	if err := n.store.MoveSession(ctx, end.ID, session.Stopping, nil); err != nil {
		return err
	}
	return n.store.MoveSession(ctx, end.ID, end.State, change)
}

// remember keeps the end of a session that could not be written down, so that
// it is shown, and written later.
func (n *Node) remember(end store.Session) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ends = append(n.ends, end)
}

// writeEnds tries again what is remembered.
func (n *Node) writeEnds(ctx context.Context) {
	for _, end := range n.remembered() {
		err := n.writeEnd(ctx, end)
		if _, absent := errors.AsType[*store.NotFoundError](err); err != nil && !absent {
			n.log.Error("writing the end of a session down", "session", end.ID, "err", err)
			return // the next would fare no better
		}
		n.forget(end.ID)
	}
}
