package escape

import (
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	all := Attempts()
	if runtime.GOOS != "linux" {
		if len(all) != 0 {
			t.Errorf("%d attempts on a system without sandboxes", len(all))
		}
		return
	}
	if len(all) < 100 {
		t.Fatalf("only %d attempts", len(all))
	}
	seen := map[string]bool{}
	shown := 0
	for _, a := range all {
		if seen[a.Name] || !regexp.MustCompile(`^[a-z0-9]+(-[a-z0-9]+)*$`).MatchString(a.Name) {
			t.Errorf("%q: doubled or odd name", a.Name)
		}
		seen[a.Name] = true
		if a.Tries == "" || strings.HasSuffix(a.Tries, ".") || len(a.Want) == 0 || a.do == nil {
			t.Errorf("%s: incomplete", a.Name)
		}
		if slices.Contains(a.Want, Works) {
			t.Errorf("%s: wants to work inside; that is Known, with a reason", a.Name)
		}
		if a.Outside == "" || a.Elsewhere() {
			shown++
		} else if len(a.Lacking) > 0 {
			t.Errorf("%s: not tried outside, yet says what may come there", a.Name)
		}
	}
	t.Logf("counted: %d attempts, %d of them shown to work outside", len(all), shown)
	if shown < 100 {
		t.Errorf("only %d attempts are shown to work outside", shown)
	}
}

func TestJudgement(t *testing.T) {
	plain := Attempt{Name: "a", Want: []string{"EPERM"}, Lacking: []string{"ENOSYS"}}
	known := Attempt{Name: "a", Want: []string{"EPERM"}, Known: "so it is"}
	absent := Attempt{Name: "a", Want: []string{"EPERM"}, Lacking: []string{NoArena}}
	for _, c := range []struct {
		attempt       Attempt
		outcome       string
		inside, shown bool // whether it is fine there
	}{
		{plain, "EPERM", true, false},
		{plain, "ENOSYS", false, true},
		{plain, Works, false, true},
		{plain, Hangs, false, false},
		{plain, NoArena, false, false},
		{plain, "", false, false},
		{known, Works, true, true},
		{known, Hangs, false, false},
		{absent, NoArena, true, true},
	} {
		r := Result{Name: "a", Outcome: c.outcome}
		if got := c.attempt.Inside(r) == ""; got != c.inside {
			t.Errorf("%q inside %+v: fine is %v", c.outcome, c.attempt, got)
		}
		if got := c.attempt.Shown(r) == ""; got != c.shown {
			t.Errorf("%q outside %+v: fine is %v", c.outcome, c.attempt, got)
		}
	}
}
