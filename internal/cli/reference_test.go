package cli

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/baseimage"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
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

// TestImagesKnowTheTools: the list of what an image can be made with has the
// built-in profiles, which its package may not look at.
func TestImagesKnowTheTools(t *testing.T) {
	want := map[string]string{}
	for _, p := range profile.Builtin() {
		want[p.Program.Name] = p.Program.Package
	}
	got := map[string]string{}
	for _, k := range baseimage.Tools {
		got[k.Name] = k.Package
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profiles and images (-profiles +images):\n%s", diff)
	}
}
