package session

import (
	"errors"
	"strings"
	"testing"
)

func TestNewParses(t *testing.T) {
	seen := map[ID]bool{}
	for range 1000 {
		id := New()
		if got, err := Parse(string(id)); err != nil || got != id {
			t.Fatalf("Parse(%q) = %q, %v", id, got, err)
		}
		if len(id) != 12 {
			t.Fatalf("New() = %q, want 12 characters", id)
		}
		if seen[id] {
			t.Fatalf("New() gave %q twice", id)
		}
		seen[id] = true
	}
}

func TestParseRefuses(t *testing.T) {
	for _, s := range []string{
		"", "-", "-a", "A", "a b", "a/b", "..", "a.b", "a_b", "ä", "a\x00", "a\n", strings.Repeat("a", 33),
	} {
		_, err := Parse(s)
		var bad *IDError
		if !errors.As(err, &bad) {
			t.Errorf("Parse(%q): %v, want an IDError", s, err)
		}
	}
	for _, s := range []string{"a", "0", "a-b", "a-", strings.Repeat("z", 32)} {
		if _, err := Parse(s); err != nil {
			t.Errorf("Parse(%q): %v", s, err)
		}
	}
}

// A long text is cut in its message, so that an error stays one line.
func TestIDErrorIsShort(t *testing.T) {
	msg := (&IDError{ID: strings.Repeat("x", 1<<16)}).Error()
	if len(msg) > 100 {
		t.Errorf("message of %d bytes", len(msg))
	}
}

func TestMoves(t *testing.T) {
	legal := map[[2]State]bool{}
	for from, tos := range map[State]string{
		Asked:    "queued staging gone failed lost",
		Queued:   "staging gone failed lost",
		Staging:  "starting stopping failed lost",
		Starting: "running stopping failed lost",
		Running:  "stopping lost",
		Stopping: "gone failed lost",
	} {
		for to := range strings.FieldsSeq(tos) {
			legal[[2]State{from, State(to)}] = true
		}
	}
	all := append(States(), "", "nonsense")
	for _, from := range all {
		for _, to := range all {
			err := Move(from, to)
			if legal[[2]State{from, to}] != (err == nil) {
				t.Errorf("Move(%q, %q) = %v", from, to, err)
			}
			var bad *MoveError
			if err != nil && (!errors.As(err, &bad) || !strings.Contains(err.Error(), `"`+string(from)+`"`) || !strings.Contains(err.Error(), `"`+string(to)+`"`)) {
				t.Errorf("Move(%q, %q): %v does not name both ends", from, to, err)
			}
		}
	}
}

func TestStatesAreTheTable(t *testing.T) {
	if len(States()) != len(moves) {
		t.Fatalf("%d states listed, %d in the table", len(States()), len(moves))
	}
	for _, s := range States() {
		if _, ok := moves[s]; !ok {
			t.Errorf("%q is not in the table", s)
		}
		if s.Live() == s.Ended() {
			t.Errorf("%q: live %v, ended %v", s, s.Live(), s.Ended())
		}
	}
	for _, s := range []State{"", "nonsense", "Running"} {
		if s.Live() || s.Ended() {
			t.Errorf("%q counts as live or ended", s)
		}
	}
}

// Every live state can be found dead, and from each an end can be reached.
func TestEveryLiveStateCanBeLost(t *testing.T) {
	for _, s := range States() {
		if s.Live() && Move(s, Lost) != nil {
			t.Errorf("%q cannot be lost", s)
		}
	}
}
