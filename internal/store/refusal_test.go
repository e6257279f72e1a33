package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func TestRefusalsAreKeptInOrder(t *testing.T) {
	now := time.Unix(100, 0)
	s := openTest(t, t.TempDir(), Options{Keep: Retention{Age: time.Hour, Sessions: 100}, Now: func() time.Time { return now }})
	id, nobody := session.New(), session.New()
	create(t, s, id, session.Gone)
	at := time.Unix(1, 5).UTC()
	first := []api.Refusal{
		{Program: "python3", PID: 7, Call: "unshare", Tried: "make a user namespace", Answer: "EPERM", Count: 1, First: at, Last: at},
		{Call: "bpf", Tried: "load a program into the kernel", Answer: "EPERM", Count: 2, First: at, Last: at.Add(time.Second)},
	}
	for _, who := range []session.ID{id, nobody} {
		if err := s.PutRefusals(t.Context(), who, first, 0); err != nil {
			t.Fatal(err)
		}
	}
	later := append([]api.Refusal{}, first...)
	later[0].Count, later[0].Last = 9, at.Add(time.Minute)
	later = append(later, api.Refusal{Program: "z", Call: "mount", Tried: "change what is mounted", Answer: "EPERM", Count: 1, First: at, Last: at})
	if err := s.PutRefusals(t.Context(), id, later, 2); err != nil {
		t.Fatal(err)
	}
	got, err := s.Refusals(t.Context(), id)
	if diff := cmp.Diff(append(first, later[2]), got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if err := s.PutRefusals(t.Context(), id, later, 0); err != nil {
		t.Fatal(err)
	}
	got, err = s.Refusals(t.Context(), id)
	if diff := cmp.Diff(later, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := s.Refusals(t.Context(), nobody); err != nil || len(got) > 0 {
		t.Errorf("of nobody: %v, %v", got, err)
	}
	now = now.Add(24 * time.Hour)
	if n, err := s.Prune(t.Context()); err != nil || n != 1 {
		t.Errorf("pruned %d, %v", n, err)
	}
	if got, err := s.Refusals(t.Context(), id); err != nil || len(got) > 0 {
		t.Errorf("of a forgotten session: %v, %v", got, err)
	}
}
