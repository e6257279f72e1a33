package secrets

import (
	"fmt"
	"slices"
	"sync"
)

// Withdraw takes a key back, for a reason that people are told: from now on its
// stand-in is refused wherever it turns up, and what holds the key and still goes
// on is cut (see [Ring.Hold]). Answers are masked as before. It reports whether
// the key was not withdrawn before; [Ring.Rotate] gives it again.
func (r *Ring) Withdraw(name, why string) (now bool) {
	_ = r.edit(name, func(h *held) { // a ring that is closed has nothing to withdraw
		now = h.withdrawn == ""
		h.withdrawn, h.turn = why, h.turn+1
	})
	r.cut()
	return now
}

// Rebind says anew where a key may go. What holds the key and still goes on is
// cut where that is not what it was.
func (r *Ring) Rebind(name string, b Binding) error {
	bound, err := b.compile()
	if err != nil {
		return fmt.Errorf("the secret %s: %w", name, err)
	}
	err = r.edit(name, func(h *held) {
		if !h.bound.text.equal(bound.text) {
			h.bound, h.turn = bound, h.turn+1
		}
	})
	r.cut()
	return err
}

// Refuse refuses a token that the session itself has, towards every host and
// wherever it stands, as if it were the stand-in of a key that was withdrawn. The
// hosts of its binding are read from now on. Another session may have the same
// one. [Ring.Forget] ends it.
func (r *Ring) Refuse(s Secret, why string) error {
	b, err := s.Binding.compile()
	if err == nil {
		err = CheckShape(s.Value)
	}
	if err != nil {
		return fmt.Errorf("the secret %s: %w", s.Name, err)
	}
	token := string(s.Value.RevealForTheWire())
	err = r.change(func(all []*held) ([]*held, error) {
		all = slices.DeleteFunc(all, func(h *held) bool { return h.name == s.Name })
		return append(all, &held{name: s.Name, standIn: token, bound: b, withdrawn: why}), nil
	})
	if err != nil {
		return err
	}
	r.book.add(&issued{standIn: token, ring: r, name: s.Name, own: true})
	r.cut()
	return nil
}

// Forget takes a token out of the ring that was refused.
func (r *Ring) Forget(name string) {
	_ = r.change(func(all []*held) ([]*held, error) { // as above
		return slices.DeleteFunc(all, func(h *held) bool { return h.name == name }), nil
	})
}

// edit changes one key.
func (r *Ring) edit(name string, f func(*held)) error {
	return r.change(func(all []*held) ([]*held, error) {
		at := slices.IndexFunc(all, func(h *held) bool { return h.name == name })
		if at < 0 {
			return nil, fmt.Errorf("there is no secret %s in the ring", name)
		}
		fresh := *all[at]
		f(&fresh)
		all[at] = &fresh
		return all, nil
	})
}

func (b Binding) equal(o Binding) bool {
	return slices.Equal(b.Hosts, o.Hosts) && slices.Equal(b.Headers, o.Headers) && slices.Equal(b.Query, o.Query) &&
		slices.Equal(b.Body, o.Body) && slices.Equal(b.Paths, o.Paths)
}

// A hold is something that goes on with keys of a ring, or past it.
type hold struct {
	broken func(*ringState) bool
	cut    func()
}

// holds are those of a ring.
type holds struct {
	mu  sync.Mutex
	all map[*hold]struct{}
}

// Hold calls cut, once, when one of the keys that a request takes along is
// withdrawn or bound anew, which may have happened already since they were looked
// up; cut must be quick. release ends that.
func (r *Ring) Hold(names []string, seen Turn, cut func()) (release func()) {
	return r.hold(func(s *ringState) bool {
		return slices.ContainsFunc(names, func(name string) bool {
			h := s.named(name)
			return h == nil || h.withdrawn != "" || h.turn != seen.of(name)
		})
	}, cut)
}

// HoldUnread calls cut when a key is bound to a host that was not when a
// connection to it began, of which nothing is read.
func (r *Ring) HoldUnread(host string, port uint16, cut func()) (release func()) {
	if r == nil {
		return func() {}
	}
	return r.hold(func(s *ringState) bool { return s.bound(host, port) }, cut)
}

func (r *Ring) hold(broken func(*ringState) bool, cut func()) (release func()) {
	h := &hold{broken: broken, cut: cut}
	r.holds.mu.Lock()
	if r.holds.all == nil {
		r.holds.all = map[*hold]struct{}{}
	}
	r.holds.all[h] = struct{}{}
	r.holds.mu.Unlock()
	if s := r.state.Load(); !s.closed && broken(s) && r.release(h) { // meanwhile
		cut()
	}
	return func() { r.release(h) }
}

// release reports whether it was the first to do so.
func (r *Ring) release(h *hold) bool {
	r.holds.mu.Lock()
	defer r.holds.mu.Unlock()
	_, there := r.holds.all[h]
	delete(r.holds.all, h)
	return there
}

// cut cuts what may not go on. The end of a session cuts everything by itself.
func (r *Ring) cut() {
	s := r.state.Load()
	r.holds.mu.Lock()
	var all []*hold
	for h := range r.holds.all {
		if !s.closed && h.broken(s) {
			all = append(all, h)
			delete(r.holds.all, h)
		}
	}
	r.holds.mu.Unlock()
	for _, h := range all {
		h.cut()
	}
}

// A Turn is what a ring's keys were like at some moment.
type Turn struct{ state *ringState }

// Turn is that of now.
func (r *Ring) Turn() Turn {
	if r == nil {
		return Turn{}
	}
	return Turn{r.state.Load()}
}

func (t Turn) of(name string) int {
	if h := t.state.named(name); h != nil {
		return h.turn
	}
	return 0
}

// Withdrawn says why something that took these keys along, one at least, was cut:
// one of them goes nowhere any more, or is bound elsewhere.
func (r *Ring) Withdrawn(names []string) string {
	s := r.state.Load()
	for _, name := range names {
		if h := s.named(name); h != nil && h.withdrawn != "" {
			return withdrawn(h)
		}
	}
	return "the key of " + names[0] + " is bound elsewhere since"
}

// withdrawn is one sentence about a key that is.
func withdrawn(h *held) string { return fmt.Sprintf("%s was withdrawn: %s", h.name, h.withdrawn) }
