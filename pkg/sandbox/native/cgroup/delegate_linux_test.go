package cgroup

import (
	"os"
	"path/filepath"
	"testing"
)

// TestDelegatedGroupsAreBounded: where the kernel can, how many groups a person
// makes below theirs is bounded, by a file that stays root's.
func TestDelegatedGroupsAreBounded(t *testing.T) {
	dir := t.TempDir()
	g, err := pretended(dir, false, true).Delegate("1.x", os.Getuid(), os.Getgid())
	if err != nil {
		t.Fatal(err)
	}
	defer g.Release()
	text, err := os.ReadFile(filepath.Join(dir, "mojoup.user-1.x", "cgroup.max.descendants"))
	if err != nil || string(text) != "4096\n" {
		t.Errorf("the bound is %q, %v", text, err)
	}
	for _, file := range given {
		if file == "cgroup.max.descendants" {
			t.Error("its owner may write the bound")
		}
	}
}
