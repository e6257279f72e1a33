package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// atMost limits the sessions of a world's node.
func (w world) atMost(t *testing.T, n int) {
	t.Helper()
	must(t, os.WriteFile(w.paths.Config, fmt.Appendf(nil, "[node.sandbox]\nmax_sessions = %d\n", n), 0o600))
}

// TestB63AStuckSessionGivesItsSlotBack: however an engine hangs, a session that
// is stopped holds nobody up.
func TestB63AStuckSessionGivesItsSlotBack(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"prepare", "check", "exec", "wait", "remove"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w, e, g := newWorld(t), newStub(), newGate(step, true)
			w.atMost(t, 1)
			var first atomic.Bool
			e.at = func(ctx context.Context, step string) error {
				if step == g.step && !first.Swap(true) {
					return g.at(ctx, step)
				}
				return nil
			}
			o := w.options(t, e)
			o.Times = brisk
			r := w.serve(t, o)
			defer close(g.open)
			stuck := w.ask(t, r.client, api.RunRequest{Command: []string{"true"}})
			select {
			case <-g.reached:
			case <-time.After(enough):
				t.Fatal("step not reached")
			}
			waits := w.ask(t, r.client, api.RunRequest{Command: []string{"echo", "its turn"}})
			s := awaitStatus(t, r.client, func(s api.Status) bool { return len(s.Queue) == 1 })
			if len(s.Sessions) != 1 || s.Queue[0].Place != 1 || s.Queue[0].ID == s.Sessions[0].ID || !strings.Contains(s.Queue[0].Reason, "node.sandbox.max_sessions") {
				t.Fatalf("status shows %+v", s)
			}
			must(t, r.client.Stop(t.Context(), s.Sessions[0].ID))
			_, _ = stuck.end(t)
			if end, err := waits.end(t); err != nil || end.Code != 0 {
				t.Errorf("%v, %+v: %s", err, end, waits.out)
			}
			if n := r.node.door.(ownDoor).Running(Slots); n != 0 {
				t.Errorf("%d slots are held by nobody", n)
			}
		})
	}
}

func awaitStatus(t *testing.T, c *client.Client, good func(api.Status) bool) api.Status {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(enough); ; {
		s, err := c.Status(t.Context())
		must(t, err)
		if good(s) {
			return s
		}
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("status stays %+v", s)
		}
	}
}

// TestB65StatusAndSlotsAreOne: a random crowd asks, goes away and is stopped,
// waiting or not. There are never more sandboxes than slots, status never shows
// more, and in the end nothing is held.
func TestB65StatusAndSlotsAreOne(t *testing.T) {
	t.Parallel()
	const most = 3
	w, e := newWorld(t), newStub()
	w.atMost(t, most)
	e.at = func(_ context.Context, step string) error {
		if made, removed := e.counts(); step == "check" && made-removed > most {
			t.Errorf("%d sandboxes at once", made-removed)
		}
		return nil
	}
	r := w.serve(t, w.options(t, e))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var waited, ran atomic.Int64
	var crowd sync.WaitGroup
	for person := range 8 {
		crowd.Go(func() {
			rnd := rand.New(rand.NewPCG(seed, uint64(person)))
			for range 6 {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if rnd.IntN(3) == 0 {
					time.AfterFunc(time.Duration(rnd.IntN(30))*time.Millisecond, cancel)
				}
				end, err := r.client.Run(ctx, api.RunRequest{
					Directory: w.repo, Env: plan.CallerEnv(os.Environ()), Command: []string{"true"},
				}, client.Streams{Stdout: t.Output(), Stderr: t.Output(), Notice: func(string) { waited.Add(1) }})
				switch {
				case err == nil && end.Problem == nil:
					ran.Add(1)
				case err == nil && end.Problem.Code != "ended":
					t.Errorf("%+v", fault.FromProblem(end.Problem))
				case err != nil && ctx.Err() == nil:
					t.Error(err)
				}
				s, err := r.client.Status(t.Context())
				if err != nil {
					cancel()
					t.Error(err)
					return
				}
				if rnd.IntN(4) == 0 && len(s.Queue) > 0 {
					_ = r.client.Stop(t.Context(), s.Queue[rnd.IntN(len(s.Queue))].ID)
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	awaitStatus(t, r.client, func(s api.Status) bool { return len(s.Sessions) == 0 && len(s.Queue) == 0 })
	awaitAllGone(r.node) // one that was just let in has no name in the status yet
	if n := r.node.door.(ownDoor).Running(Slots); n != 0 {
		t.Errorf("%d slots are held by nobody", n)
	}
	if waited.Load() == 0 || ran.Load() == 0 {
		t.Errorf("%d waited, %d ran", waited.Load(), ran.Load())
	}
	t.Logf("%d lines about waiting, %d ran", waited.Load(), ran.Load())
	made, removed := e.counts()
	if made != removed {
		t.Errorf("%d made, %d removed", made, removed)
	}
}

// awaitAllGone waits until the node carries no session.
func awaitAllGone(n *Node) {
	for {
		n.mu.Lock()
		carried, changed := len(n.live), n.changed
		n.mu.Unlock()
		if carried == 0 {
			return
		}
		<-changed
	}
}
