package node

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/mojoup/mojoup-node/internal/egress"
)

// What a tool kept to itself is told at the end, what came most often first.
func TestEndSaysWhatCameToNothing(t *testing.T) {
	var none tally
	if got := none.lines("x"); got != nil {
		t.Errorf("%q", got)
	}
	var some tally
	some.see(egress.Verdict{Allowed: true})
	some.see(egress.Verdict{Allowed: true, Failure: "a.example refused the connection."})
	some.see(egress.Verdict{Misused: "KEY"})
	some.see(egress.Verdict{Misused: "KEY"})
	some.see(egress.Verdict{Misused: "ID", Signed: true})
	want := []string{
		"refused: the stand-in of KEY where its key may not go (`mojoup-node secret list` says where it may) (2 times)",
		"allowed and came to nothing: a.example refused the connection",
		"refused: a request signed as AWS wants it, which the stand-in of ID cannot sign: " +
			"make it outside of the session, or give the session keys of few rights and a short life with --env, which are then really inside",
	}
	if diff := cmp.Diff(want, some.lines("x")); diff != "" {
		t.Error(diff)
	}
	var lost tally
	lost.see(egress.Verdict{Misused: "sign-in claude claude.ai", Withdrawn: true})
	want = []string{"refused: what is left of the sign-in claude claude.ai, which was withdrawn (`mojoup-node signin status` says what there is)"}
	if diff := cmp.Diff(want, lost.lines("x")); diff != "" {
		t.Error(diff)
	}
}

// Whoever asks for many hosts fills neither the screen nor the node.
func TestTallyIsBounded(t *testing.T) {
	var many tally
	for i := range 10 * tallied {
		many.see(egress.Verdict{Allowed: true, Failure: fmt.Sprintf("h%d.example does not exist: no such name.", i)})
	}
	lines := many.lines("x")
	if len(lines) != talliedLines+1 || len(many.counts) != tallied || !strings.HasPrefix(lines[talliedLines], fmt.Sprintf("and %d more requests of that kind", 10*tallied-talliedLines)) {
		t.Errorf("%d told apart: %q", len(many.counts), lines)
	}
}
