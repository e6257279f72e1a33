package node

import (
	"errors"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// TestTheBeginningOfAnID names a session where it is the only one, living or
// past, with a node and without.
func TestTheBeginningOfAnID(t *testing.T) {
	s, err := store.Open(t.Context(), t.TempDir(), store.Options{})
	must(t, err)
	defer s.Close()
	for _, id := range []session.ID{"abcdefgh", "abcdxxxx", "abcd", "xyzwvuts"} {
		must(t, s.CreateSession(t.Context(), store.Session{ID: id, State: session.Staging}, nil))
	}
	live := []session.ID{"abcdlive", "liveonly", "xyzwvuts"}
	for name, want := range map[string]string{
		"abcdefgh": "abcdefgh", "abcde": "abcdefgh", "abcd": "abcd", "abcdl": "abcdlive", "live": "liveonly", "xyzw": "xyzwvuts", // once, though known twice
		"abc": "unknown-session", "liv": "unknown-session", "nobody": "unknown-session", "../x": "unknown-session", "": "unknown-session", "abcd%": "unknown-session", "abcd~": "unknown-session",
	} {
		got, err := calledIn(t.Context(), s, name, live)
		if p, ok := errors.AsType[*api.Problem](err); ok {
			got = session.ID(p.Code)
		}
		if string(got) != want {
			t.Errorf("%q is %q (%v), want %q", name, got, err, want)
		}
	}
	must(t, s.CreateSession(t.Context(), store.Session{ID: "xyzwother", State: session.Staging}, nil))
	_, err = calledIn(t.Context(), s, "xyzw", nil)
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || p.Code != "ambiguous-session" || !strings.Contains(p.Sentence, "xyzwother, xyzwvuts") || p.Hint == "" {
		t.Errorf("%v", err)
	}
}
