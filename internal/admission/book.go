package admission

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// maxOvertaken is how many that need less memory may start before one that
// needs more and came first. After that nobody passes it: what runs ends, and
// at the latest when nothing runs it is let in.
const maxOvertaken = 8

// book is who runs and who waits. It has no clock, no lock and no kernel: the
// time and the machine come in with each call.
type book struct {
	limits  map[Kind]Limits
	memory  memoryRule
	running map[*entry]bool
	waiting []*entry // by arrival
	arrived uint64   // how many ever came
	turns   uint64   // how many were ever let in
	served  map[turn]uint64
	spans   map[Kind]time.Duration // how long slots were held, recent ones weighing most
}

// turn is whose turn is counted: a person's, of one kind.
type turn struct {
	kind Kind
	user int
}

// entry is one request in the book.
type entry struct {
	Request
	number    uint64    // of its arrival
	since     time.Time // when it arrived
	admitted  time.Time // zero while it waits
	overtaken int
	place     Place // as last told
}

func (e *entry) in() bool   { return !e.admitted.IsZero() }
func (e *entry) turn() turn { return turn{e.Kind, e.User} }

func newBook(limits map[Kind]Limits, m memoryRule) book {
	b := book{limits: map[Kind]Limits{}, memory: m, running: map[*entry]bool{}, served: map[turn]uint64{}, spans: map[Kind]time.Duration{}}
	for k, l := range limits {
		b.limits[k] = l
	}
	return b
}

// arrive puts r at the end. Whether it may stay there says tooMany, once next
// has let in whoever may start.
func (b *book) arrive(now time.Time, r Request) (*entry, error) {
	if _, ok := b.limits[r.Kind]; !ok {
		return nil, fmt.Errorf("BUG: a start of the unknown kind %q", r.Kind)
	}
	if r.Memory < 0 {
		return nil, fmt.Errorf("BUG: a start that needs %d bytes", r.Memory)
	}
	if r.Memory == 0 {
		r.Memory = b.memory.need
	}
	b.arrived++
	e := &entry{Request: r, number: b.arrived, since: now}
	b.waiting = append(b.waiting, e)
	return e, nil
}

// tooMany refuses e where it waits and more wait than may.
func (b *book) tooMany(e *entry) error {
	l, n := b.limits[e.Kind], 0
	for _, w := range b.waiting {
		if w.Kind == e.Kind && w != e {
			n++
		}
	}
	if e.in() || n < l.Queue {
		return nil
	}
	return &FullError{Limits: l, Running: b.count(e.Kind), Waiting: n}
}

// leave takes one who waits out of the queue.
func (b *book) leave(e *entry) {
	b.waiting = slices.DeleteFunc(b.waiting, func(w *entry) bool { return w == e })
	b.forget(e.Kind)
}

// release ends one that was let in; a second time it does nothing.
func (b *book) release(now time.Time, e *entry) {
	if !b.running[e] {
		return
	}
	delete(b.running, e)
	held := now.Sub(e.admitted)
	if old, ok := b.spans[e.Kind]; ok {
		held = (2*old + held) / 3
	}
	b.spans[e.Kind] = max(held, time.Millisecond)
	b.forget(e.Kind)
}

// forget drops the turns of those who have nothing running, once nobody waits.
// While somebody does, nobody is forgotten: two who come and go in turn would
// each time be newcomers, and always before whoever waits with an older turn.
func (b *book) forget(k Kind) {
	if slices.ContainsFunc(b.waiting, func(e *entry) bool { return e.Kind == k }) {
		return
	}
	runs := map[turn]bool{}
	for e := range b.running {
		runs[e.turn()] = true
	}
	maps.DeleteFunc(b.served, func(t turn, _ uint64) bool { return t.kind == k && !runs[t] })
}

func (b *book) count(k Kind) (n int) {
	for e := range b.running {
		if e.Kind == k {
			n++
		}
	}
	return n
}

// load is what has been let in, as something of kind k finds it.
func (b *book) load(now time.Time, k Kind) load {
	l := load{all: len(b.running), kind: b.count(k)}
	for e := range b.running {
		l.held += b.memory.held(e.Memory, now.Sub(e.admitted))
	}
	return l
}

// roomy reports whether a machine that says so has memory for one more start
// and is not short of it.
func (b *book) roomy(now time.Time, r Reading) bool {
	free := r.Available - b.load(now, "").held - b.memory.left(r.Total)
	return free >= b.memory.need && r.Pressure < tooHard
}

// order is who waits for a slot of kind k, the next first: round robin over
// the people, beginning with whoever was let in longest ago; of one person the
// oldest first. Two who were never let in stand as they came.
func (b *book) order(k Kind) []*entry {
	var people []int // by the arrival of their oldest
	mine := map[int][]*entry{}
	for _, e := range b.waiting {
		if e.Kind != k {
			continue
		}
		if mine[e.User] == nil {
			people = append(people, e.User)
		}
		mine[e.User] = append(mine[e.User], e)
	}
	slices.SortStableFunc(people, func(x, y int) int {
		return cmp.Compare(b.served[turn{k, x}], b.served[turn{k, y}])
	})
	var out []*entry
	for round := 0; len(people) > 0; round++ {
		for _, u := range people {
			out = append(out, mine[u][round])
		}
		people = slices.DeleteFunc(people, func(u int) bool { return len(mine[u]) == round+1 })
	}
	return out
}

// lanes are the kinds in which somebody waits, the one that was served longest
// ago first: they share the memory.
func (b *book) lanes() []Kind {
	last := map[Kind]uint64{}
	for t, n := range b.served {
		last[t.kind] = max(last[t.kind], n)
	}
	kinds := slices.DeleteFunc(b.kinds(), func(k Kind) bool {
		return !slices.ContainsFunc(b.waiting, func(e *entry) bool { return e.Kind == k })
	})
	slices.SortStableFunc(kinds, func(x, y Kind) int { return cmp.Compare(last[x], last[y]) })
	return kinds
}

// next lets in the next one who may start now and returns it, or nil.
func (b *book) next(now time.Time, m machine) *entry {
	var passed []*entry
	for _, k := range b.lanes() {
		free := b.load(now, k)
		for _, e := range b.order(k) {
			v := decide(b.limits[k], free, m, b.memory, e.Memory)
			switch {
			case v.admit:
				b.admit(now, e, passed)
				return e
			case v.cause == CausePressure:
				return nil // it holds for everybody
			case v.cause == CauseMemory:
				passed = append(passed, e)
				if e.overtaken >= maxOvertaken {
					return nil
				}
				continue
			}
			break // no slot: nor for those behind
		}
	}
	return nil
}

func (b *book) admit(now time.Time, e *entry, passed []*entry) {
	for _, p := range passed {
		p.overtaken++
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(w *entry) bool { return w == e })
	b.turns++
	b.served[e.turn()] = b.turns
	e.admitted = now
	b.running[e] = true
}

// replace gives everybody who waits their place, and returns those whose
// number or cause changed: the figures in a reason change all the time and are
// no news.
func (b *book) replace(now time.Time, m machine) (changed []*entry) {
	for _, k := range b.kinds() {
		order := b.order(k)
		if len(order) == 0 {
			continue
		}
		free := b.load(now, k)
		for i, e := range order {
			v := decide(b.limits[k], free, m, b.memory, e.Memory)
			if v.admit { // it would fit, but somebody who came first does not
				v = verdict{cause: CauseTurn, reason: turnReason}
			}
			old := e.place
			e.place = Place{Number: i + 1, Of: len(order), Cause: v.cause, Reason: v.reason, Estimate: b.estimate(now, k, i+1)}
			if old.Number != e.place.Number || old.Cause != e.place.Cause {
				changed = append(changed, e)
			}
		}
	}
	return changed
}

// estimate is how long the one at this place of kind k will still wait, by how
// long slots were held so far; 0 where nothing has ended yet or where it is
// memory that decides.
func (b *book) estimate(now time.Time, k Kind, place int) time.Duration {
	mean, known := b.spans[k]
	if !known || b.limits[k].Max == 0 {
		return 0
	}
	var left []time.Duration
	for e := range b.running {
		if e.Kind == k {
			// One that lasts longer than most is as likely to end as it was.
			left = append(left, max(mean-now.Sub(e.admitted), mean/4))
		}
	}
	if len(left) == 0 {
		return 0
	}
	slices.Sort(left)
	rounds, rest := (place-1)/len(left), (place-1)%len(left)
	return left[rest] + time.Duration(rounds)*mean
}

// kinds are those that have limits, in a fixed order.
func (b *book) kinds() []Kind {
	out := make([]Kind, 0, len(b.limits))
	for k := range b.limits {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
