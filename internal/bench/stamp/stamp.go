// Package stamp promises the program whose first instruction the benchmarks
// wait for: it writes the monotonic clock to stdout and ends.
package stamp

import (
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"
)

//go:embed bin
var built embed.FS

// ErrMissing says that this build has no such program.
var ErrMissing = errors.New("this build has no program to measure with: build with make")

// Size of what the program writes, in bytes.
const Size = 16

// Install writes the program into dir and returns its path.
func Install(dir string) (string, error) {
	program, err := built.ReadFile("bin/stamp-" + runtime.GOARCH)
	if err != nil {
		return "", ErrMissing
	}
	path := filepath.Join(dir, "stamp")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		return "", fmt.Errorf("writing the program to measure with: %w", err)
	}
	return path, nil
}

// Read is the moment that b tells, since the clock's zero.
func Read(b [Size]byte) time.Duration {
	return time.Duration(binary.NativeEndian.Uint64(b[:8]))*time.Second + time.Duration(binary.NativeEndian.Uint64(b[8:]))
}
