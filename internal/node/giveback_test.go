package node

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestMemoryIsGivenBack is given back once, when sessions have begun and ended
// and then none has for a while; a node to which nothing happens has nothing.
func TestMemoryIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &Node{changed: make(chan struct{})}
		ctx, end := context.WithCancel(t.Context())
		defer end()
		var given atomic.Int32
		go n.giveBack(ctx, func() { given.Add(1) })
		wait := func(d time.Duration, want int, when string) {
			t.Helper()
			time.Sleep(d) // of the bubble's clock
			synctest.Wait()
			if got := int(given.Load()); got != want {
				t.Errorf("%s memory was given back %d times, want %d", when, got, want)
			}
		}
		happen := func() { n.mu.Lock(); n.signalLocked(); n.mu.Unlock() }
		wait(10*calm, 0, "before anything has happened")
		for range 5 {
			happen()
			wait(calm/2, 0, "while sessions begin and end")
		}
		wait(calm, 1, "afterwards")
		wait(10*calm, 1, "long afterwards")
		happen()
		wait(calm+1, 2, "after one more")
	})
}
