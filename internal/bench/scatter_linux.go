package bench

import "golang.org/x/sys/unix"

// topDirectory is FS_TOPDIR_FL: what is made in such a directory has nothing to
// do with each other, and ext4 puts it in different parts of the disk.
const topDirectory = 0x20000

// scatter asks for that. Other file systems need no asking.
func scatter(dir string) {
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if flags, err := unix.IoctlGetInt(fd, unix.FS_IOC_GETFLAGS); err == nil {
		_ = unix.IoctlSetPointerInt(fd, unix.FS_IOC_SETFLAGS, flags|topDirectory)
	}
}
