package escape

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

var (
	notThere = []string{"ENOENT", "EACCES", "ENOTDIR"}
	readOnly = []string{"EROFS", "EACCES", "ENOENT"}
	// unchanged is for files of the host that must be there. Whoever does not
	// own them is refused in any case; the rows are for sessions of user 0.
	unchanged = []string{"EROFS", "EPERM", "EACCES"}
)

func fileAttempts() []Attempt {
	return []Attempt{
		{Name: "write-etc", Tries: "make a file in /etc", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return creates("/etc/mojoup-escape") }},
		{Name: "write-usr", Tries: "make a file in /usr/bin", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return creates("/usr/bin/mojoup-escape") }},
		{Name: "write-root", Tries: "make a file in /", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return creates("/mojoup-escape") }},
		{Name: "write-sys", Tries: "open a switch below /sys for writing", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return opens("/sys/power/state", unix.O_WRONLY) }},
		{Name: "read-root-home", Tries: "list /root", Want: notThere, Outside: needsRoot, do: func(*Arena) error { return opens("/root", unix.O_RDONLY|unix.O_DIRECTORY) }},
		{Name: "read-shadow", Tries: "read /etc/shadow", Want: notThere, Outside: needsRoot, do: func(*Arena) error { return reads("/etc/shadow") }},
		{Name: "read-outside", Tries: "read a file outside all mounts", Want: notThere, do: func(a *Arena) error { return reads(a.Secret) }},
		{Name: "write-outside", Tries: "write a file outside all mounts", Want: notThere, do: func(a *Arena) error { return opens(a.Secret, unix.O_WRONLY) }},
		{Name: "create-outside", Tries: "make a file outside all mounts", Want: readOnly, do: func(a *Arena) error { return creates(filepath.Join(filepath.Dir(a.Secret), "new")) }},
		{Name: "read-host-tmp", Tries: "read a file of the host's /tmp", Want: notThere, do: func(a *Arena) error { return reads(a.TmpSecret) }},
		{Name: "read-host-shm", Tries: "read a file of the host's /dev/shm", Want: notThere, do: func(a *Arena) error { return reads(a.ShmSecret) }},
		{Name: "symlink-out", Tries: "read through a symbolic link that leads out", Want: notThere, do: symlinkOut},
		{Name: "dotdot-out", Tries: "climb out of the repository by its parents", Want: notThere, do: dotdotOut},
		{Name: "inherited-descriptor", Tries: "read a descriptor that the node left open", Want: []string{"EBADF"}, do: inherited},
		{Name: "link-in-passwd", Tries: "hard link /etc/passwd into the repository", Want: []string{"EXDEV", "EPERM", "EROFS"}, Outside: "refused by fs.protected_hardlinks, or another file system", do: func(a *Arena) error { return links("/etc/passwd", filepath.Join(a.Repo, "passwd")) }},
		{Name: "link-in-outside", Tries: "hard link a file from outside into the repository", Want: []string{"ENOENT", "EXDEV", "EACCES"}, do: func(a *Arena) error { return links(a.Secret, filepath.Join(a.Repo, "linked")) }},
		{Name: "chown-root", Tries: "give a file to root", Want: []string{"EPERM", "EINVAL"}, Outside: needsRoot, do: func(a *Arena) error {
			return ofOwn(a, func(path string) error { return unix.Lchown(path, 0, 0) })
		}},
		{Name: "chmod-setuid", Tries: "set the setuid bit", Want: []string{"EPERM"}, do: func(a *Arena) error {
			return ofOwn(a, func(path string) error { return unix.Chmod(path, 0o4755) })
		}},
		{Name: "chmod-setgid", Tries: "set the setgid bit", Want: []string{"EPERM"}, do: func(a *Arena) error {
			return ofOwn(a, func(path string) error { return unix.Chmod(path, 0o2755) })
		}},
		{Name: "fchmodat2-setuid", Call: "fchmodat2", Tries: "set the setuid bit by the newest of its calls", Want: []string{"EPERM", "ENOSYS"}, Lacking: []string{"ENOSYS"}, do: func(a *Arena) error {
			const fchmodat2 = 452 // the same on all architectures (Linux 6.6)
			return ofOwn(a, func(path string) error { return call(fchmodat2, here, text(path), 0o4755, 0) })
		}},
		{Name: "create-setuid", Call: "openat", Tries: "make a file that has the setuid bit from birth", Want: []string{"EPERM"}, do: func(a *Arena) error {
			path := filepath.Join(a.Repo, "born")
			defer os.Remove(path)
			return bornSetuid(path, func() error {
				return descriptor(unix.Open(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o4755))
			})
		}},
		{Name: "openat2-setuid", Tries: "the same by openat2, whose mode a filter cannot see", Want: []string{"EPERM", "ENOSYS"}, Lacking: []string{"ENOSYS"}, do: func(a *Arena) error {
			path := filepath.Join(a.Repo, "born")
			defer os.Remove(path)
			return bornSetuid(path, func() error {
				return descriptor(unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL, Mode: 0o4755}))
			})
		}},
		{Name: "file-capability", Tries: "give a program a capability", Want: []string{"EPERM", "EOPNOTSUPP"}, Outside: elsewhere, do: func(a *Arena) error {
			capability := []byte{1, 0, 0, 2, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0} // version 2, CAP_SYS_ADMIN permitted
			return ofOwn(a, func(path string) error { return unix.Setxattr(path, "security.capability", capability, 0) })
		}},
		{Name: "mknod-block", Tries: "make a block device", Want: []string{"EPERM", "EACCES"}, Outside: needsRoot, do: func(a *Arena) error { return mknod(a, unix.S_IFBLK, 254, 0) }},
		{Name: "mknod-char", Tries: "make the character device of /dev/mem", Want: []string{"EPERM", "EACCES"}, Outside: needsRoot, do: func(a *Arena) error { return mknod(a, unix.S_IFCHR, 1, 1) }},
		{Name: "dev-mem", Tries: "open /dev/mem", Want: notThere, Outside: needsRoot, do: func(*Arena) error { return opens("/dev/mem", unix.O_RDONLY) }},
		{Name: "dev-kmsg", Tries: "open /dev/kmsg", Want: notThere, Outside: needsRoot, do: func(*Arena) error { return opens("/dev/kmsg", unix.O_RDONLY) }},
		{Name: "dev-fuse", Tries: "open /dev/fuse", Want: notThere, Lacking: []string{"ENOENT", "EACCES", "ENODEV", "ENXIO"}, do: func(*Arena) error { return opens("/dev/fuse", unix.O_RDWR) }},
		{Name: "dev-kvm", Tries: "open /dev/kvm", Want: notThere, Lacking: []string{"ENOENT", "EACCES", "ENODEV", "ENXIO"}, do: func(*Arena) error { return opens("/dev/kvm", unix.O_RDWR) }},
		{Name: "device-mode", Tries: "set the mode of the host's devices (to what it is)", Want: unchanged, Outside: needsRoot, do: eachDevice(func(path string, is unix.Stat_t) error {
			return unix.Chmod(path, is.Mode&0o777)
		})},
		{Name: "device-owner", Tries: "give the host's devices away (to whom they belong)", Want: unchanged, Outside: needsRoot, do: eachDevice(func(path string, is unix.Stat_t) error {
			return unix.Chown(path, int(is.Uid), int(is.Gid))
		})},
		{Name: "device-times", Tries: "set the times of the host's devices", Want: unchanged, Outside: needsRoot, do: eachDevice(func(path string, is unix.Stat_t) error {
			return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{is.Atim, is.Mtim}, 0)
		})},
		{Name: "device-acl", Tries: "give the host's devices an access list", Want: append([]string{"ENOENT", "ENODATA", "EOPNOTSUPP"}, unchanged...), Outside: needsRoot, do: eachDevice(func(path string, _ unix.Stat_t) error {
			return unix.Removexattr(path, "system.posix_acl_access")
		})},
		{Name: "proc-mode", Tries: "set the mode of a file of /proc, which all process namespaces share (to what it is)", Want: unchanged, Outside: needsRoot, do: func(*Arena) error {
			var is unix.Stat_t
			if err := unix.Stat("/proc/version", &is); err != nil {
				return errors.Join(errNoArena, err)
			}
			return unix.Chmod("/proc/version", is.Mode&0o777)
		}},
	}
}

// eachDevice does something to each device of the host that a sandbox has. The
// first that obeys counts.
func eachDevice(do func(path string, is unix.Stat_t) error) func(*Arena) error {
	return func(*Arena) (err error) {
		for _, path := range []string{"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty"} {
			var is unix.Stat_t
			if err := unix.Stat(path, &is); err != nil {
				return errors.Join(errNoArena, err)
			}
			if err = do(path, is); err == nil {
				return nil
			}
		}
		return err
	}
}

func symlinkOut(a *Arena) error {
	link := filepath.Join(a.Repo, "out")
	if err := os.Symlink(a.Secret, link); err != nil {
		return errors.Join(errNoArena, err)
	}
	defer os.Remove(link)
	return reads(link)
}

func dotdotOut(a *Arena) error {
	dir, err := unix.Open(a.Repo, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	defer unix.Close(dir)
	up, err := filepath.Rel(a.Repo, a.Secret)
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	return descriptor(unix.Openat(dir, up, unix.O_RDONLY|unix.O_CLOEXEC, 0))
}

func inherited(a *Arena) error {
	_, err := unix.Pread(a.Inherited, make([]byte, 1), 0)
	return err
}

func links(from, to string) error {
	if err := unix.Link(from, to); err != nil {
		return err
	}
	return os.Remove(to)
}

// ofOwn does something to a new file of the repository.
func ofOwn(a *Arena, do func(path string) error) error {
	f, err := os.CreateTemp(a.Repo, "own-")
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	defer os.Remove(f.Name())
	_ = f.Close()
	return do(f.Name())
}

// bornSetuid wants that the bit is really there: some calls drop it silently.
func bornSetuid(path string, create func() error) error {
	if err := create(); err != nil {
		return err
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if info.Mode()&os.ModeSetuid == 0 {
		return unix.EPERM
	}
	return nil
}

func mknod(a *Arena, kind uint32, major, minor uint32) error {
	path := filepath.Join(a.Repo, "device")
	if err := unix.Mknod(path, kind|0o600, int(unix.Mkdev(major, minor))); err != nil {
		return err
	}
	return os.Remove(path)
}
