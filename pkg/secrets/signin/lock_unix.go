//go:build unix

package signin

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"
)

// lockAgain is how often a lock that another holds is asked for.
const lockAgain = 5 * time.Millisecond

// flock locks a file or directory; the lock ends with its process at the
// latest.
func flock(ctx context.Context, path string, flags int) (release func(), err error) {
	f, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return nil, errors.Join(err, f.Close())
		}
		if err := pause(ctx, lockAgain); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lockDirectory is the one lock of all nodes: it lies on the tool's directory
// and leaves nothing there.
func lockDirectory(ctx context.Context, dir string) (func(), error) {
	return flock(ctx, dir, os.O_RDONLY|syscall.O_DIRECTORY)
}

// toolWithin is for how long a tool may hold its own lock. A renewal takes
// seconds.
const toolWithin = 45 * time.Second

// lockLikeTheTool takes a tool's own locks, in its order.
func lockLikeTheTool(ctx context.Context, dir string, locks []Lock) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, toolWithin)
	defer cancel()
	var held []func()
	release = func() {
		for _, f := range slices.Backward(held) {
			f()
		}
	}
	for _, l := range locks {
		var one func()
		path := filepath.Join(dir, l.Name)
		if l.Directory {
			one, err = makeLock(ctx, path, time.Duration(l.Stale)*time.Second)
		} else {
			one, err = flock(ctx, path, os.O_RDWR|os.O_CREATE)
		}
		if err != nil {
			release()
			return nil, fmt.Errorf("%s: %w", l.Name, err)
		}
		held = append(held, one)
	}
	return release, nil
}

// makeLock is a lock that is a directory: whoever makes it holds it, and
// touches it as long as it does.
func makeLock(ctx context.Context, path string, stale time.Duration) (func(), error) {
	for {
		err := os.Mkdir(path, 0o700)
		if err == nil {
			break
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, err
		}
		if info, err := os.Lstat(path); err == nil && info.IsDir() && time.Since(info.ModTime()) > stale {
			_ = os.Remove(path) // an empty one only; who touches it meanwhile makes it anew
			continue
		}
		if err := pause(ctx, lockAgain); err != nil {
			return nil, err
		}
	}
	over, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var touching sync.WaitGroup
	touching.Go(func() {
		for pause(over, stale/4) == nil {
			now := time.Now()
			_ = os.Chtimes(path, now, now)
		}
	})
	return func() {
		cancel()
		touching.Wait()
		_ = os.Remove(path)
	}, nil
}
