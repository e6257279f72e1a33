package main

import (
	"strconv"
	"strings"
	"testing"
)

// TestB88_SystemNodeServesSomebodyNoLonger: whose name is taken off the list loses
// the session that runs and the one that waits, with that reason, and begins no
// other; somebody else's goes on. A sign-in's mode that root switches off reaches
// the person's process too.
func TestB88_SystemNodeServesSomebodyNoLonger(t *testing.T) {
	w := newTown(t)
	w.allow("*")
	w.fine(0, "config", "set", "node.sandbox.max_sessions", "2")
	w.serve()
	his, hers := w.begin(bob), w.begin(ann)
	his.up()
	hers.up()
	id := w.only(ann).ID
	waiting := w.begin(ann)
	waiting.says("waiting")
	if out := w.fine(ann, "signin", "status"); strings.Contains(out, "off") {
		t.Errorf("at first: %s", out)
	}
	w.fine(0, "config", "set", "node.signin.mode.claude", "off")
	w.until("ann's process knows that claude's sign-in is off", func() bool { return strings.Contains(w.fine(ann, "signin", "status"), "off") })

	w.allow(strconv.Itoa(bob))
	const reason = "the system node does not serve user 70001 any more"
	for name, s := range map[string]*stay{"that runs": hers, "that waits": waiting} {
		if code := s.code(); code != 125 || !strings.Contains(s.out.String(), reason) {
			t.Errorf("the session %s: code %d: %s", name, code, s.out)
		}
	}
	if _, talk, code := w.as(ann, "run", "--", "true"); code == 0 || !strings.Contains(talk, "does not serve user 70001") {
		t.Errorf("a new one: code %d: %s", code, talk)
	}
	w.until("it stands in root's list", func() bool {
		out := w.fine(0, "session", "show", id)
		return strings.Contains(out, reason)
	})
	his.let()
	if code := his.code(); code != 0 {
		t.Errorf("somebody else's: code %d: %s", code, his.out)
	}
	w.clean(ann)
}
