package people

import (
	"context"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// ticket is one start at the door of all, or behind it.
type ticket struct {
	drop context.CancelFunc
	in   bool
}

// enter has one start wait at the door of all.
func (d *deputy) enter(ctx context.Context, m message) {
	ctx, cancel := context.WithCancel(ctx)
	t := &ticket{drop: cancel}
	if !d.note(m.ID, t) {
		cancel()
		d.answer(message{Kind: kindRefused, ID: m.ID, Problem: tooMany})
		return
	}
	d.b.tasks.Go(func() {
		d.wait(ctx, m, t)
		d.mu.Lock()
		defer d.mu.Unlock()
		if d.tickets[m.ID] == t {
			delete(d.tickets, m.ID)
		}
		cancel()
	})
}

// holds says whether a session of this id has been let in and is not over.
func (d *deputy) holds(id string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	t := d.tickets[id]
	return t != nil && t.in
}

// note writes a ticket down, unless too many wait.
func (d *deputy) note(id string, t *ticket) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	waiting := 0
	for _, other := range d.tickets {
		if !other.in {
			waiting++
		}
	}
	if id == "" || len(id) > 64 || d.tickets[id] != nil || waiting >= mayWait {
		return false
	}
	d.tickets[id] = t
	return true
}

var tooMany = &api.Problem{Code: "capacity", Sentence: "no more sessions of this person can be taken", Exit: fault.ExitCannotRun,
	Hint: (*admission.FullError)(nil).Hint()}

// wait holds one ticket from the door to its end.
func (d *deputy) wait(ctx context.Context, m message, t *ticket) {
	r := admission.Request{ID: m.ID, User: d.who.UID, Kind: d.b.o.Kind, Memory: m.Memory}
	if r.Memory != 0 {
		r.Memory = max(r.Memory, 1<<20)
	}
	slot, err := d.b.o.Door.Enter(ctx, r, func(p admission.Place) {
		d.answer(message{Kind: kindPlace, ID: m.ID, Place: &p})
	})
	if err != nil {
		if ctx.Err() == nil {
			d.answer(message{Kind: kindRefused, ID: m.ID, Problem: fault.As(err).Problem()})
		}
		return
	}
	defer slot.Release()
	d.mu.Lock()
	t.in = true
	d.mu.Unlock()
	d.answer(message{Kind: kindIn, ID: m.ID})
	<-ctx.Done()
}

// drop ends one ticket, whether it waits or is in.
func (d *deputy) drop(id string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if t := d.tickets[id]; t != nil {
		t.drop()
		delete(d.tickets, id)
	}
}

func (d *deputy) releaseAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, t := range d.tickets {
		t.drop()
		delete(d.tickets, id)
	}
}
