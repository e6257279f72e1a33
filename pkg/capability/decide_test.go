package capability

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// passing are checks with which both engines are able.
func passing() []Check {
	var checks []Check
	for _, q := range questions {
		checks = append(checks, q.sign(Check{State: OK}))
	}
	return checks
}

// with replaces the state and reason of one check.
func with(checks []Check, name string, state State, reason string) []Check {
	for i := range checks {
		if checks[i].Name == name {
			checks[i].State, checks[i].Reason = state, reason
			return checks
		}
	}
	panic("BUG: no check " + name)
}

func without(checks []Check, name string) []Check {
	var rest []Check
	for _, c := range checks {
		if c.Name != name {
			rest = append(rest, c)
		}
	}
	return rest
}

func TestDecide(t *testing.T) {
	tests := []struct {
		name       string
		checks     []Check
		configured Engine
		want       string
		able       bool
		known      bool
		chosen     string
	}{
		{"all passes, auto prefers docker", passing(), Auto, SentenceAble, true, true, "docker"},
		{"nothing configured is auto", passing(), "", SentenceAble, true, true, "docker"},
		{"native", passing(), Native, SentenceAble, true, true, "native"},
		{"docker", passing(), Docker, SentenceAble, true, true, "docker"},
		{"off", passing(), Off, SentenceOff, false, true, ""},
		{"off beats a failure", with(passing(), NameLandlock, Fail, "old"), Off, SentenceOff, false, true, ""},
		{"the node is root: auto takes native", with(passing(), NameUser, Fail, "user 0"), Auto, SentenceAble, true, true, "native"},
		{"the node is root: docker is refused", with(passing(), NameUser, Fail, "user 0"), Docker, SentenceUnable + ": user 0", false, true, ""},
		{"no mounts: auto takes native", with(passing(), NameBinds, Fail, "off"), Auto, SentenceAble, true, true, "native"},
		{"docker is down: native does not care", with(passing(), NameDocker, Fail, "Docker is not running"), Native, SentenceAble, true, true, "native"},
		{"docker is down: auto takes native", with(passing(), NameDocker, Fail, "Docker is not running"), Auto, SentenceAble, true, true, "native"},
		{"docker is down: docker fails", with(passing(), NameDocker, Fail, "Docker is not running"), Docker,
			SentenceUnable + ": Docker is not running", false, true, ""},
		{"namespaces refused: docker does not care", with(passing(), NameNamespaces, Fail, "no namespaces"), Auto, SentenceAble, true, true, "docker"},
		{"the first failure is the reason", with(with(passing(), NameNamespaces, Fail, "later"), NameLandlock, Fail, "earlier"), Native,
			SentenceUnable + ": earlier", false, true, ""},
		{"both fail: what native lacks", with(with(passing(), NameDocker, Fail, "Docker is not running"), NameNamespaces, Fail, "no namespaces"), Auto,
			SentenceUnable + ": no namespaces", false, true, ""},
		{"a warning passes", with(passing(), NameSystem, Warn, "unknown banner"), Native, SentenceAble, true, true, "native"},
		{"a warning that informs passes", with(passing(), NameLimits, Warn, "memory limit: not enforced"), Native, SentenceAble, true, true, "native"},
		{"not found out", with(passing(), NameListener, Unknown, "no answer"), Native, SentenceUnable + ": no answer", false, false, ""},
		{"a failure is known beside what is not", with(with(passing(), NameListener, Unknown, "no answer"), NameNamespaces, Fail, "no namespaces"), Native,
			SentenceUnable + ": no namespaces", false, true, ""},
		{"skipped proves nothing", with(passing(), NameListener, Skipped, "not tried"), Native, SentenceUnable + ": not tried", false, false, ""},
		{"an empty state proves nothing", with(passing(), NameListener, "", "?"), Native, SentenceUnable + ": ?", false, false, ""},
		{"a missing check proves nothing", without(passing(), NameLandlock), Native,
			SentenceUnable + `: the check "landlock" was not made`, false, false, ""},
		{"no checks at all", nil, Auto, SentenceUnable + `: the check "system" was not made`, false, false, ""},
		{"docker unknown, native able", with(passing(), NameDocker, Unknown, "?"), Auto, SentenceAble, true, true, "native"},
		{"docker unknown, native fails", with(with(passing(), NameDocker, Unknown, "Docker may run"), NameNamespaces, Fail, "no"), Auto,
			SentenceUnable + ": Docker may run", false, false, ""},
		{"no such engine", passing(), "banana",
			SentenceUnable + `: "banana" is not an engine: set node.sandbox.engine to auto, native, docker or off`, false, true, ""},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			lines, got := Decide(tt.checks, tt.configured)
			if got.String() != tt.want {
				t.Errorf("verdict %q, want %q", got, tt.want)
			}
			if got.Able != tt.able || got.Known != tt.known || got.Chosen != tt.chosen {
				t.Errorf("able %v known %v chosen %q, want %v %v %q", got.Able, got.Known, got.Chosen, tt.able, tt.known, tt.chosen)
			}
			if len(lines) != 2 {
				t.Errorf("%d lines, want one per engine", len(lines))
			}
		})
	}
}

// TestEveryDecidingCheckDecides breaks each check of each engine in turn.
func TestEveryDecidingCheckDecides(t *testing.T) {
	for _, q := range questions {
		for _, engine := range q.engines {
			for _, state := range []State{Fail, Unknown, Skipped, ""} {
				_, v := Decide(with(passing(), q.name, state, "broken"), engine)
				if v.Able || v.Reason != "broken" || v.Known != (state == Fail) {
					t.Errorf("%s with %s %q: able %v, known %v, %q", engine, q.name, state, v.Able, v.Known, v.Reason)
				}
			}
		}
	}
}

// TestRequirements holds the two tables against each other: a check that
// decides an engine must be one that the engine cannot do without.
func TestRequirements(t *testing.T) {
	want := map[Engine][]string{}
	for _, q := range questions {
		for _, e := range q.engines {
			want[e] = append(want[e], q.name)
		}
	}
	got := map[Engine][]string{}
	for _, r := range requirements {
		got[r.engine] = r.checks
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("requirements differ from questions (-questions +requirements):\n%s", diff)
	}
}

func TestVerdictZeroIsNo(t *testing.T) {
	if got := (Verdict{}).String(); got != SentenceUnable {
		t.Errorf("zero verdict says %q", got)
	}
}

func TestShown(t *testing.T) {
	down := with(passing(), NameDocker, Fail, "Docker is not running")
	broken := with(passing(), NameNamespaces, Fail, "no namespaces")
	tests := []struct {
		name       string
		checks     []Check
		configured Engine
		check      string
		want       State
	}{
		{"native runs without Docker", down, Native, NameDocker, Skipped},
		{"auto runs without Docker", down, Auto, NameDocker, Skipped},
		{"an old Docker is nothing to native", with(passing(), NameDocker, Warn, "old"), Native, NameDocker, Skipped},
		{"but to docker", with(passing(), NameDocker, Warn, "old"), Docker, NameDocker, Warn},
		{"auto without either asks for both", with(broken, NameDocker, Fail, "Docker is not running"), Auto, NameDocker, Fail},
		{"docker does not", down, Docker, NameDocker, Fail},
		{"native does not run without namespaces", broken, Native, NameNamespaces, Fail},
		{"docker runs without", broken, Docker, NameNamespaces, Skipped},
		{"what passes is shown so", broken, Native, NameLandlock, OK},
		{"off asks for nothing", down, Off, NameDocker, Warn},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := Report{Checks: tt.checks}
			r.Engines, r.Verdict = Decide(tt.checks, tt.configured)
			for _, c := range r.Checks {
				if c.Name == tt.check && r.Shown(c) != tt.want {
					t.Errorf("shown as %q, want %q", r.Shown(c), tt.want)
				}
			}
		})
	}
}

func TestPlain(t *testing.T) {
	tests := []struct{ in, want string }{
		{" Docker 28 ", "Docker 28"},
		{"a\x1b[2Jb", `a\x1b[2Jb`},
		{"\x1b]0;title\a", `\x1b]0;title\a`},
		{"a\nb\rc\td", `a\nb\rc\td`},
		{"c1\u009b", `c1\u009b`},
		{"bidi\u202eevil", `bidi\u202eevil`},
		{"bad\xffbyte", `bad\ufffdbyte`},
		{"Größe 数", "Größe 数"},
	}
	for _, tt := range tests {
		if got := plain(tt.in); got != tt.want {
			t.Errorf("plain(%q) = %q, want %q", tt.in, got, tt.want)
		}
	}
	if got := plain(strings.Repeat("x", 10_000)); len(got) > longest+len("...") {
		t.Errorf("plain keeps %d characters", len(got))
	}
}
