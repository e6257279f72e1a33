package realtest

import (
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/internal/realtest/upstream"
)

// responses speaks as much of OpenAI's Responses as an agent needs for one
// answer, to whoever has the key.
type responses struct {
	key string
	mu  sync.Mutex
	// mu guards keys: those that came, by host.
	keys map[string][]string
}

func (s *responses) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
	s.mu.Lock()
	s.keys[r.Host] = append(s.keys[r.Host], key)
	s.mu.Unlock()
	switch {
	case r.Header.Get("Upgrade") != "": // at which it goes on without a WebSocket
		w.WriteHeader(http.StatusUpgradeRequired)
	case key != s.key:
		w.WriteHeader(http.StatusUnauthorized)
	case !strings.HasSuffix(r.URL.Path, "/responses"):
		w.WriteHeader(http.StatusNotFound)
	default:
		w.Header().Set("Content-Type", "text/event-stream")
		const item = `{"type":"message","id":"msg_1","role":"assistant","status":"completed","content":[{"type":"output_text","text":"the upstream answers: all is well","annotations":[]}]}`
		for _, e := range []struct{ kind, more string }{
			{"response.created", `"response":{"id":"resp_1"}`},
			{"response.output_item.done", `"output_index":0,"item":` + item},
			{"response.completed", `"response":{"id":"resp_1","output":[` + item + `],"usage":{"input_tokens":1,"input_tokens_details":null,"output_tokens":1,"output_tokens_details":null,"total_tokens":2}}`},
		} {
			fmt.Fprintf(w, "event: %s\ndata: {\"type\":%q,%s}\n\n", e.kind, e.kind, e.more)
		}
	}
}

// TestToolsTakeTheirKeys runs real tools with a key that only their person's
// environment holds: it arrives swapped, and the answer comes back.
func TestToolsTakeTheirKeys(t *testing.T) {
	if os.Getenv("MOJOUP_TEST_TOOLS") != "1" {
		t.Skip("wanted MOJOUP_TEST_TOOLS=1, as make test-tools sets it, found none")
	}
	everybody(t, func(t *testing.T, who somebody) {
		t.Run("codex", func(t *testing.T) {
			const key = "sk-proj-realtest-0123456789abcdefghij"
			ip := ownAddress()
			bindable(t, ip+":443")
			tool := agentTool(t, "codex")
			r := newRig(t, who, map[string]string{"api.openai.com": ip, "chatgpt.com": ip}, onPath(fetched(t, tool.spec, tool.name, tool.name, tool.below)))
			up := &responses{key: key, keys: map[string][]string{}}
			r.serve(ip+":443", up, "api.openai.com", "chatgpt.com")
			r.env = append(r.env, "CODEX_API_KEY="+key)
			res := r.inside(opened("api.openai.com", "443", ""), "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "say that all is well").as("codex").succeed()
			r.mention(res, "the upstream answers: all is well")
			up.mu.Lock()
			defer up.mu.Unlock()
			for host, keys := range up.keys {
				for _, k := range keys {
					if k != key && k != "" {
						t.Errorf("%s was sent %q", host, k)
					}
				}
			}
		})
		t.Run("opencode", func(t *testing.T) {
			ip := ownAddress()
			bindable(t, ip+":443")
			tool := agentTool(t, "opencode")
			r := newRig(t, who, map[string]string{claudeHost: ip}, onPath(fetched(t, tool.spec, tool.name, tool.name, tool.below)))
			up := &upstream.Server{Answer: answer, Keys: []string{claudeKey}}
			r.serve(ip+":443", up, claudeHost)
			r.env = append(r.env, "ANTHROPIC_API_KEY="+claudeKey)
			before := len(up.Requests())
			res := r.inside(opened(claudeHost, "443", ""), "run", "-m", "anthropic/claude-sonnet-4-5", "say that all is well").as("opencode").succeed()
			r.mention(res, "the upstream answers: all is well")
			streamed(t, up, before)
		})
	})
}
