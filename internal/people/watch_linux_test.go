package people

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestB88_WhoMayNoLongerUseTheNode is refused, and what runs or waits for them
// ends with that reason: their slot is free, others are served as before. Settings
// that take effect at once reach deputies that serve.
func TestB88_WhoMayNoLongerUseTheNode(t *testing.T) {
	var mu sync.Mutex
	list, live := []string{"*"}, []string{"A=1"}
	p := atWork(t, func(o *Options) {
		o.Look = 10 * time.Millisecond
		o.Allow = func() ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return list, nil
		}
		o.Live = func() ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return live, nil
		}
	}, "waits")
	logs := func(line string) {
		t.Helper()
		eventually(t, line, func() bool { return strings.Contains(p.said(), line) })
	}
	if got := p.as(ann) + p.as(bob); got != "7001170012" {
		t.Fatalf("answered %s", got)
	}
	logs("two waits")
	logs("told [A=1]")
	mu.Lock()
	live = []string{"A=2"}
	mu.Unlock()
	logs("told [A=2]")

	mu.Lock()
	list = []string{"70012"}
	mu.Unlock()
	logs("two: the system node does not serve user 70011 any more")
	logs("one: the system node does not serve user 70011 any more true")
	eventually(t, "her slot is free", func() bool { return p.door.Running("session") == 0 })
	if got := p.as(ann); !strings.Contains(got, "the system node does not serve user 70011") {
		t.Errorf("she asks again: %s", got)
	}
	if got := p.as(bob); got != "70012" {
		t.Errorf("the other one: %s", got)
	}
	if said := p.said(); strings.Contains(said, "deputy died") || !strings.Contains(said, "may no longer use this node") {
		t.Error("the log does not say what was done")
	}

	mu.Lock()
	list = []string{"70011", "70012"}
	mu.Unlock()
	if got := p.as(ann); got != "70011" {
		t.Errorf("allowed again: %s", got)
	}
}

// TestB88_WhoIsStoppedKeepsNothing: a deputy that its person has stopped ends nothing,
// and is ended soon, and not only when it may take no longer to end.
func TestB88_WhoIsStoppedKeepsNothing(t *testing.T) {
	var mu sync.Mutex
	list := []string{"*"}
	p := atWork(t, func(o *Options) {
		o.Look, o.Patient = 10*time.Millisecond, 2*time.Minute
		o.Allow = func() ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			return list, nil
		}
	}, "stuck")
	annAsks(t, p.socket)
	eventually(t, "it is stopped", func() bool {
		all := p.begun()
		return len(all) == 1 && all[0].stopped()
	})
	mu.Lock()
	list = []string{"70012"}
	mu.Unlock()
	eventually(t, "it is ended", func() bool { return strings.Contains(p.said(), "deputy is stopped and does not end") })
	eventually(t, "it is gone", func() bool {
		p.mu.Lock()
		defer p.mu.Unlock()
		return len(p.deputies) == 0
	})
	if got := p.as(bob); got != "70012" {
		t.Errorf("somebody else: %s", got)
	}
}

// TestB88_WhatCannotBeReadIsSaidOnce, and again where it is something else, or was
// readable meanwhile; and nobody loses anything by it.
func TestB88_WhatCannotBeReadIsSaidOnce(t *testing.T) {
	var mu sync.Mutex
	var broken error
	looks := 0
	now := func() ([]string, error) {
		mu.Lock()
		defer mu.Unlock()
		looks++
		return []string{"*"}, broken
	}
	p := atWork(t, func(o *Options) {
		o.Look, o.Allow = 10*time.Millisecond, now
		o.Live = func() ([]string, error) { return nil, errors.New("line 9 is wrong") }
	}, "waits")
	if got := p.as(ann); got != "70011" {
		t.Fatalf("answered %s", got)
	}
	becomes := func(err error) {
		mu.Lock()
		broken, looks = err, 0
		mu.Unlock()
		eventually(t, "several looks", func() bool { mu.Lock(); defer mu.Unlock(); return looks > 8 })
	}
	for _, err := range []error{errors.New("line 1 is wrong"), errors.New("line 2 is wrong"), nil, errors.New("line 2 is wrong")} {
		becomes(err)
	}
	if got := p.as(bob); !strings.Contains(got, "cannot read its settings") {
		t.Errorf("answered %s", got)
	}
	said := p.said()
	for line, want := range map[string]int{"line 1 is wrong": 1, "line 2 is wrong": 2, "line 9 is wrong": 1, "may no longer use": 0} {
		if got := strings.Count(said, line); got != want {
			t.Errorf("%q stands there %d times, want %d:\n%s", line, got, want, said)
		}
	}
}

// TestB88_OneLookEndsNothing: an editor that empties the settings and writes them
// again a moment later takes nobody's sessions.
func TestB88_OneLookEndsNothing(t *testing.T) {
	var mu sync.Mutex
	empty, looks := false, 0
	p := atWork(t, func(o *Options) {
		o.Look = 10 * time.Millisecond
		o.Allow = func() ([]string, error) {
			mu.Lock()
			defer mu.Unlock()
			looks++
			if empty {
				empty = false
				return nil, nil
			}
			return []string{"*"}, nil
		}
	}, "waits")
	if got := p.as(ann); got != "70011" {
		t.Fatalf("answered %s", got)
	}
	for range 3 { // never two in a row
		mu.Lock()
		empty, looks = true, 0
		mu.Unlock()
		eventually(t, "two more looks", func() bool { mu.Lock(); defer mu.Unlock(); return looks > 2 })
	}
	if said := p.said(); strings.Contains(said, "may no longer use this node") {
		t.Errorf("one look ended a person's sessions:\n%s", said)
	}
}
