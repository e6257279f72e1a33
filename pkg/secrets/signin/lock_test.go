//go:build unix

package signin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// lockFile locks what anybody may lock who can open it.
func lockFile(t *testing.T, path string, flags int) {
	t.Helper()
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_SH); err != nil {
		t.Fatal(err)
	}
}

// TestT11_OthersLocksAreNotWaitedFor: whoever may open the tool's directory can
// lock it, and that is nothing to a renewal.
func TestT11_OthersLocksAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"claude", "codex", "opencode"} {
		h := newHost(t, name)
		h.clock.move(tokenLife - 5*time.Minute)
		lockFile(t, filepath.Dir(h.path), os.O_RDONLY)
		lockFile(t, h.path, os.O_RDONLY)
		r := h.refresher()
		r.Step = func(step string) {
			if info, err := os.Lstat(filepath.Join(filepath.Dir(h.path), ".mojoup-lock-"+filepath.Base(h.path))); err != nil || info.Mode() != 0o600 {
				t.Errorf("%s, %s: the lock is %v, %v", name, step, info, err)
			}
		}
		if _, err := r.Refresh(t.Context(), h.tool, h.path, h.soon); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		h.usable(name)
	}
}

// TestT11_AWaitForALockEnds: with a sentence that says who holds it, or when
// whoever waits is told to end; nothing is spent.
func TestT11_AWaitForALockEnds(t *testing.T) {
	t.Parallel()
	h := newHost(t, "claude")
	h.clock.move(tokenLife - 5*time.Minute)
	lockFile(t, filepath.Join(filepath.Dir(h.path), ".mojoup-lock-"+filepath.Base(h.path)), os.O_RDWR|os.O_CREATE)
	r := h.refresher()
	r.patience = time.Millisecond
	_, err := r.Refresh(t.Context(), h.tool, h.path, h.soon)
	if err == nil || !strings.Contains(err.Error(), ".mojoup-lock-.credentials.json") || !strings.Contains(err.Error(), "holds the lock") {
		t.Errorf("late: %v", err)
	}
	if _, ok := os.Stat("/proc/locks"); ok == nil && !strings.Contains(fmt.Sprint(err), fmt.Sprintf("process %d of", os.Getpid())) {
		t.Logf("the system does not say who: %v", err) // as in a namespace of its own
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("told to end"))
	if _, err := h.refresher().Refresh(ctx, h.tool, h.path, h.soon); err == nil || !strings.Contains(err.Error(), "told to end") {
		t.Errorf("ended: %v", err)
	}
	if spent, _ := h.srv.Counts(); spent != 0 {
		t.Errorf("spent %d", spent)
	}
	h.usable("afterwards")
}
