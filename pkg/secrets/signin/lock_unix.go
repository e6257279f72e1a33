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
	"strings"
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

// lockWithin is for how long another node may hold the lock: its renewal waits for
// the tool and for the service's answer.
const lockWithin = toolWithin + askWithin + 15*time.Second

// errHeld says that another holds a lock.
var errHeld = errors.New("another process holds it")

// lockOurs is the one lock of all nodes: a file that nobody but its owner can open,
// so that no other user of the machine can hold it. It goes with its release.
func lockOurs(ctx context.Context, path string, within time.Duration) (release func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for {
		release, err := tryLock(path)
		if !errors.Is(err, errHeld) {
			return release, err
		}
		if err := pause(ctx, lockAgain); err != nil {
			return nil, heldBy(path, err)
		}
	}
}

func tryLock(path string) (release func(), err error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		if _, there := os.Lstat(path); there == nil && errors.Is(err, fs.ErrPermission) {
			return nil, errHeld // by root, for this user
		}
		return nil, err
	}
	info, err := f.Stat()
	switch {
	case err == nil && !info.Mode().IsRegular():
		err = fmt.Errorf("%s is in the way", path)
	case err == nil && info.Mode().Perm()&0o077 != 0:
		err = f.Chmod(0o600)
	}
	if err == nil {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	}
	if errors.Is(err, syscall.EWOULDBLOCK) || errors.Is(err, syscall.EINTR) {
		err = errHeld
	}
	// Who held it before has taken the file away with it.
	if now, lerr := os.Lstat(path); err == nil && (lerr != nil || !os.SameFile(info, now)) {
		err = errHeld
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() {
		_ = os.Remove(path)
		_ = f.Close()
	}, nil
}

// heldBy says who holds a lock that was waited for in vain.
func heldBy(path string, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) {
		return err // it was ended
	}
	return fmt.Errorf("%s holds the lock %s", holder(path), path)
}

// holder names the process that holds a lock on a file, as far as the system says.
func holder(path string) string {
	var st syscall.Stat_t
	locks, err := os.ReadFile("/proc/locks")
	if err != nil || syscall.Stat(path, &st) != nil {
		return "another process"
	}
	at := fmt.Sprintf(":%d", st.Ino)
	for line := range strings.Lines(string(locks)) {
		// 1: FLOCK ADVISORY WRITE 1234 08:01:5678 0 EOF
		f := strings.Fields(line)
		if len(f) < 6 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], at) {
			continue
		}
		if info, err := os.Stat("/proc/" + f[4]); err == nil {
			if owner, ok := info.Sys().(*syscall.Stat_t); ok {
				return fmt.Sprintf("process %s of the user with id %d", f[4], owner.Uid)
			}
		}
	}
	return "another process"
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
			return nil, heldBy(path, err)
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
