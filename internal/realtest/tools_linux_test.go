package realtest

import (
	"os"
	"strings"
	"testing"
)

// TestTools lets every agent tool that has a preset say its version inside, as
// it does outside. It fetches some hundred megabytes.
func TestTools(t *testing.T) {
	wantsTools(t)
	everywhere(t, func(t *testing.T, who somebody) {
		for _, tool := range agentTools() {
			t.Run(tool.name, func(t *testing.T) {
				dir := fetched(t, tool)
				r := newRig(t, who, nil, having(dir))
				want := strings.TrimSpace(r.outside(tool.name, "--version").succeed().stdout)
				got := strings.TrimSpace(r.inside(`{"version": 1}`, "--version").as(tool.name).succeed().stdout)
				if want == "" || got != want {
					t.Errorf("inside it says %q, outside %q", got, want)
				}
			})
		}
	}, both...)
}

// wantsTools ends a test here that fetches some hundred megabytes.
func wantsTools(t *testing.T) {
	t.Helper()
	if os.Getenv("MOJOUP_TEST_TOOLS") != "1" {
		t.Skip("wanted MOJOUP_TEST_TOOLS=1, as make test-tools sets it, found none")
	}
}

// inToolsRun are the tools that only make test-tools has.
func inToolsRun(tool string) bool { return !inEveryRun(tool) }

// generations are those of gateways that a tool of every run is tried at: some
// in an ordinary one, and all in make test-tools.
func generations(some []string) []string {
	if os.Getenv("MOJOUP_TEST_TOOLS") == "1" {
		return both
	}
	return some
}
