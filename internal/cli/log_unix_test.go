//go:build unix

package cli

import (
	"os"
	"path/filepath"
	"testing"
)

// The log goes nowhere else, however large what a link points to has grown.
func TestLogIsNotWrittenThroughALink(t *testing.T) {
	dir := t.TempDir()
	other, log := filepath.Join(dir, "other"), filepath.Join(dir, "node.log")
	if err := os.WriteFile(other, make([]byte, 2<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(other, log); err != nil {
		t.Fatal(err)
	}
	if f, err := openLog(log); err == nil {
		f.Close()
		t.Error("a symbolic link was followed")
	}
	if info, err := os.Stat(other); err != nil || info.Size() != 2<<20 {
		t.Errorf("the other file: %v, %v", info, err)
	}
	if err := os.Remove(log); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		f, err := openLog(log)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
	}
}
