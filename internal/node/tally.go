package node

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

const (
	// tallied is how many different things a tally tells apart.
	tallied = 256
	// talliedLines is how many of them the closing lines name.
	talliedLines = 3
)

// tally counts what a session's programs may have kept to themselves and its
// person wants to know at the end: requests that were allowed and came to
// nothing, by why, and stand-ins that were where they may not be, by secret.
type tally struct {
	mu      sync.Mutex // guards all
	order   []string
	counts  map[string]int
	dropped int // beyond what is told apart
}

// see counts a verdict, which is given again where only its failure is new.
func (t *tally) see(v egress.Verdict) {
	if v.Failure != "" {
		t.add("allowed and came to nothing: " + strings.TrimSuffix(v.Failure, "."))
	}
	by := "(`" + secrets.ListedBy(v.Misused) + "` says "
	switch {
	case v.Misused == "":
	case v.Signed:
		t.add("refused: a request signed as AWS wants it, which the stand-in of " + secrets.Called(v.Misused) + " cannot sign: " + secrets.SigningHelp)
	case v.Withdrawn:
		t.add("refused: what is left of " + secrets.Called(v.Misused) + ", which was withdrawn " + by + "what there is)")
	default:
		t.add("refused: the stand-in of " + secrets.Called(v.Misused) + " where its key may not go " + by + "where it may)")
	}
}

func (t *tally) add(line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[line] == 0 {
		if len(t.order) == tallied {
			t.dropped++
			return
		}
		t.order = append(t.order, line)
	}
	if t.counts == nil {
		t.counts = map[string]int{}
	}
	t.counts[line]++
}

// lines are the closing lines, what came most often first.
func (t *tally) lines(id session.ID) []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	order := slices.Clone(t.order)
	slices.SortStableFunc(order, func(a, b string) int { return t.counts[b] - t.counts[a] })
	var out []string
	rest := t.dropped
	for i, line := range order {
		n := t.counts[line]
		switch {
		case i >= talliedLines:
			rest += n
		case n == 1:
			out = append(out, line)
		default:
			out = append(out, fmt.Sprintf("%s (%d times)", line, n))
		}
	}
	if rest > 0 {
		out = append(out, fmt.Sprintf("and %s of that kind: mojoup-node session show %s", counted(rest, "more request", "more requests"), id))
	}
	return out
}
