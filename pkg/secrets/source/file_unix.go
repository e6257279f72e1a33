//go:build unix

package source

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// readFile reads a key from a file that only this user can read. It is opened
// first and looked at then, so that what was looked at is what is read.
func readFile(path string) (v secrets.Value, err error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK|syscall.O_NOCTTY|syscall.O_CLOEXEC, 0)
	if err != nil {
		e := errorf("check that it exists and that you may read it", "the file %s cannot be read: %s", path, plain(err))
		e.gone = errors.Is(err, fs.ErrNotExist)
		return v, e
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return v, errorf("", "the file %s cannot be read: %s", path, plain(err))
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return v, errorf("", "%s is not a regular file", path)
	case !ok || int(st.Uid) != os.Geteuid() && st.Uid != 0:
		return v, exposed("chown it to yourself", "the file %s belongs to somebody else", path)
	case info.Mode().Perm()&0o077 != 0:
		return v, exposed("chmod 600 "+path, "others may read the file %s (mode %04o)", path, info.Mode().Perm())
	case info.Size() > secrets.MaxLength+2:
		return v, errorf("", "the file %s is longer than a key can be", path)
	}
	b, err := io.ReadAll(io.LimitReader(f, secrets.MaxLength+2))
	if err != nil {
		return v, errorf("", "the file %s cannot be read: %s", path, plain(err))
	}
	return Trimmed(b), nil
}
