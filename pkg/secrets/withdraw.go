package secrets

import (
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Withdraw takes a key back, for a reason that people are told: from now on its
// stand-in, and each token of [Ring.Own] under that name, is refused wherever it
// turns up, and what goes on with one is cut (see [Ring.Hold]). Answers are masked
// as before, and the hosts of an own token are read from then on. It reports whether
// the key was not withdrawn before; [Ring.Rotate] and [Ring.Restore] give it again.
func (r *Ring) Withdraw(name, why string) (now bool) {
	_ = r.edit(name, func(h *held) { // a ring that is closed has nothing to withdraw
		if now = h.withdrawn == ""; now {
			h.turn++
		}
		h.withdrawn = why
	})
	if now {
		r.cut()
	}
	return now
}

// Rebind says anew where a key may go. What holds the key and still goes on is
// cut where that is not what it was.
func (r *Ring) Rebind(name string, b Binding) error {
	bound, err := b.compile()
	if err != nil {
		return fmt.Errorf("the secret %s: %w", name, err)
	}
	err = r.edit(name, func(h *held) { h.rebind(bound) })
	r.cut()
	return err
}

// Replace is [Ring.Rotate] and [Ring.Rebind] as one: no key goes where only
// another one may go.
func (r *Ring) Replace(name string, v Value, b Binding) error {
	bound, err := b.compile()
	if err == nil {
		err = CheckShape(v)
	}
	if err != nil {
		return fmt.Errorf("the secret %s: %w", name, err)
	}
	err = r.edit(name, func(h *held) {
		h.renew(v)
		h.rebind(bound)
	})
	r.cut()
	return err
}

func (h *held) rebind(b *bound) {
	if !h.bound.text.equal(b.text) {
		h.bound, h.turn = b, h.turn+1
	}
}

// Binds reports whether the key of that name is bound so, with the usual headers
// where b names no place.
func (r *Ring) Binds(name string, b Binding) bool {
	h := r.state.Load().named(name)
	return h != nil && h.bound.text.equal(b.WithDefaults())
}

// Binding is where the key of that name may go, as it is bound now; nothing where
// the ring holds none.
func (r *Ring) Binding(name string) Binding {
	if h := r.state.Load().named(name); h != nil {
		return h.bound.text
	}
	return Binding{}
}

// Own notes a token that the session itself has, or is about to get. It passes as
// it is until its name is withdrawn: then it is refused towards every host and
// wherever it stands, and so is every other one that came under that name, since
// each may be inside still. One that comes later is refused at once. Another session
// may have the same one.
func (r *Ring) Own(s Secret) error {
	b, err := s.Binding.compile()
	if err == nil {
		err = CheckShape(s.Value)
	}
	if err != nil {
		return fmt.Errorf("the secret %s: %w", s.Name, err)
	}
	token, known := string(s.Value.RevealForTheWire()), false
	err = r.change(func(all []*held) ([]*held, error) {
		at := slices.IndexFunc(all, func(h *held) bool { return h.name == s.Name })
		if at < 0 {
			return append(all, &held{name: s.Name, own: []string{token}, bound: b}), nil
		}
		fresh := *all[at]
		if len(fresh.own) == 0 {
			return nil, fmt.Errorf("the secret %s is in the ring already", s.Name)
		}
		if known = slices.Contains(fresh.own, token); !known {
			fresh.own = append(slices.Clone(fresh.own), token)
		}
		all[at] = &fresh
		return all, nil
	})
	if err == nil && !known {
		r.book.add(&issued{standIn: token, ring: r, name: s.Name, own: true})
	}
	return err
}

// Lost reports whether the key of that name is withdrawn.
func (r *Ring) Lost(name string) bool {
	h := r.state.Load().named(name)
	return h != nil && h.withdrawn != ""
}

// Restore lets the session's own tokens of that name pass again.
func (r *Ring) Restore(name string) {
	_ = r.edit(name, func(h *held) { h.withdrawn = "" }) // as above
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

// A Use is what of a ring's keys a request may go on with.
type Use struct {
	Names []string // of the keys that it takes along, and of own tokens
	Host  string   // where it goes, in normal form
	Port  uint16
	Seen  Turn // of the keys, when they were looked up
}

// broken reports whether a request may not go on because of this key. What else said
// an own token to its hosts, a body or a message, nobody knows.
func (u Use) broken(h *held) bool {
	again := h.turn != u.Seen.of(h.name)
	if slices.Contains(u.Names, h.name) {
		return again || h.withdrawn != ""
	}
	return again && len(h.own) > 0 && h.bound.host(u.Host, u.Port)
}

// concerns reports whether a request may ever be broken because of this key.
func (u Use) concerns(h *held) bool {
	return len(u.Names) > 0 || len(h.own) > 0 && h.bound.host(u.Host, u.Port)
}

// Hold calls cut, once, when one of the keys that a request takes along is
// withdrawn or bound anew, or an own token is withdrawn that it takes along or
// whose hosts it goes to, which may have happened already since they were looked
// up; cut must be quick. release ends that.
func (r *Ring) Hold(u Use, cut func()) (release func()) {
	if r == nil || !slices.ContainsFunc(r.state.Load().held, u.concerns) {
		return func() {}
	}
	return r.hold(func(s *ringState) bool { return slices.ContainsFunc(s.held, u.broken) }, cut)
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

// Withdrawn says why something that used these keys was cut, of each key of which
// that is so: it goes nowhere any more, or is bound elsewhere.
func (r *Ring) Withdrawn(u Use) string {
	var all []string
	for _, h := range r.state.Load().held {
		whose, before := "the key of "+h.name, u.Seen.state.named(h.name)
		switch {
		case !u.broken(h):
		case len(h.own) > 0 || strings.HasPrefix(h.name, SignIn):
			all = append(all, h.lost(Called(h.name)))
		case h.withdrawn == "" && before != nil && h.bound != before.bound:
			all = append(all, whose+" is bound elsewhere since")
		default:
			all = append(all, h.lost(whose))
		}
	}
	if len(all) == 0 {
		return "a key was withdrawn meanwhile"
	}
	return strings.Join(all, "; ")
}

// lost says that what has that name was withdrawn.
func (h *held) lost(called string) string {
	if h.withdrawn == "" {
		return called + " was withdrawn meanwhile, and is there again"
	}
	return called + " was withdrawn: " + h.withdrawn
}

// whichWas goes on with a sentence that ends in the name of a key that was
// withdrawn.
func (h *held) whichWas() string { return ", which was withdrawn: " + h.withdrawn }
