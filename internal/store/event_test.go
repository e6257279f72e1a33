package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func TestEventsAndVerdictsInOrder(t *testing.T) {
	s, err := Open(t.Context(), t.TempDir(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	id, nobody := session.New(), session.New()
	if err := s.CreateSession(t.Context(), Session{ID: id, State: session.Asked}, nil); err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1, 5).UTC()
	want := []api.Event{{Time: at, Kind: "state", Text: "running"}, {Time: at.Add(time.Second), Kind: "notice", Text: "\x1b[2J"}}
	if err := s.AddEvents(t.Context(), id, want); err != nil {
		t.Fatal(err)
	}
	if err := s.AddEvents(t.Context(), nobody, want); err != nil {
		t.Errorf("of a session that does not exist: %v", err)
	}
	got, err := s.Events(t.Context(), id)
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := s.Events(t.Context(), nobody); err != nil || len(got) != 0 {
		t.Errorf("of nobody: %v, %v", got, err)
	}
	var vs []Verdict
	for _, host := range []string{"a", "b", "c"} {
		vs = append(vs, Verdict{Session: id, Outcome: api.Outcome{ID: host, Host: host, Time: at}})
	}
	if err := s.AddVerdicts(t.Context(), vs); err != nil {
		t.Fatal(err)
	}
	first, seq, err := s.VerdictsAfter(t.Context(), id, 0, 2)
	if err != nil {
		t.Fatal(err)
	}
	rest, last, err := s.VerdictsAfter(t.Context(), id, seq, 2)
	if err != nil {
		t.Fatal(err)
	}
	none, same, err := s.VerdictsAfter(t.Context(), id, last, 2)
	if diff := cmp.Diff(vs, append(first, rest...)); err != nil || diff != "" || len(none) != 0 || same != last {
		t.Errorf("%v, then %v up to %d of %d (-want +got):\n%s", err, none, same, last, diff)
	}
}
