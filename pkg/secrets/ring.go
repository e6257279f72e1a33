package secrets

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A Secret is a key with what the node knows about it.
type Secret struct {
	Name    string
	Value   Value
	Binding Binding
	// Prefixes are beginnings that its stand-in keeps, beside those that all
	// do.
	Prefixes []string
	// Lasting says that the stand-in of a token with claims does not expire by
	// them: somebody else renews the token, see [Ring.Rotate].
	Lasting bool
}

// A Book knows every stand-in that a node has given out, so that one which
// turns up in the wrong session is known for what it is. It is safe for
// concurrent use.
type Book struct {
	// mu guards changes; readers take the index as it is.
	mu     sync.Mutex
	issued []*issued
	index  atomic.Pointer[index]
}

// maxIssued is how many stand-ins are remembered; the oldest of ended sessions
// are forgotten first.
const maxIssued = 16 << 10

// issued is one stand-in. Its session's end voids it.
type issued struct {
	standIn string
	ring    *Ring
	name    string
	// own says that it is a token that the session itself has, which is nothing to
	// another session.
	own bool
}

// NewBook returns an empty book.
func NewBook() *Book { return &Book{} }

// windowSize is how much of a stand-in's end is looked up.
const windowSize = 8

// index finds stand-ins in a text by their last bytes.
type index struct {
	bits [1 << 12]uint64 // which windows may be one
	by   map[uint64][]*issued
}

func (x *index) slot(window uint64) (word int, bit uint64) {
	h := window * 0x9e3779b97f4a7c15 >> (64 - 18)
	return int(h >> 6), 1 << (h & 63)
}

func newIndex(all []*issued) *index {
	x := &index{by: make(map[uint64][]*issued, len(all))}
	for _, i := range all {
		w := binary.LittleEndian.Uint64([]byte(i.standIn[len(i.standIn)-windowSize:]))
		word, bit := x.slot(w)
		x.bits[word] |= bit
		x.by[w] = append(x.by[w], i)
	}
	return x
}

// find calls f for every stand-in in text until it returns false.
func (b *Book) find(text string, f func(*issued) bool) {
	x := b.index.Load()
	if x == nil || len(text) < minLength {
		return
	}
	var w uint64
	for i := range windowSize - 1 {
		w = w>>8 | uint64(text[i])<<56
	}
	for i := windowSize - 1; i < len(text); i++ {
		w = w>>8 | uint64(text[i])<<56
		if word, bit := x.slot(w); x.bits[word]&bit == 0 {
			continue
		}
		for _, found := range x.by[w] {
			if strings.HasSuffix(text[:i+1], found.standIn) && !f(found) {
				return
			}
		}
	}
}

func (b *Book) add(i *issued) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for at := 0; len(b.issued) >= maxIssued && at < len(b.issued); {
		if b.issued[at].ring.closed() {
			b.issued = slices.Delete(b.issued, at, at+1)
		} else {
			at++
		}
	}
	b.issued = append(b.issued, i)
	b.index.Store(newIndex(b.issued))
}

// forgetOwn forgets the tokens that a session had itself: without it they are
// nothing to anybody.
func (b *Book) forgetOwn(r *Ring) {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.issued)
	b.issued = slices.DeleteFunc(b.issued, func(i *issued) bool { return i.own && i.ring == r })
	if len(b.issued) != before {
		b.index.Store(newIndex(b.issued))
	}
}

// A Ring holds the keys of one session. Its methods are safe for concurrent
// use; those of a nil Ring know no key.
type Ring struct {
	book    *Book
	session string
	// mu guards changes of state; readers take it as it is.
	mu    sync.Mutex
	state atomic.Pointer[ringState]
	holds holds
}

// ringState never changes once it can be seen.
type ringState struct {
	held   []*held
	mask   *Masker
	closed bool
}

type held struct {
	name    string
	standIn string
	value   Value
	// own are tokens that the session itself has or had, instead of a stand-in.
	own []string
	// before are the values that the key had; a server may still say them.
	before []Value
	bound  *bound
	// withdrawn is why the key goes nowhere any more, or "". turn counts how often
	// it was withdrawn or bound anew.
	withdrawn string
	turn      int
}

// Open returns the ring of a session that begins.
func (b *Book) Open(session string) *Ring {
	r := &Ring{book: b, session: session}
	r.state.Store(&ringState{})
	return r
}

func (r *Ring) closed() bool { return r.state.Load().closed }

var errClosed = errors.New("the session has ended")

// Add takes a key into the ring and returns its stand-in. Two keys of one name
// cannot be told apart and are refused.
func (r *Ring) Add(s Secret) (standIn string, err error) {
	b, err := s.Binding.compile()
	if err != nil {
		return "", fmt.Errorf("the secret %s: %w", s.Name, err)
	}
	if standIn, err = newStandIn(s.Value, s.Lasting, s.Prefixes); err != nil {
		return "", fmt.Errorf("the secret %s: %w", s.Name, err)
	}
	err = r.change(func(all []*held) ([]*held, error) {
		if slices.ContainsFunc(all, func(h *held) bool { return h.name == s.Name }) {
			return nil, fmt.Errorf("the secret %s is in the ring already", s.Name)
		}
		return append(all, &held{name: s.Name, standIn: standIn, value: s.Value, bound: b}), nil
	})
	if err != nil {
		return "", err
	}
	r.book.add(&issued{standIn: standIn, ring: r, name: s.Name})
	return standIn, nil
}

// keepBefore is how many earlier values of a key are masked.
const keepBefore = 2

// Rotate gives a key its new value, from the next request on. Its stand-in
// stays what it is. One that was withdrawn is given again.
func (r *Ring) Rotate(name string, v Value) error {
	if err := CheckShape(v); err != nil {
		return fmt.Errorf("the secret %s: %w", name, err)
	}
	return r.edit(name, func(h *held) { h.renew(v) })
}

// renew makes v the key. Those of before are masked for some time yet.
func (h *held) renew(v Value) {
	if !h.value.Equal(v) {
		h.before = append(slices.Clone(h.before), h.value)
		for len(h.before) > keepBefore {
			h.before[0].Wipe()
			h.before = h.before[1:]
		}
	}
	h.value, h.withdrawn = v, ""
}

// change makes a new state.
func (r *Ring) change(f func([]*held) ([]*held, error)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.state.Load()
	if old.closed {
		return errClosed
	}
	all, err := f(slices.Clone(old.held))
	if err != nil {
		return err
	}
	r.state.Store(&ringState{held: all, mask: newMasker(all)})
	return nil
}

// Close voids the stand-ins and wipes the keys.
func (r *Ring) Close() {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	old := r.state.Load()
	// The names and hosts stay known, for a stand-in that turns up later.
	closed := &ringState{closed: true}
	for _, h := range old.held {
		if len(h.own) > 0 {
			continue
		}
		closed.held = append(closed.held, &held{name: h.name, standIn: h.standIn, bound: h.bound})
	}
	r.state.Store(closed)
	r.book.forgetOwn(r)
	for _, h := range old.held {
		h.value.Wipe()
		for _, v := range h.before {
			v.Wipe()
		}
	}
}

// Bound reports whether some key of the ring may go to that host, so that
// requests towards it must be read.
func (r *Ring) Bound(host string, port uint16) bool {
	if r == nil {
		return false
	}
	return r.state.Load().bound(host, port)
}

// passes reports whether nothing has to be looked for on behalf of it: the session
// has the token itself, and may.
func (h *held) passes() bool { return len(h.own) > 0 && h.withdrawn == "" }

func (s *ringState) bound(host string, port uint16) bool {
	return slices.ContainsFunc(s.held, func(h *held) bool { return !h.passes() && h.bound.host(host, port) })
}

// Masker masks the keys of the ring as they are now, or is nil where there are
// none.
func (r *Ring) Masker() *Masker {
	if r == nil {
		return nil
	}
	return r.state.Load().mask
}

func (s *ringState) named(name string) *held {
	for _, h := range s.held {
		if h.name == name {
			return h
		}
	}
	return nil
}
