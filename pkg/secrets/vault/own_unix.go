//go:build unix

package vault

import (
	"io"
	"os"
	"syscall"
)

// readOwn reads a file that only this user can read and write.
func readOwn(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return nil, &Error{path + " is not a regular file", ""}
	case !ok || int(st.Uid) != os.Geteuid():
		return nil, &Error{path + " belongs to somebody else", ""}
	case info.Mode().Perm()&0o077 != 0:
		return nil, &Error{"others may read " + path, "chmod 600 " + path + ", and give the services new keys"}
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}
