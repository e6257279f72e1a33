package egress

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// stubAnswers answers /token of one host.
type stubAnswers struct{ host string }

func (s stubAnswers) Host(host string, port uint16) bool { return host == s.host && port == 443 }

func (s stubAnswers) Answer(host string, port uint16, path string) (http.Handler, string) {
	if !s.Host(host, port) || path != "/token" {
		return nil, ""
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(http.StatusServiceUnavailable)
	}), "answered by the node"
}

// TestAnswersAreTheNodes: what the node answers itself goes nowhere, whether
// the policy allows the host, tunnels it, or denies it; what else is asked of
// that host is judged as ever.
func TestAnswersAreTheNodes(t *testing.T) {
	none := judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Reason: "no rule allows it"} })
	for name, c := range map[string]struct {
		judge Judge
		other int
	}{"allowed": {all, 200}, "denied": {none, 403}} {
		for _, h2 := range []bool{false, true} {
			w := newWorld(t, c.judge)
			w.stop()
			w.session.Answers = stubAnswers{"api.x.example"}
			w.start()
			h := &heard{}
			w.serve(443, true, h.ServeHTTP)
			client := w.client(h2)
			res, err := client.Post("https://api.x.example/token", "application/json", strings.NewReader(`{"refresh_token":"x"}`))
			if err != nil {
				t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != 503 || h.count() != 0 {
				t.Errorf("%s: status %d, the host heard %d requests", name, res.StatusCode, h.count())
			}
			v := w.wait("the answer", func(v Verdict) bool { return v.Path == "/token" })
			if !v.Allowed || v.Layer != policy.LayerNode || v.Reason != "answered by the node" || v.Address.IsValid() {
				t.Errorf("%s: recorded %+v", name, v)
			}
			for _, path := range []string{"/token/x", "/", "/Token"} {
				if status, _, _ := w.get(client, "https://api.x.example"+path); status != c.other {
					t.Errorf("%s: %s gives %d, not %d", name, path, status, c.other)
				}
			}
			// Dot segments and escapes come to the same path.
			for _, path := range []string{"/x/../token", "/%74oken"} {
				before := h.count()
				if status, _, _ := w.get(client, "https://api.x.example"+path); h.count() != before && status != 503 {
					t.Errorf("%s: %s reached the host", name, path)
				}
			}
		}
	}
}
