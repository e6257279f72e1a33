//go:build unix

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// What is no readable file is an error at once, and no default is taken.
func TestFilesThatCannotBeRead(t *testing.T) {
	for name, tt := range map[string]struct {
		make func(file string) error
		says string
	}{
		"Directory": {func(f string) error { return os.Mkdir(f, 0o755) }, "not a regular file"},
		"Pipe":      {func(f string) error { return syscall.Mkfifo(f, 0o644) }, "not a regular file"},
		"Loop":      {func(f string) error { return os.Symlink(f, f) }, "too many levels"},
		"Large":     {func(f string) error { return os.WriteFile(f, make([]byte, maxFile+1), 0o644) }, "larger than 1 MiB"},
		"Below":     {func(f string) error { return os.WriteFile(filepath.Dir(f)+"/file", nil, 0o644) }, "not a directory"},
	} {
		t.Run(name, func(t *testing.T) {
			o := Origin{File: filepath.Join(t.TempDir(), "node.toml")}
			if err := tt.make(o.File); err != nil {
				t.Fatal(err)
			}
			if name == "Below" {
				o.File = filepath.Join(filepath.Dir(o.File), "file", "node.toml")
			}
			_, err := o.Load()
			wantPlace(t, err, "reading the settings "+o.File+": ", tt.says)
			if strings.Count(err.Error(), o.File) != 1 || fault.As(err).Hint == "" {
				t.Errorf("%q, hint %q", err, fault.As(err).Hint)
			}
			if _, err := o.Set(RolesSandbox, "true"); err == nil || fault.As(err).Exit != fault.ExitUnknown {
				t.Errorf("set: %v", err)
			}
		})
	}
}

// /proc takes no new file from anybody, so this fails as on a read-only disk.
func TestFilesThatCannotBeWritten(t *testing.T) {
	for _, file := range []string{"/proc/node.toml", "/proc/mojoup/node.toml"} {
		_, err := Origin{File: file}.Set(RolesSandbox, "true")
		wantPlace(t, err, "writing the settings "+file+": ", "")
	}
}

// A write that fails half-way leaves the old file and nothing beside it.
func TestFailedWriteLeavesTheOldFile(t *testing.T) {
	o := origin(t, "node.roles.sandbox = true\n")
	f, err := lockFile(o.File)
	if err != nil {
		t.Fatal(err)
	}
	defer f.unlock()
	// A directory in the place of the file: the rename is refused.
	f.path = filepath.Join(filepath.Dir(o.File), "dir")
	if err := os.MkdirAll(filepath.Join(f.path, "full"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := f.replace([]byte("new")); err == nil {
		t.Fatal("no error")
	}
	list, err := filepath.Glob(filepath.Join(filepath.Dir(o.File), ".*"))
	if err != nil || len(list) != 0 || text(t, o) != "node.roles.sandbox = true\n" {
		t.Errorf("left %v (%v), file %q", list, err, text(t, o))
	}
}
