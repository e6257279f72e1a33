package openshell_test

import (
	"strings"
	"sync"
	"testing"
	"time"
)

// A screen keeps what a terminal wrote.
type screen struct {
	mu sync.Mutex
	b  strings.Builder
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (s *screen) await(t *testing.T, what string) {
	t.Helper()
	for end := time.Now().Add(2 * time.Minute); !strings.Contains(s.text(), what); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never saw %q in %q", what, s.text())
		}
	}
}
