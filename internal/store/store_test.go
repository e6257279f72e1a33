package store

import (
	"context"
	"path/filepath"
	"testing"
	"time"
)

// clock is a time that only tests move.
type clock struct{ t time.Time }

func (c *clock) now() time.Time { c.t = c.t.Add(time.Second); return c.t }

func newClock() *clock { return &clock{time.Date(2030, 5, 1, 12, 0, 0, 0, time.UTC)} }

// openTest opens a store in a directory of the test and closes it after.
func openTest(t testing.TB, dir string, o Options) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func stateDir(t testing.TB) string { return filepath.Join(t.TempDir(), "state") }

func BenchmarkOpen(b *testing.B) {
	dir := stateDir(b)
	ctx := context.Background()
	s, err := Open(ctx, dir, Options{})
	if err != nil {
		b.Fatal(err)
	}
	s.Close()
	for b.Loop() {
		s, err := Open(ctx, dir, Options{})
		if err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		s.Close()
		b.StartTimer()
	}
}
