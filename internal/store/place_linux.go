package store

import (
	"fmt"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// fileSystem returns the magic number of the file system that holds path.
func fileSystem(path string) (int64, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return 0, fmt.Errorf("statfs: %w", err)
	}
	// Some numbers have the high bit set, and the field is 32 bits wide and
	// signed on some machines.
	return int64(uint32(st.Type)), nil
}

// diskFull reports whether there is no room left for what SQLite makes beside
// the file: 32 KiB for the index of the log, and its log.
func diskFull(dir string) bool {
	var st unix.Statfs_t
	return unix.Statfs(dir, &st) == nil && st.Bavail*uint64(st.Bsize) < 64<<10
}

// networkFileSystem names a file system whose locks and shared memory do not
// reach the other machines that may have it open, which a write-ahead log
// needs. 9p is also how WSL shows the disks of Windows. FUSE is not among
// them: most of it is local.
func networkFileSystem(magic int64) (name string, remote bool) {
	switch magic {
	case unix.NFS_SUPER_MAGIC:
		return "NFS", true
	case unix.SMB_SUPER_MAGIC, unix.CIFS_SUPER_MAGIC, unix.SMB2_SUPER_MAGIC:
		return "SMB", true
	case unix.V9FS_MAGIC:
		return "9p", true
	case unix.AFS_SUPER_MAGIC, unix.AFS_FS_MAGIC:
		return "AFS", true
	case unix.CEPH_SUPER_MAGIC:
		return "Ceph", true
	case unix.CODA_SUPER_MAGIC:
		return "Coda", true
	case unix.NCP_SUPER_MAGIC:
		return "NCP", true
	case unix.OCFS2_SUPER_MAGIC:
		return "OCFS2", true
	case 0x0bd00bd0: // LUSTRE_SUPER_MAGIC, not in the kernel's own headers
		return "Lustre", true
	case 0x47504653: // GPFS, as coreutils' stat knows it
		return "GPFS", true
	}
	return "", false
}

// onlyOurs refuses what somebody else owns or may write. A node that is root
// trusts root alone.
func onlyOurs(path string, info fs.FileInfo) error {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return &Error{Kind: Unusable, Path: path, Reason: "the owner is not known"}
	}
	if uid := os.Geteuid(); int(st.Uid) != uid {
		return &Error{Kind: Denied, Path: path, Reason: fmt.Sprintf("it belongs to uid %d and not to uid %d", st.Uid, uid)}
	}
	if info.IsDir() && info.Mode().Perm()&0o022 != 0 {
		return &Error{Kind: Unusable, Path: path, Reason: "others may write the state directory"}
	}
	return nil
}
