package cli

import (
	"bytes"
	"strings"
	"testing"
)

// What reads a pipe gets all of a line; a terminal is not filled by a long one.
func TestCellsAreCutOnTerminalsOnly(t *testing.T) {
	long := strings.Repeat("x", 500)
	for screen, want := range map[bool]string{false: long, true: long[:117] + "..."} {
		var out bytes.Buffer
		p := pen{w: &out, r: newPen(Process{Getenv: func(string) string { return "" }}).r, screen: screen}
		p.rows([]string{"A", "B"}, [][]string{{"a", long}})
		if got := strings.Fields(strings.Split(out.String(), "\n")[1])[1]; got != want {
			t.Errorf("screen %t: %d letters, want %d", screen, len(got), len(want))
		}
	}
}
