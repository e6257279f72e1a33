// Package admission promises that a start is let in only where there is room
// for it, that a slot is never lost or given twice, and that whoever waits is
// told their place, the reason and an estimate.
//
// There is one [Door] for everything that starts. [Door.Enter] reserves and
// [Ticket.Release] gives back; whatever has to be made or fetched first is made
// before the door, so that nobody holds a slot without using it. Room is a
// count per kind and the memory of the machine. Among those who wait the next
// is the person who was let in longest ago, and of one person the oldest.
// While nothing runs the first who comes is let in, however much it needs: a
// big job waits for the others to end and never for ever.
//
// What is decided is in book.go and decide.go, as values, without clock, lock
// or kernel; this file adds those.
package admission

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// Kind names what wants to start. Each kind has its own slots and its own
// queue; all share the memory of the machine.
type Kind string

// Limits are those of one kind.
type Limits struct {
	Max   int           // how many may run at once; 0: as many as memory allows
	Queue int           // how many may wait; 0: nobody
	Wait  time.Duration // how long one waits; 0: as long as it likes

	One, Many string // what one of them and several are called: "session", "sessions"
	Setting   string // the key of the setting behind Max, for the sentence that names it
}

// Memory rules how much of the machine's memory starts may take.
type Memory struct {
	// Read says what is free now. Nil or an error means that it is not known:
	// then a kind without Max is held to a few at a time.
	Read func() (Reading, error)
	// Need is what a request that names nothing is taken to need, in bytes.
	Need int64
	// Keep is what stays free, in bytes; 0 means a thirty-second of all, at
	// least 128 MiB and at most 1 GiB.
	Keep int64
	// Warm is how long after its start a session's need is still held back;
	// it shrinks to nothing meanwhile, as what the session really uses shows
	// in Reading.
	Warm time.Duration
}

// Options of a Door.
type Options struct {
	Kinds  map[Kind]Limits
	Memory Memory
}

// Request asks to start one thing.
type Request struct {
	ID     string // shown in the queue; the door does not compare it
	User   int    // whose turn it uses up: a uid
	Kind   Kind
	Memory int64 // what it is expected to need, in bytes; 0 means Memory.Need
}

// Waiting is one who waits, as the queue is shown.
type Waiting struct {
	Request
	Since time.Time
	Place Place
}

// tellEvery is how long one who waits hears nothing after each line: where it is
// memory that decides, the cause may come and go several times a second.
const tellEvery = 3 * time.Second

// lookEvery is how often those who wait look at the machine's memory, and how
// old a reading may be: what was let in meanwhile is held back anyway.
const lookEvery = 250 * time.Millisecond

// Door is where every start passes. Its zero value lets nobody in.
type Door struct {
	read func() (Reading, error)

	mu      sync.Mutex // guards what follows
	book    book
	asking  map[*entry]*call
	machine machine
	looked  time.Time // when machine was read
}

// call is the waiting side of an entry. Both channels hold one item and are
// written under the door's lock, so that writing never waits.
type call struct {
	in   chan struct{} // closed once it is let in
	news chan Place    // the newest place
}

// New makes a door.
func New(o Options) (*Door, error) {
	for k, l := range o.Kinds {
		if l.Max < 0 || l.Queue < 0 || l.Wait < 0 || l.One == "" || l.Many == "" {
			return nil, fmt.Errorf("BUG: limits of %s: %+v", k, l)
		}
	}
	m := o.Memory
	if m.Need < 0 || m.Keep < 0 || m.Warm < 0 {
		return nil, fmt.Errorf("BUG: memory rule %+v", m)
	}
	return &Door{
		read: m.Read, asking: map[*entry]*call{},
		book: newBook(o.Kinds, memoryRule{need: m.Need, keep: m.Keep, warm: m.Warm}),
	}, nil
}

// Enter waits until r may start. It returns at once where there is room, and
// with a [FullError] where the queue is full; a [WaitedError] says that the
// wait allowed to its kind is over, and the cause of ctx that ctx ended.
// Without an error the ticket must be released, once whatever was started is
// gone.
//
// While it waits, tell (which may be nil) hears the place, at first and when
// number or cause have changed, on the goroutine of the caller. It must not
// block: the slot may be given meanwhile.
func (d *Door) Enter(ctx context.Context, r Request, tell func(Place)) (*Ticket, error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	e, c, err := d.arrive(r)
	if err != nil {
		return nil, err
	}
	select {
	case <-c.in:
	default:
		if err := d.wait(ctx, e, c, tell); err != nil {
			return nil, err
		}
	}
	return &Ticket{d: d, e: e}, nil
}

// arrive lets r in, puts it into the queue or refuses it.
func (d *Door) arrive(r Request) (*entry, *call, error) {
	if d == nil || d.asking == nil {
		return nil, nil, errors.New("BUG: a door that nobody made")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	e, err := d.book.arrive(now, r)
	if err != nil {
		return nil, nil, err
	}
	c := &call{in: make(chan struct{}), news: make(chan Place, 1)}
	d.asking[e] = c
	d.admitLocked(now)
	if err := d.book.tooMany(e); err != nil {
		d.book.leave(e)
		delete(d.asking, e)
		return nil, nil, err
	}
	d.tellLocked(now)
	return e, c, nil
}

// wait returns nil once e is let in. Otherwise e has left the queue, and the
// slot that it was given at the last moment is free again.
func (d *Door) wait(ctx context.Context, e *entry, c *call, tell func(Place)) error {
	var late <-chan time.Time
	if limit := d.limits(e.Kind).Wait; limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		late = timer.C
	}
	look := time.NewTicker(lookEvery)
	defer look.Stop()
	news, heard := c.news, (<-chan time.Time)(nil)
	for {
		select {
		case <-c.in:
			return nil
		case p := <-news:
			if tell != nil {
				tell(p)
			}
			news, heard = nil, time.After(tellEvery)
		case <-heard:
			news = c.news
		case <-look.C:
			d.advance()
		case <-late:
			if w := d.giveUp(e); w != nil {
				return w
			}
			return nil // let in at the same moment: the wait was worth it
		case <-ctx.Done():
			if d.giveUp(e) == nil {
				d.release(e)
			}
			return context.Cause(ctx)
		}
	}
}

// giveUp takes e out of the queue and says how that reads, or returns nil
// where e has been let in.
func (d *Door) giveUp(e *entry) *WaitedError {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.in() {
		return nil
	}
	now := time.Now()
	w := &WaitedError{Limits: d.book.limits[e.Kind], Waited: now.Sub(e.since), Reason: e.place.Reason}
	d.book.leave(e)
	delete(d.asking, e)
	d.advanceLocked(now) // it may have been in somebody's way
	return w
}

func (d *Door) release(e *entry) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := time.Now()
	d.book.release(now, e)
	d.advanceLocked(now)
}

func (d *Door) advance() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.advanceLocked(time.Now())
}

// advanceLocked lets in whoever may start now and tells the others.
func (d *Door) advanceLocked(now time.Time) {
	d.admitLocked(now)
	d.tellLocked(now)
}

func (d *Door) admitLocked(now time.Time) {
	d.lookLocked(now)
	for e := d.book.next(now, d.machine); e != nil; e = d.book.next(now, d.machine) {
		close(d.asking[e].in)
		delete(d.asking, e)
	}
}

func (d *Door) tellLocked(now time.Time) {
	for _, e := range d.book.replace(now, d.machine) {
		c := d.asking[e]
		select {
		case <-c.news: // an older place that nobody has heard
		default:
		}
		c.news <- e.place
	}
}

// Roomy reports whether the machine has memory for what nobody has asked for
// yet: nobody waits, and one more start would be let in.
func (d *Door) Roomy() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.book.waiting) > 0 {
		return false
	}
	if d.read == nil {
		return true
	}
	r, err := d.read()
	return err == nil && d.book.roomy(time.Now(), r)
}

// lookLocked reads the machine's memory, unless that was done a moment ago or
// does not matter: the first is let in whatever it says.
func (d *Door) lookLocked(now time.Time) {
	if d.read == nil || len(d.book.running)+len(d.book.waiting) < 2 || now.Sub(d.looked) < lookEvery && !d.looked.IsZero() {
		return
	}
	r, err := d.read()
	d.machine, d.looked = machine{reading: r, known: err == nil}, now
}

func (d *Door) limits(k Kind) Limits {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.limits[k]
}

// Running is how many of a kind hold a slot.
func (d *Door) Running(k Kind) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.book.count(k)
}

// Queue is who waits, kind by kind and there in the order in which they will
// be let in. It is never nil.
func (d *Door) Queue() []Waiting {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, out := time.Now(), []Waiting{}
	for _, k := range d.book.kinds() {
		for _, e := range d.book.order(k) {
			p := e.place
			p.Estimate = d.book.estimate(now, k, p.Number)
			out = append(out, Waiting{Request: e.Request, Since: e.since, Place: p})
		}
	}
	return out
}

// Ticket is one slot.
type Ticket struct {
	d *Door
	e *entry
}

// Release gives the slot back. Only the first call does anything, and a nil
// ticket has nothing to give back.
func (t *Ticket) Release() {
	if t != nil {
		t.d.release(t.e)
	}
}
