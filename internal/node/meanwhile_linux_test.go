package node

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// TestB88_SwitchedOffDuringARenewal: a request that has an expired token renewed first
// does not give again what is taken meanwhile, and the sign-in that is on again is.
func TestB88_SwitchedOffDuringARenewal(t *testing.T) {
	t.Parallel()
	for _, late := range []bool{false, true} {
		s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
		n := s.serve(t, w, signin.StandIn).node
		l := &life{n: n, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
		one, err := l.lend(s.found(t), signin.StandIn)
		must(t, err)
		l.lent = []*lent{one}
		look := func() { must(t, l.lookAfter(context.Background(), one, 1, inSession{})) }
		off := func() { switched("off")(t, s, w); look() }
		renew := n.o.Renew
		n.o.Renew = func(ctx context.Context, r Renewal) error {
			if err := renew(ctx, r); err != nil {
				return err
			}
			off()
			return nil
		}
		s.expire(t)
		one.mu.Lock()
		one.found.Expires = time.Now().Add(-time.Second)
		one.mu.Unlock()
		sent := func() string {
			h := http.Header{"Authorization": {"Bearer " + one.standIn}}
			swap, misuse := l.keys.ring.Look(secrets.Request{Host: "api.anthropic.com", Port: 443, TLS: true, Path: "/v1/messages", Header: h})
			if misuse != nil {
				return misuse.Reason
			}
			swap.Header(h)
			return strings.TrimPrefix(h.Get("Authorization"), "Bearer ")
		}
		if late { // what it renews is taken over although it was taken back a moment ago
			must(t, one.renews(t.Context(), ""))
			if err := l.takeOver(t.Context(), one, inSession{}); err != nil {
				t.Error(err)
			}
		} else {
			l.keeper().Fresh(t.Context(), []string{signInKey(s.tool)})
		}
		if got := sent(); !one.isWithdrawn() || !strings.Contains(got, "its mode is off") {
			t.Errorf("switched off, late %v: %s", late, got)
		}
		switched("standin")(t, s, w)
		look()
		if got := sent(); got != s.token(t) {
			t.Errorf("on again, late %v: %s", late, got)
		}
	}
}

// TestB88_WithdrawnBeforeTheCommandRuns: the file that lies in the sandbox already is
// removed as soon as something can be run there.
func TestB88_WithdrawnBeforeTheCommandRuns(t *testing.T) {
	t.Parallel()
	s, w := newSignedIn(t, 8*time.Hour), newWorld(t)
	n := s.serve(t, w, signin.Lease).node
	l := &life{n: n, diary: newDiary(), client: newHub(nil, false), keys: keys{ring: secrets.NewBook().Open("s")}}
	one, err := l.lend(s.found(t), signin.Lease)
	must(t, err)
	l.lent = []*lent{one}
	if files := l.signInFiles("/home/x"); len(files) != 1 || !strings.Contains(string(files[0].Content), s.token(t)) {
		t.Fatal(files)
	}
	content, removed := "", 0
	in := inSession{
		put:    func(s signin.Staged) error { content = string(s.Content()); return nil },
		remove: func(string) error { removed++; return nil },
	}
	look := func() { must(t, l.lookAfter(context.Background(), one, 1, in)) }
	switched("off")(t, s, w)
	look()
	if removed > 0 {
		t.Error("removed where nothing runs")
	}
	l.inside.Store(&inside{})
	for range 2 {
		look()
	}
	if removed != 1 {
		t.Errorf("removed %d times", removed)
	}
	switched("lease")(t, s, w)
	look()
	if !strings.Contains(content, s.token(t)) {
		t.Errorf("given again: %q", content)
	}
}
