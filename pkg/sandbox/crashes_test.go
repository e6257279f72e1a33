package sandbox

import "testing"

// TestCoreHandlers: every form of a core_pattern is known, and those that no limit
// stops are said.
func TestCoreHandlers(t *testing.T) {
	for pattern, want := range map[string]CoreHandler{
		"core":                      {},
		"":                          {},
		"/var/crash/%p":             {},
		"|/usr/lib/handler %P\n":    {Pipe: "/usr/lib/handler %P"},
		"@/run/dumps.socket\n":      {Socket: "/run/dumps.socket"},
		"@@/run/dumps.socket":       {Socket: "/run/dumps.socket"},
		"@relative":                 {}, // which a kernel that knows sockets does not take
		"@@@/run/dumps.socket":      {},
		"core@/run/not":             {},
		"|@/run/program-of-no-kind": {Pipe: "@/run/program-of-no-kind"},
	} {
		got := CoreHandlerOf(pattern)
		if got != want {
			t.Errorf("%q: %+v, want %+v", pattern, got, want)
		}
		if facts := got.CrashFacts(); (len(facts) > 0) != (want.Socket != "") {
			t.Errorf("%q: %+v", pattern, facts)
		}
	}
}
