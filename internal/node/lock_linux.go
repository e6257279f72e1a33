package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/config"
)

// hold takes the lock that makes one node of a runtime directory. The lock is
// the kernel's and ends with the process: no number in a file is ever trusted.
func hold(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the node's lock: %w", err)
	}
	err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		_ = f.Close()
		return nil, ErrRunning
	}
	if err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// WaitGone waits until no node holds the runtime directory, for a minute at
// most.
func WaitGone(ctx context.Context, p config.Paths) error {
	f, err := os.OpenFile(p.Lock(), os.O_RDWR, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("opening the node's lock: %w", err)
	}
	free := make(chan error, 1)
	go func() { // ends with the lock or with the process
		defer f.Close()
		free <- unix.Flock(int(f.Fd()), unix.LOCK_EX)
	}()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	select {
	case err := <-free:
		return err
	case <-ctx.Done():
		return fmt.Errorf("waiting for the node to end: %w", ctx.Err())
	}
}
