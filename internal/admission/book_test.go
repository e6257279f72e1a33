package admission

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	session Kind = "session"
	task    Kind = "task"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func testBook(sessions, tasks Limits) book {
	sessions.One, sessions.Many = "session", "sessions"
	tasks.One, tasks.Many = "script task", "script tasks"
	return newBook(map[Kind]Limits{session: sessions, task: tasks}, memoryRule{need: 128 * mebi, keep: 1, warm: time.Second})
}

func have(available int64) machine {
	return machine{reading: Reading{Available: available, Total: 16 * gibi, Where: thisMachine}, known: true}
}

// come puts one into the book and settles it.
func come(t *testing.T, b *book, m machine, r Request) *entry {
	t.Helper()
	e, err := b.arrive(noon, r)
	if err != nil {
		t.Fatal(err)
	}
	settle(b, noon, m)
	if err := b.tooMany(e); err != nil {
		t.Fatal(err)
	}
	return e
}

func settle(b *book, now time.Time, m machine) (in []string) {
	for e := b.next(now, m); e != nil; e = b.next(now, m) {
		in = append(in, e.ID)
	}
	b.replace(now, m)
	return in
}

func ids(es []*entry) (out []string) {
	for _, e := range es {
		out = append(out, e.ID)
	}
	return out
}

func TestOrderIsRoundRobinOverPeople(t *testing.T) {
	b := testBook(Limits{Max: 1, Queue: 20}, Limits{})
	first := come(t, &b, machine{}, Request{ID: "a0", User: 1, Kind: session})
	for _, id := range []string{"a1", "a2", "a3", "b1", "b2", "c1"} {
		come(t, &b, machine{}, Request{ID: id, User: int(id[0]), Kind: session})
	}
	// Person 97 is another than person 1, who runs.
	come(t, &b, machine{}, Request{ID: "x1", User: 1, Kind: session})
	want := []string{"a1", "b1", "c1", "x1", "a2", "b2", "a3"}
	if diff := cmp.Diff(want, ids(b.order(session))); diff != "" {
		t.Error(diff)
	}
	// The order that is shown is the one in which they are let in.
	var got []string
	running := first
	for len(b.waiting) > 0 {
		b.release(noon, running)
		running = b.next(noon, machine{})
		got = append(got, running.ID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	b.release(noon, running)
	if len(b.served) != 0 || len(b.running) != 0 {
		t.Errorf("an empty book remembers %v, %v", b.served, b.running)
	}
}

// Two who come and go in turn must not keep a third out.
func TestNobodyIsStarvedByThoseWhoComeAndGo(t *testing.T) {
	b := testBook(Limits{Max: 2, Queue: 20}, Limits{})
	come(t, &b, machine{}, Request{ID: "a0", User: 1, Kind: session}) // stays
	running := come(t, &b, machine{}, Request{ID: "u", User: 2, Kind: session})
	waits := come(t, &b, machine{}, Request{ID: "a1", User: 1, Kind: session})
	come(t, &b, machine{}, Request{ID: "v", User: 3, Kind: session})
	for i := 0; !waits.in(); i++ {
		if i > 2 {
			t.Fatal("a1 is passed again and again")
		}
		b.release(noon, running)
		running = b.next(noon, machine{})
		come(t, &b, machine{}, Request{ID: fmt.Sprint(i), User: 2 + i%2, Kind: session})
	}
}

func TestABigOneIsPassedABitAndNeverStarves(t *testing.T) {
	b := testBook(Limits{Queue: 50}, Limits{})
	m := have(gibi)
	small := func(i int) *entry {
		return come(t, &b, m, Request{ID: fmt.Sprintf("s%d", i), User: 2, Kind: session, Memory: mebi})
	}
	running := []*entry{small(0)}
	big := come(t, &b, m, Request{ID: "big", User: 1, Kind: session, Memory: 64 * gibi})
	if big.place.Cause != CauseMemory || !strings.Contains(big.place.Reason, "needs 64.0 GiB") {
		t.Fatalf("%+v", big.place)
	}
	for i := range maxOvertaken {
		e := small(i + 1)
		if !e.in() {
			t.Fatalf("%s waits although there is room: %v", e.ID, e.place)
		}
		running = append(running, e)
	}
	behind := small(99)
	if behind.in() || behind.place.Cause != CauseTurn {
		t.Fatalf("passed once too often: %+v", behind)
	}
	for _, e := range running {
		if big.in() {
			t.Fatal("let in while others run and memory lacks")
		}
		b.release(noon, e)
		settle(&b, noon, m)
	}
	if !big.in() {
		t.Fatal("not let in although nothing runs")
	}
	if behind.in() {
		t.Error("no memory was left for this one")
	}
	b.release(noon, big)
	if got := settle(&b, noon, m); len(got) != 1 {
		t.Errorf("after the big one %v", got)
	}
}

func TestKindsShareMemoryAndNothingElse(t *testing.T) {
	b := testBook(Limits{Max: 1, Queue: 9}, Limits{Max: 1, Queue: 9})
	m := have(2 * gibi)
	come(t, &b, m, Request{ID: "s", User: 1, Kind: session, Memory: gibi})
	if e := come(t, &b, m, Request{ID: "t", User: 1, Kind: task, Memory: gibi / 2}); !e.in() {
		t.Errorf("a task waits for the slots of sessions: %v", e.place)
	}
	b = testBook(Limits{Max: 9, Queue: 9}, Limits{Max: 9, Queue: 9})
	come(t, &b, m, Request{ID: "s", User: 1, Kind: session, Memory: gibi})
	e := come(t, &b, m, Request{ID: "t", User: 1, Kind: task, Memory: gibi})
	if e.in() || e.place.Cause != CauseMemory {
		t.Errorf("what a session was promised was given to a task: %+v", e)
	}
	if got := settle(&b, noon.Add(time.Second), m); !slices.Equal(got, []string{"t"}) {
		t.Errorf("once the session is warm: %v", got)
	}
}

func TestEstimate(t *testing.T) {
	b := testBook(Limits{Max: 2, Queue: 9}, Limits{})
	a := come(t, &b, machine{}, Request{Kind: session})
	come(t, &b, machine{}, Request{Kind: session})
	if w := come(t, &b, machine{}, Request{Kind: session}); w.place.Estimate != 0 {
		t.Errorf("an estimate from nothing: %v", w.place)
	}
	b.release(noon.Add(time.Minute), a)
	settle(&b, noon.Add(time.Minute), machine{}) // one is a minute old, one is new
	now := noon.Add(90 * time.Second)
	for place, want := range map[int]time.Duration{1: 15 * time.Second, 2: 30 * time.Second, 3: 75 * time.Second, 4: 90 * time.Second} {
		if got := b.estimate(now, session, place); got != want {
			t.Errorf("place %d waits for %v, want %v", place, got, want)
		}
	}
	if b.estimate(now, task, 1) != 0 {
		t.Error("an estimate for a kind of which nothing ended")
	}
}

func TestRefusedRequests(t *testing.T) {
	b := testBook(Limits{}, Limits{})
	for _, r := range []Request{{}, {Kind: "other"}, {Kind: session, Memory: -1}} {
		if _, err := b.arrive(noon, r); err == nil {
			t.Errorf("%+v was taken", r)
		}
	}
	if len(b.waiting) != 0 {
		t.Error("one who was refused waits")
	}
}

// FuzzBook drives the book by random acts and checks after each that no slot
// was lost or given twice, that nobody waits while they could run, and that
// nobody is passed twice by the same person.
func FuzzBook(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 0, 0, 3, 3, 3})
	f.Add([]byte{0, 64, 128, 192, 0, 64, 4, 3, 0, 3, 64, 3, 128, 3})
	f.Add([]byte{1, 2, 1, 65, 2, 3, 5, 3, 37, 1, 3, 3, 3})
	f.Fuzz(func(t *testing.T, acts []byte) {
		w := bookWorld{t: t, book: testBook(Limits{Queue: 6}, Limits{Max: 2, Queue: 4}), m: have(gibi), now: noon, passed: map[*entry]map[int]int{}}
		for _, a := range acts {
			w.act(a)
			w.check()
		}
		for len(w.book.running) > 0 {
			w.act(3)
			w.check()
		}
		if len(w.book.waiting) != 0 || len(w.book.served) != 0 || w.in != w.out {
			t.Errorf("after all have ended %v wait, served %v; %d in, %d out", ids(w.book.waiting), w.book.served, w.in, w.out)
		}
	})
}

type bookWorld struct {
	t       *testing.T
	book    book
	m       machine
	now     time.Time
	in, out int
	passed  map[*entry]map[int]int // of tasks that are their person's oldest: by whom, how often
}

func (w *bookWorld) act(a byte) {
	user, b := int(a>>6), &w.book
	w.now = w.now.Add(time.Duration(a) * time.Millisecond)
	switch a & 7 {
	case 0, 6:
		w.arrive(Request{User: user, Kind: task, Memory: 1})
	case 1:
		w.arrive(Request{User: user, Kind: session, Memory: 128 * mebi})
	case 2:
		w.arrive(Request{User: user, Kind: session, Memory: 3 * gibi})
	case 3, 7:
		// The oldest, so that a seed means the same each time.
		var oldest *entry
		for e := range b.running {
			if oldest == nil || e.number < oldest.number {
				oldest = e
			}
		}
		if oldest != nil {
			b.release(w.now, oldest)
			b.release(w.now, oldest) // a second time does nothing
			w.out++
		}
	case 4:
		if len(b.waiting) > 0 {
			b.leave(b.waiting[int(a)%len(b.waiting)])
		}
	case 5:
		w.m = have(int64(a>>3) * 64 * mebi)
		w.m.known = a>>3 != 31
	}
	w.settle()
}

func (w *bookWorld) arrive(r Request) {
	e, err := w.book.arrive(w.now, r)
	if err != nil {
		w.t.Fatal(err)
	}
	w.settle()
	if err := w.book.tooMany(e); err != nil {
		w.book.leave(e)
	}
}

func (w *bookWorld) settle() {
	for {
		heads := map[int]*entry{}
		for _, e := range w.book.waiting {
			if e.Kind == task && heads[e.User] == nil {
				heads[e.User] = e
			}
		}
		e := w.book.next(w.now, w.m)
		if e == nil {
			break
		}
		w.in++
		for u, h := range heads {
			if e.Kind != task || u == e.User {
				continue
			}
			if w.passed[h] == nil {
				w.passed[h] = map[int]int{}
			}
			if w.passed[h][e.User]++; w.passed[h][e.User] > 1 {
				w.t.Errorf("person %d passed %d twice", e.User, u)
			}
		}
	}
	w.book.replace(w.now, w.m)
}

func (w *bookWorld) check() {
	b := &w.book
	if n := b.count(task); n > 2 {
		w.t.Errorf("%d tasks run", n)
	}
	if len(b.running) != w.in-w.out {
		w.t.Errorf("%d run, %d in, %d out", len(b.running), w.in, w.out)
	}
	if len(b.running) == 0 && len(b.waiting) > 0 {
		w.t.Errorf("nothing runs and %d wait", len(b.waiting))
	}
	queued := map[Kind]int{}
	for _, e := range b.waiting {
		queued[e.Kind]++
		if e.in() || b.running[e] {
			w.t.Error("one both runs and waits")
		}
		if e.overtaken > maxOvertaken || e.place.Number < 1 || e.place.Reason == "" {
			w.t.Errorf("%+v", e)
		}
	}
	if queued[session] > 6 || queued[task] > 4 {
		w.t.Errorf("too many wait: %v", queued)
	}
	if !w.m.known && queued[task] > 0 && b.count(task) < 2 {
		w.t.Error("a task waits for a slot that is free")
	}
}
