package repo

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
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

// writable reports whether this process may make entries in dir.
func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// held reports whether path is a placeholder that a living session uses: a
// small file or an empty directory with somebody's shared lock on it, which is
// how engines keep a placeholder while anybody needs it.
func held(path string, info fs.FileInfo) bool {
	if info.Mode().IsRegular() && info.Size() > 1 {
		return false
	}
	f, err := os.OpenFile(path, os.O_RDONLY|openFlags, 0)
	if err != nil {
		return false
	}
	defer f.Close() // and with it the lock, if it was to be had
	if info.IsDir() {
		if _, err := f.ReadDir(1); err != io.EOF {
			return false
		}
	}
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == unix.EWOULDBLOCK
}
