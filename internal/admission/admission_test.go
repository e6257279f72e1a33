package admission

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// tasks are the defaults of script tasks.
var tasks = Limits{Max: 2, Queue: 8, Wait: 20 * time.Second, One: "script task", Many: "script tasks", Setting: "node.tasks.max_running"}

func door(t *testing.T, m Memory, kinds map[Kind]Limits) *Door {
	t.Helper()
	d, err := New(Options{Kinds: kinds, Memory: m})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// empty fails where a door is not as it was made.
func empty(t *testing.T, d *Door) {
	t.Helper()
	d.mu.Lock()
	defer d.mu.Unlock()
	b := &d.book
	if len(b.running)+len(b.waiting)+len(b.served)+len(d.asking) != 0 {
		t.Errorf("left: %d running, %d waiting, %d asking, served %v", len(b.running), len(b.waiting), len(d.asking), b.served)
	}
}

// start enters and, once let in, stays for that long.
func start(ctx context.Context, d *Door, r Request, stay time.Duration) error {
	ticket, err := d.Enter(ctx, r, nil)
	if err != nil {
		return err
	}
	defer ticket.Release()
	<-time.After(stay)
	return nil
}

// B65: 2 run, 8 wait, the 11th is refused at once; when one ends the oldest
// waiter starts; after 20 s the others are told how long they waited; what is
// shown is what is.
func TestB65_TheQueueAtItsEdges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := door(t, Memory{}, map[Kind]Limits{task: tasks})
		begun := time.Now()
		type end struct {
			i   int
			at  time.Duration
			err error
		}
		ends := make(chan end, 11)
		for i := range 11 {
			stay := time.Hour
			if i == 0 {
				stay = 5 * time.Second
			}
			go func() {
				err := start(t.Context(), d, Request{ID: fmt.Sprint(i), Kind: task}, stay)
				ends <- end{i, time.Since(begun), err}
			}()
			synctest.Wait()
		}
		// At once: no time has passed in the bubble.
		full := <-ends
		var fe *FullError
		if full.i != 10 || full.at != 0 || !errors.As(full.err, &fe) {
			t.Fatalf("%+v", full)
		}
		if want := "no free slot for another script task: 2 script tasks are running, 8 already waiting"; full.err.Error() != want {
			t.Errorf("got  %s\nwant %s", full.err, want)
		}
		shows(t, d, 2, "2", "3", "4", "5", "6", "7", "8", "9")
		if first := <-ends; first.i != 0 || first.err != nil || first.at != 5*time.Second {
			t.Fatalf("%+v", first)
		}
		synctest.Wait()
		shows(t, d, 2, "3", "4", "5", "6", "7", "8", "9")
		for range 7 {
			late := <-ends
			var we *WaitedError
			if !errors.As(late.err, &we) || late.at != 20*time.Second {
				t.Errorf("%+v", late)
			}
			if want := "no free slot for another script task after waiting for 20 s: 2 script tasks are running and node.tasks.max_running allows no more"; late.err.Error() != want {
				t.Errorf("got  %s\nwant %s", late.err, want)
			}
		}
		shows(t, d, 2)
		<-ends
		<-ends
		empty(t, d)
	})
}

func shows(t *testing.T, d *Door, running int, waiting ...string) {
	t.Helper()
	if n := d.Running(task); n != running {
		t.Errorf("%d are shown running, want %d", n, running)
	}
	var got []string
	for i, w := range d.Queue() {
		got = append(got, w.ID)
		if w.Place.Number != i+1 || w.Place.Of != len(waiting) || w.Place.Cause != CauseSlots {
			t.Errorf("%s is shown at %+v", w.ID, w.Place)
		}
	}
	if !slices.Equal(got, waiting) {
		t.Errorf("shown as waiting %q, want %q", got, waiting)
	}
}

func TestTellsPlaceReasonAndEstimate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := door(t, Memory{}, map[Kind]Limits{session: {Max: 1, Queue: 9, One: "session", Many: "sessions", Setting: "node.sandbox.max_sessions"}})
		var wg sync.WaitGroup
		enter := func(i int, told *[]string) {
			wg.Go(func() {
				ticket, err := d.Enter(t.Context(), Request{User: i, Kind: session}, func(p Place) { *told = append(*told, p.String()) })
				if err != nil {
					t.Error(err)
				}
				<-time.After(time.Minute)
				ticket.Release()
			})
			synctest.Wait()
		}
		told := make([][]string, 3)
		for i := range told {
			enter(i, &told[i])
		}
		wg.Wait()
		const why = "1 session is running and node.sandbox.max_sessions allows no more; "
		want := [][]string{
			nil,
			{"place 1 of 1 in the queue: " + why + "nobody can say yet how long that takes"},
			{"place 2 of 2 in the queue: " + why + "nobody can say yet how long that takes", "place 1 of 1 in the queue: " + why + "about 60 s by what earlier ones took"},
		}
		for i := range want {
			if !slices.Equal(told[i], want[i]) {
				t.Errorf("%d was told\n%s\nwant\n%s", i, strings.Join(told[i], "\n"), strings.Join(want[i], "\n"))
			}
		}
		empty(t, d)
	})
}

func TestCancelLeavesTheQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := door(t, Memory{}, map[Kind]Limits{task: {Max: 1, Queue: 1, One: "x", Many: "xs"}})
		first, err := d.Enter(t.Context(), Request{Kind: task}, nil)
		if err != nil {
			t.Fatal(err)
		}
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		done := make(chan error)
		go func() { done <- start(ctx, d, Request{Kind: task}, 0) }()
		synctest.Wait()
		if err := start(t.Context(), d, Request{Kind: task}, 0); err == nil {
			t.Error("the queue of one took two")
		}
		cancel(gone)
		if err := <-done; err != gone {
			t.Errorf("a cancelled waiter got %v", err)
		}
		go func() { done <- start(t.Context(), d, Request{Kind: task}, 0) }()
		synctest.Wait()
		first.Release()
		first.Release()
		if err := <-done; err != nil {
			t.Errorf("the place of one that was cancelled: %v", err)
		}
		if err := start(ctx, d, Request{Kind: task}, 0); err != gone {
			t.Errorf("cancelled before it came: %v", err)
		}
		empty(t, d)
	})
}

// Memory that becomes free brings nobody to the door: whoever waits looks.
func TestMemoryThatBecomesFreeIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var free atomic.Int64
		free.Store(100 * mebi)
		read := func() (Reading, error) {
			return Reading{Available: free.Load(), Total: 4 * gibi, Where: thisMachine}, nil
		}
		d := door(t, Memory{Read: read, Need: 128 * mebi, Warm: time.Second}, map[Kind]Limits{session: {Queue: 1, One: "session", Many: "sessions"}})
		first, err := d.Enter(t.Context(), Request{Kind: session}, nil)
		if err != nil {
			t.Fatalf("idle, and yet: %v", err)
		}
		var told []Place
		done := make(chan error)
		go func() {
			second, err := d.Enter(t.Context(), Request{Kind: session}, func(p Place) { told = append(told, p) })
			second.Release()
			done <- err
		}()
		<-time.After(10 * time.Second)
		synctest.Wait()
		if len(d.Queue()) != 1 || len(told) != 1 || told[0].Cause != CauseMemory {
			t.Fatalf("queue %v, told %v", d.Queue(), told)
		}
		free.Store(gibi)
		begun := time.Now()
		if err := <-done; err != nil || time.Since(begun) > lookEvery {
			t.Errorf("%v after %v", err, time.Since(begun))
		}
		first.Release()
		empty(t, d)
	})
}

// Several that come at once do not each count on the same free memory.
func TestMemoryIsNotPromisedTwice(t *testing.T) {
	read := func() (Reading, error) {
		return Reading{Available: 1024 * mebi, Total: 4 * gibi, Where: thisMachine}, nil
	}
	d := door(t, Memory{Read: read, Need: 256 * mebi, Keep: 128 * mebi, Warm: time.Hour}, map[Kind]Limits{session: {One: "session", Many: "sessions"}})
	var in atomic.Int32
	var wg sync.WaitGroup
	for range 10 {
		wg.Go(func() {
			if _, err := d.Enter(t.Context(), Request{Kind: session}, nil); err == nil {
				in.Add(1)
			}
		})
	}
	wg.Wait()
	if in.Load() != 3 {
		t.Errorf("%d of 256 MiB were let in at 896 MiB", in.Load())
	}
}

// A cause that comes and goes is not told each time.
func TestTellsNoMoreThanAnybodyWantsToRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var reads atomic.Int64
		read := func() (Reading, error) {
			return Reading{Total: 4 * gibi, Pressure: float64(reads.Add(1) % 2 * 50), Where: thisMachine}, nil
		}
		d := door(t, Memory{Read: read, Need: 1}, map[Kind]Limits{session: {Queue: 1, Wait: time.Minute, One: "session", Many: "sessions"}})
		if _, err := d.Enter(t.Context(), Request{Kind: session}, nil); err != nil {
			t.Fatal(err)
		}
		lines := 0
		if _, err := d.Enter(t.Context(), Request{Kind: session}, func(Place) { lines++ }); err == nil {
			t.Fatal("let in without memory")
		}
		if lines < 2 || lines > 21 || reads.Load() < 100 {
			t.Errorf("%d lines in a minute, %d readings", lines, reads.Load())
		}
	})
}

func TestClosedUnlessMade(t *testing.T) {
	for _, d := range []*Door{nil, {}} {
		if ticket, err := d.Enter(t.Context(), Request{Kind: task}, nil); err == nil || ticket != nil {
			t.Errorf("the zero door let in %v, %v", ticket, err)
		}
	}
	(*Ticket)(nil).Release()
	for _, l := range []Limits{{}, {Max: -1, One: "x", Many: "xs"}, {Queue: -1, One: "x", Many: "xs"}, {Wait: -1, One: "x", Many: "xs"}} {
		if _, err := New(Options{Kinds: map[Kind]Limits{task: l}}); err == nil {
			t.Errorf("%+v was taken", l)
		}
	}
	if _, err := New(Options{Memory: Memory{Need: -1}}); err == nil {
		t.Error("a need of less than nothing was taken")
	}
}

// A random crowd comes, waits, is let in, cancels at any moment, also at the
// one in which it is let in, and releases more than once. No slot is lost or
// given twice.
func TestRandomCrowd(t *testing.T) {
	kinds := map[Kind]Limits{
		task:    {Max: 2, Queue: 8, Wait: 3 * time.Millisecond, One: "task", Many: "tasks"},
		session: {Queue: 6, One: "session", Many: "sessions"},
	}
	var reads atomic.Int64
	read := func() (Reading, error) {
		n := reads.Add(1)
		if n%7 == 0 {
			return Reading{}, errors.New("no memory today")
		}
		return Reading{Available: n % 5 * 256 * mebi, Total: 4 * gibi, Pressure: float64(n % 3 * 15), Where: thisMachine}, nil
	}
	d := door(t, Memory{Read: read, Need: 64 * mebi, Warm: time.Millisecond}, kinds)
	var in, full, late, cancelled, running atomic.Int64
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var crowd sync.WaitGroup
	for person := range 24 {
		crowd.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(person)))
			for range 150 {
				req := Request{User: person % 5, Kind: task}
				if r.IntN(3) == 0 {
					req.Kind, req.Memory = session, int64(r.IntN(3))*gibi
				}
				ctx, cancel := context.WithCancel(t.Context())
				var timer *time.Timer
				if r.IntN(2) == 0 {
					timer = time.AfterFunc(time.Duration(r.IntN(2000))*time.Microsecond, cancel)
				}
				ticket, err := d.Enter(ctx, req, func(p Place) {
					if p.Number < 1 || p.Reason == "" {
						t.Errorf("told %+v", p)
					}
				})
				var fe *FullError
				var we *WaitedError
				switch {
				case err == nil:
					in.Add(1)
					if req.Kind == task {
						if n := running.Add(1); n > 2 {
							t.Errorf("%d tasks at once", n)
						}
					}
					<-time.After(time.Duration(r.IntN(300)) * time.Microsecond)
					if req.Kind == task {
						running.Add(-1)
					}
					for range 1 + r.IntN(2) {
						ticket.Release()
					}
				case ticket != nil:
					t.Error("an error and a ticket")
				case errors.As(err, &fe):
					full.Add(1)
				case errors.As(err, &we):
					late.Add(1)
				case errors.Is(err, context.Canceled):
					cancelled.Add(1)
				default:
					t.Error(err)
				}
				if timer != nil {
					timer.Stop()
				}
				cancel()
			}
		})
	}
	crowd.Wait()
	t.Logf("%d in, %d full, %d late, %d cancelled", in.Load(), full.Load(), late.Load(), cancelled.Load())
	if in.Load() == 0 || full.Load() == 0 || cancelled.Load() == 0 {
		t.Error("the crowd did not try everything")
	}
	empty(t, d)
}
