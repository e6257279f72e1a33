package repo

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// openFlags keep a read from following a link, waiting for a pipe or taking a
// terminal.
const openFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_NOCTTY

// identity is device, inode and the number of hard links.
func identity(info fs.FileInfo) (device, inode, links uint64) {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(s.Dev), s.Ino, uint64(s.Nlink)
	}
	return 0, 0, 0
}

// writable reports whether this process' user may make entries in dir. What
// root may with others' files does not count: inside it may not.
func writable(dir string, info fs.FileInfo) bool {
	if s, ok := info.Sys().(*syscall.Stat_t); ok && os.Geteuid() == 0 {
		return rootMay(s)
	}
	return unix.Access(dir, unix.W_OK|unix.X_OK) == nil
}

// rootMay is what a directory's mode gives to user and group 0.
func rootMay(s *syscall.Stat_t) bool {
	const enter = 0o3
	switch {
	case s.Uid == 0:
		return s.Mode>>6&enter == enter
	case s.Gid == 0:
		return s.Mode>>3&enter == enter
	}
	return s.Mode&enter == enter
}

// closed reports whether this process' user can neither make an entry in dir
// nor get the right to by changing its mode. Where that is not certain, it is
// not closed.
func closed(dir string) bool {
	err := unix.Access(dir, unix.W_OK|unix.X_OK)
	if err == unix.EROFS {
		return true
	}
	info, statErr := os.Lstat(dir)
	if statErr != nil {
		return false
	}
	s, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(s.Uid) == os.Geteuid() {
		return false
	}
	if os.Geteuid() != 0 {
		return err != nil
	}
	// Whom an access control list names is not read; its mask shows in the
	// group's bits.
	_, aclErr := unix.Lgetxattr(dir, "system.posix_acl_access", nil)
	listed := aclErr != unix.ENODATA && aclErr != unix.ENOTSUP
	return !rootMay(s) && !(listed && s.Mode&0o020 != 0)
}

// held reports whether the directory at path is a placeholder: empty, with
// the mark of one. A file system that keeps no modes has no mark, and then it
// is one while a living session has its shared lock on it. A path that has just
// gone is an error.
func held(path string, info fs.FileInfo) (bool, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if errors.Is(err, fs.ErrPermission) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close() // and with it the lock, if it was to be had
	if _, err := f.ReadDir(1); err != io.EOF {
		return false, err // not empty, or removed since
	}
	if info.Mode()&sandbox.PlaceholderMark != 0 {
		return true, nil
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK, nil
}

// changed is when a file's content or attributes last changed, which nobody
// can set.
func changed(info fs.FileInfo) int64 {
	if s, ok := info.Sys().(*syscall.Stat_t); ok {
		return s.Ctim.Nano()
	}
	return 0
}

// bornAfter reports whether path was made after t, as far as the file system
// knows: where it does not, everything is.
func bornAfter(path string, t time.Time) bool {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_BTIME, &s)
	if err != nil || s.Mask&unix.STATX_BTIME == 0 {
		return true
	}
	return time.Unix(s.Btime.Sec, int64(s.Btime.Nsec)).After(t.Add(-tick))
}
