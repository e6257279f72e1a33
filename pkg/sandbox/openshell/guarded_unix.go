//go:build unix

package openshell

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// guarded refuses a file that others could have written, or a secret that
// they can read.
func guarded(name string, info fs.FileInfo, uid int, s secrecy) error {
	if s == secret && info.Mode().Perm()&0o077 != 0 {
		return &Error{Code: BadCredentials, Sentence: fmt.Sprintf("%s can be read by others (mode %04o)", plain(name), info.Mode().Perm()),
			Advice: "chmod 600 " + plain(name)}
	}
	if err := owned(name, info, uid); err != nil {
		return err
	}
	dir, err := os.Stat(filepath.Dir(name))
	if err != nil {
		return &Error{Code: BadFiles, Sentence: plain(filepath.Dir(name)) + " cannot be looked at", Err: err}
	}
	return owned(filepath.Dir(name), dir, uid)
}

func owned(name string, info fs.FileInfo, uid int) error {
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != uid && st.Uid != 0 {
		return &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s belongs to user %d, and decides for user %d where credentials are sent", plain(name), st.Uid, uid),
			Advice: fmt.Sprintf("sudo chown %d %s", uid, plain(name))}
	}
	if info.Mode().Perm()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
		return &Error{Code: BadFiles, Sentence: fmt.Sprintf("%s can be written by anybody (mode %04o)", plain(name), info.Mode().Perm()),
			Advice: "chmod o-w " + plain(name)}
	}
	return nil
}
