package host

import (
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/plan"
)

// A changed file is read anew, an unchanged one is not read again, and what is
// no certificate never comes along.
func TestTrustFollowsItsFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "extra.pem")
	write := func(name string) {
		t.Helper()
		text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(name)})
		text = append(text, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: []byte("key of " + name)})...)
		if err := os.WriteFile(file, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var trust Trust
	extra := func() string {
		h := plan.Host{At: map[string]plan.Node{}}
		trust.gather(&h, "/nonexistent", file, "")
		if !strings.HasSuffix(string(h.Joined), string(h.Extra)) {
			t.Error("the extra certificates are not among all")
		}
		if block, rest := pem.Decode(h.Extra); block == nil || len(rest) > 0 {
			t.Fatalf("the extra certificates read %q", h.Extra)
		} else {
			return string(block.Bytes)
		}
		return ""
	}
	write("one")
	if got := extra(); got != "one" {
		t.Errorf("got %q", got)
	}
	before := trust.kept.Extra
	if extra(); &before[0] != &trust.kept.Extra[0] {
		t.Error("an unchanged file was read again")
	}
	write("another")
	if got := extra(); got != "another" {
		t.Errorf("after a change: %q", got)
	}
}
