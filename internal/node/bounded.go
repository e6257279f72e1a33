package node

import (
	"context"
	"errors"
	"time"
)

// errNoAnswer says that a part went on for too long after it was told to end.
var errNoAnswer = errors.New("it does not answer")

// bounded makes one call into a part that may hang: an engine, a file system.
// A call that has not returned some time after its context has ended is left
// behind, because a session that cannot be ended would hold up the node. What
// it brings in the end goes to late.
//
// This is the one goroutine here that nobody waits for: nothing in the process
// can end a call that hangs.
func bounded[T any](ctx context.Context, patience time.Duration, call func() (T, error), late func(T)) (T, error) {
	type answer struct {
		v   T
		err error
	}
	answered := make(chan answer) // not buffered: either side gives up, once
	left := make(chan struct{})
	go func() {
		v, err := call()
		select {
		case answered <- answer{v, err}:
		case <-left:
			if err == nil && late != nil {
				late(v)
			}
		}
	}()
	select {
	case a := <-answered:
		return a.v, a.err
	case <-ctx.Done():
	}
	enough := time.NewTimer(patience)
	defer enough.Stop()
	select {
	case a := <-answered:
		return a.v, a.err
	case <-enough.C:
		close(left)
		var none T
		return none, errors.Join(errNoAnswer, context.Cause(ctx))
	}
}
