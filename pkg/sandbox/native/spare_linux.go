package native

import (
	"context"
	"crypto/rand"
	"encoding/base32"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

var _ sandbox.Keeper = (*Engine)(nil)

// staleAfter is how long a spare waits. What the host mounts and unmounts
// meanwhile it does not follow, so it must not hold a disk for a day.
const staleAfter = 10 * time.Minute

// A spare is a sandbox that has been begun: its helper is in its control
// groups, has its namespaces, and has carried the base out. What is missing is
// everything that a Spec says of itself.
type spare struct {
	*box
	id    string
	base  []child.Op // as they were carried out
	host  *hostView
	since time.Time
}

// spares are those of one engine.
type spares struct {
	wake  chan struct{} // holds one token: somebody should look whether one is missing
	again time.Duration // when to look once more whether there is room

	mu      sync.Mutex // guards what follows
	keeping *sandbox.Keeping
	waiting []*spare
	model   *sandbox.Spec // what the next is to be like; nil before the first sandbox
	changed chan struct{} // closed and replaced when a spare begins to wait

	dropping sync.WaitGroup
}

func newSpares() *spares {
	return &spares{wake: make(chan struct{}, 1), changed: make(chan struct{}), again: 10 * time.Second}
}

// want has the next look taken. It does not wait.
func (s *spares) want() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// follow makes spec the model of what is made from now on.
func (s *spares) follow(spec sandbox.Spec) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keeping != nil {
		s.model = &spec
	}
}

// Keep keeps spares until ctx ends. One Keep at a time.
func (e *Engine) Keep(ctx context.Context, k sandbox.Keeping) {
	if k.Spares <= 0 {
		return
	}
	s := e.spares
	s.mu.Lock()
	s.keeping = &k
	s.mu.Unlock()
	defer e.dropAll(context.WithoutCancel(ctx))
	old := time.NewTicker(staleAfter / 4)
	defer old.Stop()
	var later <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
			later = e.refill(ctx, k)
		case <-later:
			later = e.refill(ctx, k)
		case <-old.C:
			for _, one := range s.take(func(one *spare) bool { return time.Since(one.since) > staleAfter }) {
				e.drop(ctx, one)
			}
		}
	}
}

// Waiting returns when a spare waits to be used, for whoever measures or
// tests what it is worth.
func (e *Engine) Waiting(ctx context.Context) error {
	for {
		s := e.spares
		s.mu.Lock()
		n, changed := len(s.waiting), s.changed
		s.mu.Unlock()
		if n > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// take takes the spares out of which that is true.
func (s *spares) take(which func(*spare) bool) (out []*spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = slices.DeleteFunc(s.waiting, func(one *spare) bool {
		if !which(one) {
			return false
		}
		out = append(out, one)
		return true
	})
	return out
}

// refill makes what is missing, and first takes away what the last sandbox
// could not have used. Where there is no room, it says when to look again.
func (e *Engine) refill(ctx context.Context, k sandbox.Keeping) <-chan time.Time {
	s := e.spares
	s.mu.Lock()
	model := s.model
	s.mu.Unlock()
	if model == nil {
		return nil
	}
	for _, one := range s.take(func(one *spare) bool { return !one.fits(*model) }) {
		e.drop(ctx, one)
	}
	for ctx.Err() == nil && s.count() < k.Spares {
		if k.May != nil && !k.May() {
			return time.After(s.again)
		}
		one, err := e.makeSpare(ctx, k, *model)
		if err != nil {
			e.log.Warn("making a spare sandbox", "err", err)
			return nil // the next sandbox says why, if it lasts
		}
		s.add(one)
	}
	return nil
}

func (s *spares) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func (s *spares) add(one *spare) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.waiting = append(s.waiting, one)
	close(s.changed)
	s.changed = make(chan struct{})
}

// makeSpare begins a sandbox like the model, under a name of its own.
func (e *Engine) makeSpare(ctx context.Context, k sandbox.Keeping, model sandbox.Spec) (_ *spare, err error) {
	// It neither protects nor checks anything yet: of that there is no undo.
	model.ID, model.Protect, model.Checks = spareID(), nil, nil
	if err := k.Note(ctx, model.ID, e.Undo(model)); err != nil {
		return nil, err
	}
	b := e.newBox(model)
	b.wake = func() {} // its end asks for no other one, as long as nobody has used it
	b.settle = sync.OnceFunc(func() { k.Settled(model.ID) })
	one := &spare{box: b, id: model.ID, since: time.Now(), host: lookAtHost(model.Mounts[:model.Shared])}
	defer func() {
		if err != nil {
			e.drop(ctx, one)
		}
	}()
	b.bounds = e.bound(model)
	base, err := e.begin(ctx, b)
	if err != nil {
		return nil, b.bounds.tooSmall(err)
	}
	one.base = base
	return one, b.helper.Make(ctx, base)
}

// sparePrefix begins the ID of a spare, as it begins no session's.
const sparePrefix = "spare-"

func spareID() string {
	var random [16]byte
	rand.Read(random[:]) // never fails, see crypto/rand
	return sparePrefix + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(random[:]))
}

// drop takes a spare away that nobody has used.
func (e *Engine) drop(ctx context.Context, one *spare) {
	one.host.close()
	if err := one.Remove(context.WithoutCancel(ctx)); err != nil {
		e.log.Error("taking a spare sandbox away", "spare", one.id, "err", err)
	}
}

func (e *Engine) dropAll(ctx context.Context) {
	s := e.spares
	s.mu.Lock()
	s.keeping, s.model = nil, nil
	s.mu.Unlock()
	for _, one := range s.take(func(*spare) bool { return true }) {
		e.drop(ctx, one)
	}
	s.dropping.Wait()
}

// claim takes a spare that is what a sandbox of spec would be at this point,
// or returns nil. Whatever is not as it was is taken away.
func (e *Engine) claim(ctx context.Context, spec sandbox.Spec) *box {
	s := e.spares
	for {
		fit := s.takeFirst(func(one *spare) bool { return one.fits(spec) })
		if fit == nil {
			return nil
		}
		if !fit.current() {
			s.dropping.Go(func() { e.drop(ctx, fit) })
			continue
		}
		fit.host.close()
		b := fit.box
		b.wake = sync.OnceFunc(s.want)
		b.spec, b.log = spec, e.log.With("sandbox", spec.ID, "spare", fit.id)
		s.mu.Lock()
		k := s.keeping
		s.mu.Unlock()
		if k != nil {
			k.Claimed(fit.id, spec.ID)
		}
		return b
	}
}

func (s *spares) takeFirst(which func(*spare) bool) *spare {
	found := false
	out := s.take(func(one *spare) bool {
		if found || !which(one) {
			return false
		}
		found = true
		return true
	})
	if len(out) == 0 {
		return nil
	}
	return out[0]
}

// fits reports whether all that has been done is what would be done for spec:
// its person, its limits, and each single operation.
func (one *spare) fits(spec sandbox.Spec) bool {
	asked := spec.Limits
	asked.Wall = one.spec.Limits.Wall // the node's to carry out
	if asked != one.spec.Limits || !sameIdentity(one.spec.Identity, spec.Identity) || scratch(spec, one.machine.scratch) != one.bounds.scratch {
		return false
	}
	spec.Limits = one.bounds.inner(one.bounds.limits)
	return slices.EqualFunc(compileBase(spec, one.machine), one.base, child.Op.Equal)
}

func sameIdentity(a, b sandbox.Identity) bool {
	return a.UID == b.UID && a.GID == b.GID && slices.Equal(a.Groups, b.Groups)
}

// current reports whether its helper lives and what it has mounted is still
// what stands there.
func (one *spare) current() bool {
	select {
	case <-one.helper.Done():
		return false
	default:
		return one.host.same()
	}
}

// wasted reports whether a claimed helper had ended, so that the sandbox can be
// made without it.
func (b *box) wasted(err error) bool { return b.settle != nil && errors.Is(err, child.ErrGone) }
