package repo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// ReadPolicy reads the policy file of the repository at top, a real path. It
// follows no link, leaves the repository for nothing, waits for no pipe, and
// returns a file that was the same before and after. Without one it is
// [ErrNoPolicy]; any other failure is an [*Error].
//
// A file system that does not answer cannot be interrupted: when ctx ends
// first, ReadPolicy returns and the read goes on by itself until it may end.
func ReadPolicy(ctx context.Context, top string) ([]byte, error) {
	type answer struct {
		content []byte
		err     error
	}
	done := make(chan answer, 1)
	go func() {
		content, err := readPolicy(top)
		done <- answer{content, err}
	}()
	select {
	case a := <-done:
		return a.content, a.err
	case <-ctx.Done():
		return nil, policyError(top, "could not be read in time", checkDisk, context.Cause(ctx))
	}
}

// checkDisk is the advice where the kernel gave up on a file that is in order.
const checkDisk = "check the file system it is on"

func policyError(top, reason, advice string, err error) error {
	return &Error{Path: filepath.Join(top, PolicyFile), Reason: reason, Advice: advice, Err: err}
}

// readTries is how often a file that changed under the reader is read again.
const readTries = 3

func readPolicy(top string) ([]byte, error) {
	dir, err := unix.Open(top, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, unreadable(top, err)
	}
	defer unix.Close(dir)
	for range readTries {
		content, same, err := readPolicyAt(dir, top)
		if err != nil || same {
			return content, err
		}
	}
	return nil, policyError(top, "changed while it was read", "try again when nothing writes it", nil)
}

func readPolicyAt(dir int, top string) (content []byte, same bool, err error) {
	// From the kernel's side every one of these is a refusal to be led astray:
	// a link, a mount trick or ".." ends in an error instead of elsewhere.
	fd, err := unix.Openat2(dir, PolicyFile, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, false, openFailure(top, err)
	}
	f := os.NewFile(uintptr(fd), PolicyFile)
	defer f.Close()
	before, err := status(fd)
	switch {
	case err != nil:
		return nil, false, policyError(top, "cannot be read: "+err.Error(), checkDisk, err)
	case before.Mode&unix.S_IFMT == unix.S_IFDIR:
		return nil, false, policyError(top, "is a directory", "make it a file, or remove it", nil)
	case before.Mode&unix.S_IFMT != unix.S_IFREG:
		return nil, false, policyError(top, "is not a regular file", "make it a file, or remove it", nil)
	case before.Size > MaxPolicy:
		return nil, false, policyError(top, "has more than 1 MiB", "make it shorter", nil)
	}
	content, err = io.ReadAll(io.LimitReader(f, MaxPolicy+1))
	if err != nil {
		return nil, false, policyError(top, "cannot be read: "+cause(err), checkDisk, err)
	}
	if len(content) > MaxPolicy {
		return nil, false, policyError(top, "has more than 1 MiB", "make it shorter", nil)
	}
	after, err := status(fd)
	if err != nil {
		return nil, false, policyError(top, "cannot be read: "+err.Error(), checkDisk, err)
	}
	same = after.Size == int64(len(content)) && before.Size == after.Size && before.Mtim == after.Mtim && before.Ctim == after.Ctim
	return content, same, nil
}

func status(fd int) (s unix.Stat_t, err error) {
	err = unix.Fstat(fd, &s)
	return s, err
}

// openFailure turns what the kernel answered into a sentence. Only a name
// that is not there means that there is no policy.
func openFailure(top string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT):
		// A link that points nowhere does not end here: it is ELOOP.
		return ErrNoPolicy
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EXDEV):
		return policyError(top, "is, or lies behind, a symbolic link, which is not followed", "replace the link by what it points to", err)
	case errors.Is(err, unix.ENOTDIR):
		return policyError(top, "cannot be read: .mojoup is not a directory", "make it a directory, or remove it", err)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return policyError(top, "cannot be read: permission denied", "make it readable for you: chmod u+r", err)
	case errors.Is(err, unix.ENXIO):
		return policyError(top, "is not a regular file", "make it a file, or remove it", err)
	case errors.Is(err, unix.ENOSYS):
		return policyError(top, "cannot be read safely: this kernel has no openat2 (Linux 5.6)", "use a newer kernel", err)
	}
	return policyError(top, fmt.Sprintf("cannot be read: %v", err), "look at it with ls -l", err)
}
