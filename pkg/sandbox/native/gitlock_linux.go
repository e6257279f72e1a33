package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// Git locks a file by making this beside it, where a link leads to; programs
// that do not know of it lose a race that they can lose with git as well.
const lockSuffix = ".lock"

const (
	lockTries = 50
	lockPause = 10 * time.Millisecond
)

// lockMark is what a lock of ours holds: one that a dead node has left is known
// by it, and by nobody having the kernel's lock on it, and is taken away by
// whoever finds it. Without that no git could change the file any more.
const lockMark = "mojoup-node moves this file\n"

// lockBeside takes git's lock of a file, and waits a little where git has it.
func lockBeside(ctx context.Context, dir int, name string) (unlock func(), err error) {
	name += lockSuffix
	for range lockTries {
		var file *os.File
		if file, err = makeLock(dir, name); err == nil {
			return func() {
				_ = unix.Unlinkat(dir, name, 0)
				go file.Close() // see hold.release: it has no name any more
			}, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			return nil, err
		}
		if removed, _ := removeDeadLock(dir, name); removed {
			continue
		}
		select {
		case <-time.After(lockPause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, &LockedError{Name: name}
}

// makeLock makes the lock with its mark in it and the kernel's lock on it, from
// the first moment on where the file system can do that.
func makeLock(dir int, name string) (*os.File, error) {
	fd, err := unix.Openat(dir, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o644)
	nameless := err == nil
	if !nameless {
		fd, err = unix.Openat(dir, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	}
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	_ = unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB)
	_, err = file.WriteString(lockMark)
	if err == nil && nameless {
		err = unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), dir, name, unix.AT_SYMLINK_FOLLOW)
	}
	if err == nil {
		return file, nil
	}
	if !nameless {
		_ = unix.Unlinkat(dir, name, 0)
	}
	file.Close()
	return nil, err
}

// removeDeadLock takes away a lock that a dead node has left.
func removeDeadLock(dir int, name string) (bool, error) {
	fd, err := unix.Openat(dir, name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking at the lock %s: %w", name, err)
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if !isOurLock(file) || unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) != nil {
		return false, nil
	}
	if still, err := (placeholder{path: name}).isStill(dir, file); err != nil || !still {
		return false, err
	}
	return unix.Unlinkat(dir, name, 0) == nil, nil
}

func isOurLock(file *os.File) bool {
	got := make([]byte, len(lockMark)+1)
	n, _ := file.ReadAt(got, 0)
	return string(got[:n]) == lockMark
}

// A LockedError says that a program of the host holds git's lock of a file
// that is to be protected.
type LockedError struct{ Name string }

func (e *LockedError) Error() string { return "another git holds " + e.Name }

// Hint is the next step for people.
func (e *LockedError) Hint() string {
	return "try again; if no git runs in this repository, one has died: remove that file"
}
