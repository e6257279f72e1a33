package node

import (
	"context"
	"fmt"

	"github.com/mojoup/mojoup-node/internal/fault"
)

const (
	// maxQuestions is how many sandboxes for git alone live at once in one node,
	// maxLooks how many of them for people who look, and maxPushes for pushes that
	// are judged: however many of those sessions make, one that ends finds a seat.
	maxQuestions = 6
	maxLooks     = 2
	maxPushes    = 2
)

// seats bound the sandboxes that git is asked in. These do not pass the door of
// sessions: a push is judged while its session runs, and what a session left is
// looked at before its slot is given back, so that on a full node each of them
// would wait for a slot that it keeps from others. Nor do they wait for memory: by
// then the memory of what has ended is free, and what is asked takes little and
// not long. Who has a seat waits for nothing else that is bounded, so that each
// seat becomes free again.
type seats struct{ all, looks, pushes row }

type row chan struct{}

func newSeats() seats {
	return seats{all: make(row, maxQuestions), looks: make(row, maxLooks), pushes: make(row, maxPushes)}
}

// A gitSeat is the right to one sandbox for git, until leave.
type gitSeat struct {
	rows []row
	held int
}

// take waits for a seat in all of the rows, and tells once that it does. The one
// that all share comes last: nobody keeps others from it while they wait.
func take(ctx context.Context, tell func(), rows ...row) (*gitSeat, error) {
	seat := &gitSeat{rows: rows}
	for _, free := range rows {
		select {
		case free <- struct{}{}:
			seat.held++
			continue
		default:
		}
		if tell != nil {
			tell()
			tell = nil
		}
		select {
		case free <- struct{}{}:
			seat.held++
		case <-ctx.Done():
			seat.leave()
			return nil, fmt.Errorf("waiting for a sandbox for git: %w", context.Cause(ctx))
		}
	}
	return seat, nil
}

// leave gives the seat to the next one. Only the first call does anything.
func (g *gitSeat) leave() {
	for ; g.held > 0; g.held-- {
		<-g.rows[g.held-1]
	}
}

// looking takes a seat for somebody who looks.
func (s seats) looking(ctx context.Context, notice func(string)) (*gitSeat, error) {
	seat, err := take(ctx, func() { notice("waiting: git is at work for others who look") }, s.looks, s.all)
	if err != nil && ctx.Err() != nil {
		return nil, fault.CannotRun("git was not asked: others who look kept it busy for %s", quarantineFor).
			WithHint("try again, or use `git diff` yourself: what lies in the tree may have been written by the session")
	}
	return seat, err
}

// judging takes a seat for a push of the session whose row is own: one that pushes
// much, or that lets git wait, takes its turn with the others.
func (s seats) judging(ctx context.Context, own row) (*gitSeat, error) {
	return take(ctx, nil, own, s.pushes, s.all)
}

// ending takes a seat for what a session has left.
func (s seats) ending(ctx context.Context) (*gitSeat, error) { return take(ctx, nil, s.all) }
