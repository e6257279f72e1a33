package egress

import (
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// Where a stand-in is what is wrong, to change the policy would not help: the
// advice is about the key, also where the policy denies the host as well.
func TestDenialAdvisesOnTheKeyFirst(t *testing.T) {
	for _, layer := range []string{policy.LayerNode, policy.LayerRepository, ""} {
		text := denialText(Verdict{ID: "x", Host: "a.example", Port: 443, Layer: layer, Reason: "a reason", Misused: "KEY"})
		if !strings.Contains(text, "mojoup-node secret list") || strings.Contains(text, "policy explain") {
			t.Errorf("layer %q:\n%s", layer, text)
		}
	}
	if text := denialText(Verdict{ID: "x", Host: "a.example", Port: 443, Reason: "a reason", Misused: secrets.SignIn + "claude claude.ai"}); !strings.Contains(text, "mojoup-node signin status") || strings.Contains(text, "secret") {
		t.Error(text)
	}
	if text := denialText(Verdict{ID: "x", Host: "a.example", Port: 443, Reason: "a reason"}); !strings.Contains(text, "policy explain") {
		t.Error(text)
	}
}
