package store

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/session"
)

// record makes a session with a recording of so many bytes.
func record(t *testing.T, s *Store, id session.ID, bytes int) {
	t.Helper()
	if err := s.CreateSession(ctx, Session{ID: id, State: session.Staging}, nil); err != nil {
		t.Fatal(err)
	}
	f, err := s.NewRecording(ctx, id)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(make([]byte, bytes)); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, s *Store, id session.ID) {
	t.Helper()
	if err := s.MoveSession(ctx, id, session.Failed, nil); err != nil {
		t.Fatal(err)
	}
}

// TestD13c_RecordingsAreTheirOwnersAndGoWithTheSession.
func TestD13c_RecordingsAreTheirOwnersAndGoWithTheSession(t *testing.T) {
	dir := stateDir(t)
	s := openTest(t, dir, Options{Keep: Retention{Sessions: 1}})
	var absent *NotFoundError
	if _, err := s.Recording("one"); !errors.As(err, &absent) || s.Recorded("one") != 0 {
		t.Errorf("a recording that nobody made: %v, %d bytes", err, s.Recorded("one"))
	}
	record(t, s, "one", 100)
	record(t, s, "two", 100)
	for path, want := range map[string]os.FileMode{"recordings": 0o700 | os.ModeDir, "recordings/one.cast": 0o600} {
		if info, err := os.Lstat(filepath.Join(dir, path)); err != nil || info.Mode() != want {
			t.Errorf("%s: %v, %v; want %v", path, info.Mode(), err, want)
		}
	}
	if _, err := s.NewRecording(ctx, "one"); err == nil {
		t.Error("a recording was made over another one")
	}
	gone(t, s, "one")
	gone(t, s, "two")
	if n, err := s.Prune(ctx); err != nil || n != 1 {
		t.Fatalf("pruned %d, %v", n, err)
	}
	if _, err := s.Recording("one"); !errors.As(err, &absent) {
		t.Errorf("the recording is there after its session: %v", err)
	}
	f, err := s.Recording("two")
	if err != nil || s.Recorded("two") != 100 {
		t.Fatalf("the other one: %v, %d bytes", err, s.Recorded("two"))
	}
	_ = f.Close()
}

// TestRecordingsAreBoundedTogether: for a new one the oldest go, but none of a
// session that lives, and nothing that the node did not make.
func TestRecordingsAreBoundedTogether(t *testing.T) {
	dir := stateDir(t)
	s := openTest(t, dir, Options{Keep: Retention{Recordings: 250}})
	for i, id := range []session.ID{"alive", "oldest", "older", "new"} {
		record(t, s, id, 100)
		if id != "alive" {
			gone(t, s, id)
		}
		at := start.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(s.recordingPath(id), at, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, recordingsDir, "NOTES"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	record(t, s, "newest", 100)
	for id, want := range map[session.ID]int64{"alive": 100, "oldest": 0, "older": 0, "new": 100, "newest": 100} {
		if got := s.Recorded(id); got != want {
			t.Errorf("%s: %d bytes are kept, want %d", id, got, want)
		}
	}
	if _, err := os.Lstat(filepath.Join(dir, recordingsDir, "NOTES")); err != nil {
		t.Error(err)
	}
}
