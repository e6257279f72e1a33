package engine

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestT9_DeepRubbleGoes whatever a session has made of its scratch: more
// directories in one another than a process may have open, and what is closed to
// its owner behind more names than a path may have.
func TestT9_DeepRubbleGoes(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
		t.Fatal(err)
	}
	few := before
	few.Cur = 256
	for name, steps := range map[string]int{"closed": 20, "deep": 400} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "stage")
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			at := deeper(t, dir, steps)
			for _, err := range []error{at.WriteFile("file", nil, 0o400), at.Mkdir("shut", 0o700), at.WriteFile("shut/file", nil, 0), at.Symlink("/etc", "shut/link"), at.Chmod("shut", 0), at.Chmod(".", 0)} {
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &few); err != nil {
				t.Fatal(err)
			}
			err := removeStage(dir)
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &before); err != nil {
				t.Fatal(err)
			}
			if err != nil {
				t.Error(err)
			}
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("it is there: %v", err)
			}
		})
	}
	if err := removeStage(filepath.Join(t.TempDir(), "missing")); err != nil {
		t.Error(err)
	}
}
