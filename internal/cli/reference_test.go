package cli

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write docs/cli.md anew")

// TestDocs keeps docs/cli.md true to the command tree.
func TestDocs(t *testing.T) {
	const path = "../../docs/cli.md"
	got := Reference(ThisProcess())
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("docs/cli.md is stale, run `make generate`:\n%s", diff)
	}
}
