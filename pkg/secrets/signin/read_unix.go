//go:build unix

package signin

import (
	"errors"
	"io"
	"os"
	"syscall"
)

// readDocument reads a file of this user's. It is opened first and looked at
// then, so that what was looked at is what is read.
func readDocument(path string) (content []byte, othersRead bool, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, false, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, false, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, false, errors.New("it is not a regular file")
	case !ok || int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return nil, false, errors.New("it belongs to somebody else")
	case info.Size() > maxDocument:
		return nil, false, errors.New("it is longer than a sign-in can be")
	}
	content, err = io.ReadAll(io.LimitReader(f, maxDocument))
	return content, info.Mode().Perm()&0o044 != 0, err
}
