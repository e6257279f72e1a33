package escape

import (
	"errors"
	"io"
	"os"
	"slices"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Reasons why an attempt is not repeated outside, each used by many rows.
const (
	needsRoot = "needs root there too; nobody should run it as root on a host"
	needsPid1 = "the host's first process belongs to root"
	needsBox  = "what it attacks exists in a sandbox only"
	needsCaps = "needs a capability in the caller's user namespace there too"
)

// here is AT_FDCWD for raw calls.
const here = ^uintptr(99)

var errNoArena = errors.New("the arena has nothing of the kind")

// call is one raw system call.
func call(number uintptr, args ...uintptr) error {
	_, err := value(number, args...)
	return err
}

func value(number uintptr, args ...uintptr) (uintptr, error) {
	var a [6]uintptr
	copy(a[:], args)
	r, _, errno := syscall.Syscall6(number, a[0], a[1], a[2], a[3], a[4], a[5])
	if errno != 0 {
		return 0, errno
	}
	return r, nil
}

// reached turns complaints about senseless arguments into success: the kernel
// has looked at them, so with sensible ones it would have obeyed.
func reached(err error, complaints ...error) error {
	if slices.ContainsFunc(complaints, func(c error) bool { return errors.Is(err, c) }) {
		return nil
	}
	return err
}

// descriptor is for calls that return one.
func descriptor(fd int, err error) error {
	if err == nil {
		_ = unix.Close(fd)
	}
	return err
}

func opens(path string, flags int) error {
	return descriptor(unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0))
}

// reads wants to see a first byte: opening alone is not yet reading.
func reads(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	n, err := f.Read(make([]byte, 1))
	if n == 0 && errors.Is(err, io.EOF) {
		return unix.ENODATA
	}
	return err
}

// creates makes a file and removes it again.
func creates(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_ = f.Close()
	return os.Remove(path)
}

// renames moves a path and moves it back.
func renames(from, to string) error {
	if err := unix.Rename(from, to); err != nil {
		return err
	}
	return unix.Rename(to, from)
}

// connects opens a connection of any family. One that gets no answer counts
// as made: what it sent has left.
func connects(family, kind int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, to); !errors.Is(err, unix.EINPROGRESS) {
		return err
	}
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, _ := unix.Poll(poll, 500); n == 0 { // ms
		return nil
	}
	code, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err == nil && code != 0 {
		err = syscall.Errno(code)
	}
	return err
}

func socket(family, kind, protocol int) error {
	return descriptor(unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol))
}

func text(s string) uintptr {
	p, err := unix.BytePtrFromString(s)
	if err != nil {
		return 0
	}
	return uintptr(unsafe.Pointer(p))
}

// the outcome of an attempt in one word.
func outcome(err error) Result {
	var errno syscall.Errno
	switch {
	case err == nil:
		return Result{Outcome: Works}
	case errors.Is(err, errNoArena):
		return Result{Outcome: NoArena}
	case errors.As(err, &errno):
		return Result{Outcome: unix.ErrnoName(errno), Detail: err.Error()}
	}
	return Result{Outcome: "error", Detail: err.Error()}
}
