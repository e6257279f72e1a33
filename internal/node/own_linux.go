package node

import (
	"os"
	"syscall"
)

// ownDirectory reports whether path is a directory that belongs to uid.
func ownDirectory(path string, uid int) bool {
	info, err := os.Stat(path)
	if err != nil || !info.IsDir() {
		return false
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == uid
}
