package store

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestSparesOutliveTheirNode: what is written down of a spare is there for the
// next start, in order, until it is known to be gone.
func TestSparesOutliveTheirNode(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	one := []Undo{
		{Owner: "engine:native", Undo: sandbox.Undo{Kind: "native-helper", ID: "spare-a", Content: "1000"}},
		{Owner: "engine:native", Undo: sandbox.Undo{Kind: "native-group", ID: "spare-a", Path: "/sys/fs/cgroup/pids/mojoup-spare-a"}},
	}
	must(t, s.AddSpare(t.Context(), "spare-b", one[:1]))
	must(t, s.AddSpare(t.Context(), "spare-a", one))
	if err := s.AddSpare(t.Context(), "spare-a", one); err == nil {
		t.Error("noted twice under one name")
	}
	must(t, s.Close())
	s = openTest(t, dir, Options{})
	want := []Spare{{ID: "spare-a", Undo: one}, {ID: "spare-b", Undo: one[:1]}}
	got, err := s.Spares(t.Context())
	must(t, err)
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
	for range 2 {
		must(t, s.ForgetSpare(t.Context(), "spare-a"))
	}
	got, err = s.Spares(t.Context())
	must(t, err)
	if d := cmp.Diff(want[1:], got); d != "" {
		t.Errorf("-want +got:\n%s", d)
	}
}
