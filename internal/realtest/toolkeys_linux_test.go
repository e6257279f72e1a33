package realtest

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// withVendors is a node beside services of the test's own, whose names lead
// there, and with a real tool on its path.
func withVendors(t *testing.T, who somebody, tool string, up *vendors, options ...rigOption) *rig {
	t.Helper()
	ip := ownAddress()
	bindable(t, ip+":443")
	hosts := map[string]string{}
	for _, name := range vendorHosts {
		hosts[name] = ip
	}
	r := newRig(t, who, hosts, append(options, having(fetched(t, agentTool(t, tool))))...)
	r.serve(ip+":443", up, vendorHosts...)
	return r
}

// TestClaudeAndCodexTakeTheirKeys is TestToolsTakeTheirKeys for the two tools
// that every run of the tests fetches.
func TestClaudeAndCodexTakeTheirKeys(t *testing.T) {
	kerneltest.Long(t)
	takeKeys(t, inEveryRun, generations(newer)...)
}

// TestToolsTakeTheirKeys runs real tools with a key that only their person's
// environment holds: it arrives swapped, and the answer comes back.
func TestToolsTakeTheirKeys(t *testing.T) {
	wantsTools(t)
	takeKeys(t, inToolsRun, both...)
}

func takeKeys(t *testing.T, which func(tool string) bool, generations ...string) {
	everywhere(t, func(t *testing.T, who somebody) {
		for _, c := range []struct {
			tool, variable, key string
			words               []string
		}{
			{"claude", "ANTHROPIC_API_KEY", claudeKey, nil},
			{"codex", "CODEX_API_KEY", "sk-proj-realtest-0123456789abcdefghij", nil},
			{"copilot", "GH_TOKEN", "gho_realtest0123456789abcdefghijklmnop", nil},
			{"copilot", "COPILOT_GITHUB_TOKEN", "github_pat_realtest0123456789abcdefghijklm", nil},
			{"opencode", "ANTHROPIC_API_KEY", claudeKey, []string{"-m", "anthropic/claude-sonnet-4-5"}},
			{"kilo", "KILO_API_KEY", "kilo-realtest-0123456789abcdefghijklmn", []string{"-m", "kilo/anthropic/claude-sonnet-4.5"}},
			{"kilo", "ANTHROPIC_API_KEY", claudeKey, []string{"-m", "anthropic/claude-sonnet-4-5"}},
		} {
			if !which(c.tool) {
				continue
			}
			t.Run(c.tool+" "+c.variable, func(t *testing.T) {
				up := &vendors{lets: func(token string) bool { return token == c.key }}
				r := withVendors(t, who, c.tool, up)
				r.env = append(r.env, c.variable+"="+c.key)
				res := r.inside(up.open(), c.words...).as(c.tool).asked("say that all is well").succeed()
				r.mention(res, wellSaid)
				for _, a := range up.requests() {
					if a.token != c.key && a.token != "" {
						t.Errorf("sent with something else than the key: %v", a)
					}
				}
			})
		}
	}, generations...)
}
