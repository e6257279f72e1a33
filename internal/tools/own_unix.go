//go:build unix

package tools

import (
	"io/fs"
	"os"
	"syscall"
)

// own reports whether only this user, or root, may write what info is of. A
// group of the user's own number has nobody else in it.
func own(info fs.FileInfo) bool {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || st.Uid != 0 && int(st.Uid) != os.Geteuid() {
		return false
	}
	mode := info.Mode().Perm()
	return mode&0o002 == 0 && (mode&0o020 == 0 || st.Gid == st.Uid)
}
