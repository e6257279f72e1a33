package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestSandboxesForGitAreBounded: there are never more than there are seats, and
// neither who looks nor who pushes can take those of sessions that end.
func TestSandboxesForGitAreBounded(t *testing.T) {
	t.Parallel()
	s := newSeats()
	over, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	cancel(why)
	push := func(ctx context.Context) (*gitSeat, error) { return s.judging(ctx, make(row, 1)) }
	look := func(ctx context.Context) (*gitSeat, error) { return s.looking(ctx, func(string) {}) }
	fill := func(take func(context.Context) (*gitSeat, error), want int) (taken []*gitSeat) {
		t.Helper()
		for {
			one, err := take(over)
			if err != nil {
				break
			}
			taken = append(taken, one)
		}
		if len(taken) != want {
			t.Errorf("%d seats, want %d", len(taken), want)
		}
		return taken
	}
	looks, pushes, ends := fill(look, maxLooks), fill(push, maxPushes), fill(s.ending, maxQuestions-maxLooks-maxPushes)
	if len(ends) == 0 {
		t.Error("none is left for those that end")
	}
	if _, err := s.ending(over); !errors.Is(err, why) {
		t.Errorf("it says %v", err)
	}
	looks[0].leave()
	looks[0].leave() // is no second one
	fill(s.ending, 1)
	fill(look, 0) // which has its place among those who look back, and no seat
	for _, one := range pushes {
		one.leave()
	}
	fill(look, 1)
	fill(push, 1)
}

// TestPushesOfASessionTakeTurns: however many it makes, the others have a seat.
func TestPushesOfASessionTakeTurns(t *testing.T) {
	t.Parallel()
	s, one, another := newSeats(), make(row, 1), make(row, 1)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	seat, err := s.judging(over, one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.judging(over, one); err == nil {
		t.Error("it has two")
	}
	if _, err := s.judging(over, another); err != nil {
		t.Errorf("another session: %v", err)
	}
	seat.leave()
	if _, err := s.judging(over, one); err != nil {
		t.Errorf("its next one: %v", err)
	}
}

// TestGitIsAskedOnAFullNode: all slots and all seats are taken. Who looks at the
// session that has the only slot is told to wait, and so does its end: a seat is
// all that either needs.
func TestGitIsAskedOnAFullNode(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.committed(t)
	w.atMost(t, 1)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	taken := r.node.fillSeats(t)
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-ec", sly + "echo up; sly .mojoup/x x x"}})
	a.up(t, time.After(enough))
	waits, looked := make(chan string, 1), make(chan api.Ended, 1)
	out := &lines{more: make(chan struct{}, 1)}
	id := ""
	for live := range r.living() {
		id = string(live)
	}
	go func() {
		end, _ := r.client.Diff(t.Context(), id, api.DiffRequest{}, client.Streams{Stdout: out, Stderr: out, Notice: func(line string) { waits <- line }})
		looked <- end
	}()
	select {
	case line := <-waits:
		if !strings.Contains(line, "waiting: ") {
			t.Errorf("it says %q", line)
		}
	case end := <-looked:
		t.Fatalf("it did not wait: %+v", end)
	case <-time.After(enough):
		t.Fatal("nothing is said")
	}
	for _, one := range taken {
		one.leave()
	}
	if end := <-looked; end.Code != 0 || end.Problem != nil {
		t.Errorf("%+v %+v: %s", end, end.Problem, out)
	}
	end, err := a.end(t)
	if said := strings.Join(end.Notices, "\n"); err != nil || end.Code != 0 || !strings.Contains(said, "new commits change what is protected") {
		t.Errorf("%+v, %v", end, err)
	}
	for name, row := range map[string]row{"all": r.node.seats.all, "looks": r.node.seats.looks, "pushes": r.node.seats.pushes} {
		if len(row) > 0 {
			t.Errorf("%s: %d seats are taken by nobody", name, len(row))
		}
	}
}

// fillSeats takes all that there are.
func (n *Node) fillSeats(t *testing.T) (taken []*gitSeat) {
	t.Helper()
	for range maxQuestions {
		one, err := n.seats.ending(t.Context())
		must(t, err)
		taken = append(taken, one)
	}
	return taken
}
