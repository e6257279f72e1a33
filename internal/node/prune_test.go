package node

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
)

// TestPastSessionsAreForgottenWhileTheNodeRuns: opening a store forgets a few,
// and a node that runs for weeks opens it once.
func TestPastSessionsAreForgottenWhileTheNodeRuns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := store.Open(t.Context(), t.TempDir(), store.Options{Keep: store.Retention{Sessions: 1}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 3 {
			id := session.New()
			if err := s.CreateSession(t.Context(), store.Session{ID: id, State: session.Staging}, nil); err != nil {
				t.Fatal(err)
			}
			if err := s.MoveSession(t.Context(), id, session.Failed, nil); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		n := &Node{store: s, log: slog.New(slog.DiscardHandler)}
		var running sync.WaitGroup
		running.Go(func() { n.sweepLater(ctx) })
		time.Sleep(pruneEvery + time.Second) // no time at all, in here
		synctest.Wait()
		past, err := s.Sessions(t.Context(), store.Filter{Which: store.Past})
		cancel()
		running.Wait()
		if err != nil || len(past) != 1 {
			t.Errorf("%d past sessions are kept, %v", len(past), err)
		}
	})
}
