package cgroup

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestT9_MarkedGroups: those of sandboxes, wherever they lie, and those that
// were given to somebody's node, with whom they hold.
func TestT9_MarkedGroups(t *testing.T) {
	top := t.TempDir()
	given := filepath.Join(top, "slice", "mojoup.user-1000.x")
	for _, dir := range []string{"other/mojoup-a/mojoup-b", "mojoup-", "slice/mojoup.node", "slice/mojoup.user-1000.x/mojoup.node", "slice/mojoup.user-1000.x/mojoup-c"} {
		if err := os.MkdirAll(filepath.Join(top, dir), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for file, pids := range map[string]string{"": "", "mojoup.node": "12\n13\n", "mojoup-c": "14\n"} {
		if err := os.WriteFile(filepath.Join(given, file, "cgroup.procs"), []byte(pids), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, left := map[string]string{}, maxGroups
	if err := marked(t.Context(), top, out, &left); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{filepath.Join(top, "other/mojoup-a"): "a", given: "", filepath.Join(given, "mojoup-c"): "c"}
	if d := cmp.Diff(want, out); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	if d := cmp.Diff([]int{14, 12, 13}, Holds(given)); d != "" {
		t.Errorf("it holds (-want +got)\n%s", d)
	}
}
