package repo

import (
	"io/fs"
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
