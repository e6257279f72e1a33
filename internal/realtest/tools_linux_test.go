package realtest

import (
	"os"
	"runtime"
	"strings"
	"testing"
)

// packaged is an agent tool as npm has it: below node_modules lies its program.
type packaged struct{ name, spec, below string }

// agentTools are those whose behaviour the tests describe.
func agentTools() []packaged {
	machine := map[string]string{"amd64": "x86_64", "arm64": "aarch64"}[runtime.GOARCH]
	arch := npmArch()
	return []packaged{
		{"claude", claudePackage, "@anthropic-ai/claude-code-linux-" + arch},
		{"copilot", "@github/copilot-linux-" + arch + "@1.0.102", "@github/copilot-linux-" + arch},
		{"codex", "@openai/codex@0.171.0-linux-" + arch, "@openai/codex/vendor/" + machine + "-unknown-linux-musl/bin"},
		{"opencode", "opencode-linux-" + arch, "opencode-linux-" + arch + "/bin"},
		{"kilo", "@kilocode/cli-linux-" + arch + "@7.7.9", "@kilocode/cli-linux-" + arch + "/bin"},
	}
}

func agentTool(t *testing.T, name string) packaged {
	t.Helper()
	for _, tool := range agentTools() {
		if tool.name == name {
			return tool
		}
	}
	t.Fatalf("no package of %s is known", name)
	return packaged{}
}

// TestTools lets every agent tool that has a preset say its version inside, as
// it does outside. It fetches some hundred megabytes.
func TestTools(t *testing.T) {
	wantsTools(t)
	everywhere(t, func(t *testing.T, who somebody) {
		for _, tool := range agentTools() {
			t.Run(tool.name, func(t *testing.T) {
				dir := fetched(t, tool.spec, tool.name, tool.name, tool.below)
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
