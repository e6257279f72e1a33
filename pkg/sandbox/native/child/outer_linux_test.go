package child

import (
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// TestPid1NeverOutlivesTheOuterProcess: also where that one is killed the moment
// it has forked, before pid 1 can have asked to be told.
func TestPid1NeverOutlivesTheOuterProcess(t *testing.T) {
	image, err := Load()
	require(t, err)
	defer image.Close()
	for range kerneltest.Rounds(200, 40) {
		h, err := image.Start(Options{ID: "outer", UID: os.Getuid(), GID: os.Getgid()})
		require(t, err)
		require(t, h.MakeNamespaces(os.Getuid(), os.Getgid()))
		children := fmt.Sprintf("/proc/%d/task/%[1]d/children", h.PID())
		for {
			text, err := os.ReadFile(children)
			if len(text) > 0 {
				break
			}
			if err != nil {
				t.Fatalf("it forked nobody: %v", err)
			}
			runtime.Gosched()
		}
		require(t, h.process.Kill())
		select {
		case <-h.Done():
		case <-time.After(2 * time.Minute):
			t.Fatal("pid 1 runs on")
		}
	}
}
