package realtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/realtest/upstream"
)

const (
	claudeHost = "api.anthropic.com"
	claudeKey  = "sk-ant-api03-realtest-not-a-key-AA"
)

// claudeEnv is a quiet agent with a key. IS_SANDBOX lets it run as root.
func claudeEnv(more ...string) []string {
	return append([]string{
		"ANTHROPIC_API_KEY=" + claudeKey, "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1", "DISABLE_AUTOUPDATER=1", "IS_SANDBOX=1",
	}, more...)
}

// answer echoes the prompt; asked to, it first uses the agent's shell.
func answer(r upstream.Request) []upstream.Block {
	if said, ok := r.Last().Result(); ok {
		return []upstream.Block{{Type: "text", Text: "the shell said " + said}}
	}
	if r.HasTool("Bash") && strings.Contains(r.Last().Text(), "USE THE SHELL") {
		return []upstream.Block{
			{Type: "text", Text: "I will look."},
			{Type: "tool_use", ID: "toolu_1", Name: "Bash", Input: json.RawMessage(`{"command": "pwd > made-by-the-agent.txt && cat made-by-the-agent.txt", "description": "write the place down"}`)},
		}
	}
	return []upstream.Block{{Type: "text", Text: "the upstream answers: all is well"}}
}

// TestClaude runs the real agent against an upstream of the test's own, by a
// base URL and by the service's real name.
func TestClaude(t *testing.T) {
	everybody(t, func(t *testing.T, who somebody) {
		dir := claude(t)
		prompt := []string{"claude", "-p", "say that all is well"}

		t.Run("base URL", func(t *testing.T) {
			r := newRig(t, who, map[string]string{webName: "127.0.0.1"}, onPath(dir))
			up := &upstream.Server{Answer: answer, Keys: []string{claudeKey}}
			port := r.serve("127.0.0.1:0", up, webName)
			env := claudeEnv("ANTHROPIC_BASE_URL=https://" + webName + ":" + port)
			r.mention(r.outside(prompt...).with(env...).succeed(), "all is well")
			before := len(up.Requests())
			res := r.inside(opened(webName, port, ""), prompt...).with(env...).succeed()
			r.mention(res, "the upstream answers: all is well")
			streamed(t, up, before)
			t.Logf("answered after %v", res.took)
		})
		t.Run("real name", func(t *testing.T) {
			ip := ownAddress()
			bindable(t, ip+":443")
			r := newRig(t, who, map[string]string{claudeHost: ip}, onPath(dir))
			up := &upstream.Server{Answer: answer, Keys: []string{claudeKey}}
			r.serve(ip+":443", up, claudeHost)
			r.mention(r.outside(prompt...).with(claudeEnv()...).succeed(), "all is well")
			for name, more := range map[string]string{"tunnel": "", "inspected": `, "methods": ["GET", "POST"]`} {
				t.Run(name, func(t *testing.T) {
					r := r.on(t)
					before := len(up.Requests())
					res := r.inside(opened(claudeHost, "443", more), prompt...).with(claudeEnv()...).succeed()
					r.mention(res, "the upstream answers: all is well")
					streamed(t, up, before)
				})
			}
			t.Run("by --tool", func(t *testing.T) {
				r := r.on(t)
				before := len(up.Requests())
				res := r.inside(opened(claudeHost, "443", ""), "-p", "say that all is well").as("claude").with(claudeEnv()...).succeed()
				r.mention(res, "the upstream answers: all is well")
				streamed(t, up, before)
			})
			// The key is in the person's environment alone, as their shell has it,
			// and the tool's profile says the rest.
			t.Run("by --tool with a key outside", func(t *testing.T) {
				r := r.on(t)
				r.env = append(slices.Clip(r.env), "ANTHROPIC_API_KEY="+claudeKey)
				before := len(up.Requests())
				res := r.inside(opened(claudeHost, "443", ""), "-p", "say that all is well").as("claude").succeed()
				r.mention(res, "the upstream answers: all is well")
				streamed(t, up, before)
				if res := r.inside(opened(claudeHost, "443", ""), "-p", "USE THE SHELL", "--permission-mode", "bypassPermissions").as("claude").succeed(); strings.Contains(res.all(), claudeKey) {
					t.Errorf("the key was inside: %s", res.all())
				}
			})
			t.Run("shell", func(t *testing.T) {
				r := r.on(t)
				args := []string{"claude", "-p", "USE THE SHELL", "--permission-mode", "bypassPermissions"}
				res := r.inside(opened(claudeHost, "443", ""), args...).with(claudeEnv()...).succeed()
				r.mention(res, "the shell said")
				made, err := os.ReadFile(filepath.Join(r.repo, "made-by-the-agent.txt"))
				if err != nil || strings.TrimSpace(string(made)) != r.repo {
					t.Errorf("the agent's shell wrote %q (%v), want %s", made, err, r.repo)
				}
			})
		})
		t.Run("denied", func(t *testing.T) {
			r := newRig(t, who, map[string]string{claudeHost: "127.0.0.1"}, onPath(dir))
			res := r.inside(`{"version": 1, "network": {"rules": []}}`, prompt...).with(claudeEnv()...).fail()
			if res.took > time.Minute {
				t.Errorf("gave up after %v, want seconds", res.took)
			}
			r.mention(res, "denied by policy")
			t.Logf("gave up after %v: %s", res.took, strings.TrimSpace(res.all()))
		})
	})
}

// streamed fails unless a question that asked to be streamed came in with the
// key since the first n requests.
func streamed(t *testing.T, up *upstream.Server, n int) {
	t.Helper()
	for _, s := range up.Requests()[n:] {
		if s.Message != nil && s.Message.Stream && s.Key == claudeKey && s.Status == 200 {
			return
		}
	}
	t.Errorf("the upstream saw no streamed question: %+v", up.Requests()[n:])
}
