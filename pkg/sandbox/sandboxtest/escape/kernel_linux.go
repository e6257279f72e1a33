package escape

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

var filtered = []string{"EPERM", "ENOSYS", "EACCES"}

// kernelAttempts call what only the kernel's own attack surface explains.
func kernelAttempts() []Attempt {
	return []Attempt{
		{Name: "bpf", Call: "bpf", Tries: "make a BPF map", Want: filtered, Lacking: []string{"EPERM"}, do: bpf},
		{Name: "io-uring", Call: "io_uring_setup", Tries: "make an io_uring, whose calls no filter sees", Want: filtered, Lacking: []string{"EPERM", "ENOSYS"}, do: ioUring},
		{Name: "add-key", Call: "add_key", Tries: "put a key into the user's keyring", Want: filtered, Lacking: []string{"ENOSYS"}, do: addKey},
		{Name: "request-key", Tries: "find a key of the host's user", Want: append([]string{"ENOKEY"}, filtered...), Lacking: []string{NoArena}, do: requestKey},
		{Name: "keyctl", Call: "keyctl", Tries: "name the user's keyring", Want: filtered, Lacking: []string{"ENOSYS"}, do: func(*Arena) error {
			_, err := unix.KeyctlGetKeyringID(unix.KEY_SPEC_USER_KEYRING, true)
			return err
		}},
		{Name: "proc-keys", Tries: "see the host's keys in /proc/keys", Want: []string{"ENOENT", "EACCES", "ENODATA"}, Lacking: []string{"ENOENT"}, do: procKeys},
		{Name: "perf-event", Call: "perf_event_open", Tries: "open a performance counter of itself", Want: filtered, Lacking: []string{"EACCES", "EPERM", "ENOENT", "EOPNOTSUPP", "ENODEV", "ENOSYS"}, do: perfEvent},
		{Name: "userfaultfd", Call: "userfaultfd", Tries: "handle its own page faults", Want: filtered, Lacking: []string{"ENOSYS", "EPERM"}, do: func(*Arena) error {
			const userModeOnly = 1 // UFFD_USER_MODE_ONLY
			fd, err := value(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|userModeOnly)
			return descriptor(int(fd), err)
		}},
		{Name: "memfd-secret", Call: "memfd_secret", Tries: "make memory that the kernel itself cannot see", Want: filtered, Lacking: []string{"ENOSYS"}, do: func(*Arena) error {
			fd, err := value(unix.SYS_MEMFD_SECRET, 0)
			return descriptor(int(fd), err)
		}},
		{Name: "name-to-handle", Call: "name_to_handle_at", Tries: "name a file by handle", Want: filtered, Lacking: []string{"EOPNOTSUPP", "ENOSYS"}, do: func(a *Arena) error {
			_, _, err := unix.NameToHandleAt(unix.AT_FDCWD, a.Repo, 0)
			return err
		}},
		{Name: "open-by-handle", Call: "open_by_handle_at", Tries: "open a file by handle, past all mounts", Want: filtered, Outside: needsRoot, do: func(*Arena) error {
			handle := unix.NewFileHandle(1, make([]byte, 8))
			return descriptor(unix.OpenByHandleAt(unix.AT_FDCWD, handle, unix.O_RDONLY))
		}},
		{Name: "fanotify", Call: "fanotify_init", Tries: "watch files by fanotify", Want: filtered, Lacking: []string{"ENOSYS", "EPERM"}, do: func(*Arena) error {
			return descriptor(unix.FanotifyInit(unix.FAN_CLASS_NOTIF|unix.FAN_REPORT_FID|unix.FAN_CLOEXEC, unix.O_RDONLY))
		}},
		{Name: "executable-reads", Call: "personality", Tries: "make all that it reads executable", Want: filtered, do: func(*Arena) error {
			const readImpliesExec = 0x0400000 // READ_IMPLIES_EXEC
			return call(unix.SYS_PERSONALITY, readImpliesExec)
		}},
		{Name: "memory-policy", Tries: "choose where its memory lies", Want: filtered, Lacking: []string{"ENOSYS"}, do: func(*Arena) error { return call(unix.SYS_SET_MEMPOLICY, 0, 0, 0) }},
		{Name: "grow-pipe", Tries: "take pages for pipes, which are counted per user of the host", Want: filtered, do: func(*Arena) error {
			var ends [2]int
			if err := unix.Pipe2(ends[:], unix.O_CLOEXEC); err != nil {
				return errors.Join(errNoArena, err)
			}
			_, err := unix.FcntlInt(uintptr(ends[0]), unix.F_SETPIPE_SZ, 128<<10)
			return err
		}},
		{Name: "kexec", Call: "kexec_load", Tries: "load another kernel", Want: filtered, Outside: needsRoot, do: func(*Arena) error {
			return reached(call(unix.SYS_KEXEC_LOAD, 0, 1<<20, 0, 0xffff), unix.EINVAL)
		}},
		{Name: "load-module", Call: "init_module", Tries: "load a kernel module", Want: filtered, Outside: needsRoot, do: func(*Arena) error {
			return reached(unix.InitModule([]byte("no module"), ""), unix.ENOEXEC, unix.EINVAL)
		}},
		{Name: "reboot", Call: "reboot", Tries: "call reboot with a wrong password", Want: filtered, Outside: elsewhere, do: func(*Arena) error { return reached(call(unix.SYS_REBOOT, 1, 2, 3), unix.EINVAL) }},
		{Name: "dmesg", Call: "syslog", Tries: "read the kernel's log", Want: filtered, Lacking: []string{"EPERM"}, do: func(*Arena) error {
			const readAll = 3 // SYSLOG_ACTION_READ_ALL
			_, err := unix.Klogctl(readAll, make([]byte, 16))
			return err
		}},
		{Name: "hostname", Call: "sethostname", Tries: "set the host's name", Want: filtered, Outside: elsewhere, do: func(*Arena) error { return unix.Sethostname([]byte("escaped")) }},
		{Name: "swapoff", Call: "swapoff", Tries: "switch swapping off", Want: filtered, Outside: needsRoot, do: func(*Arena) error { return reached(call(unix.SYS_SWAPOFF, text("/nowhere")), unix.ENOENT) }},
		{Name: "core-pattern", Tries: "choose the host's handler of core dumps", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return opens("/proc/sys/kernel/core_pattern", unix.O_WRONLY) }},
		{Name: "ip-forward", Tries: "open a network switch for writing", Want: readOnly, Outside: elsewhere, do: func(*Arena) error { return opens("/proc/sys/net/ipv4/ip_forward", unix.O_WRONLY) }},
		{Name: "sysrq", Tries: "open the emergency key for writing", Want: readOnly, Outside: needsRoot, do: func(*Arena) error { return opens("/proc/sysrq-trigger", unix.O_WRONLY) }},
		{Name: "max-namespaces", Tries: "allow namespaces again", Want: readOnly, Outside: elsewhere, do: func(*Arena) error { return opens("/proc/sys/user/max_user_namespaces", unix.O_WRONLY) }},
		{Name: "tiocsti", Call: "ioctl", Tries: "type into the controlling terminal", Want: filtered, Lacking: []string{"EIO"}, do: func(*Arena) error { return typeInto(unix.TIOCSTI) }},
		{Name: "tiocsti-high-bits", Call: "ioctl", Tries: "the same, with bits that the kernel ignores", Want: filtered, Lacking: []string{"EIO"}, do: func(*Arena) error { return typeInto(unix.TIOCSTI | 1<<32) }},
		{Name: "other-terminal", Tries: "open a terminal of the host", Want: notThere, do: func(a *Arena) error { return opens(a.Terminal, unix.O_RDWR) }},
		{Name: "sysv-shm", Tries: "look at shared memory of the host", Want: []string{"EINVAL", "EIDRM", "EPERM", "EACCES"}, do: func(a *Arena) error {
			var d unix.SysvShmDesc
			_, err := unix.SysvShmCtl(a.ShmID, unix.IPC_STAT, &d)
			return err
		}},
		{Name: "int80", Tries: "call the kernel by its 32-bit door, past a 64-bit filter", Want: []string{"SIGSYS", "ENOSYS", "SIGSEGV"}, Lacking: []string{"SIGSEGV", "ENOSYS", NoArena}, do: int80},
		{Name: "x32", Tries: "call the kernel by x32 numbers", Want: []string{"SIGSYS", "ENOSYS", "EPERM"}, Lacking: []string{"ENOSYS"}, do: x32},
	}
}

func bpf(*Arena) error {
	attr := struct{ kind, key, value, entries uint32 }{2, 4, 4, 1} // BPF_MAP_TYPE_ARRAY
	fd, err := value(unix.SYS_BPF, 0, uintptr(unsafe.Pointer(&attr)), unsafe.Sizeof(attr))
	return descriptor(int(fd), err)
}

func ioUring(*Arena) error {
	var params [120]byte // struct io_uring_params
	fd, err := value(unix.SYS_IO_URING_SETUP, 1, uintptr(unsafe.Pointer(&params[0])))
	return descriptor(int(fd), err)
}

func addKey(*Arena) error {
	id, err := unix.AddKey("user", "mojoup-escape", []byte("x"), unix.KEY_SPEC_PROCESS_KEYRING)
	if err == nil {
		_, _ = unix.KeyctlInt(unix.KEYCTL_INVALIDATE, id, 0, 0, 0)
	}
	return err
}

func requestKey(a *Arena) error {
	if a.Key == "" {
		return errNoArena // a host without keyrings
	}
	_, err := unix.RequestKey("user", a.Key, "", 0)
	return err
}

func procKeys(a *Arena) error {
	content, err := os.ReadFile("/proc/keys")
	if err != nil {
		return err
	}
	// Descriptions may be cut; any key of the user at all is too much.
	for line := range strings.Lines(string(content)) {
		if strings.Contains(line, "user") || strings.Contains(line, "keyring") {
			return nil
		}
	}
	return unix.ENODATA
}

func perfEvent(*Arena) error {
	attr := unix.PerfEventAttr{Type: unix.PERF_TYPE_SOFTWARE, Config: unix.PERF_COUNT_SW_TASK_CLOCK, Bits: unix.PerfBitExcludeKernel | unix.PerfBitExcludeHv}
	attr.Size = uint32(unsafe.Sizeof(attr))
	return descriptor(unix.PerfEventOpen(&attr, 0, -1, -1, unix.PERF_FLAG_FD_CLOEXEC))
}

// typeInto opens a terminal of its own, which becomes the controlling one since
// Try's program leads a session, and puts a letter into its input.
func typeInto(request uintptr) error {
	master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	defer unix.Close(master)
	number, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	slave, err := unix.Open(fmt.Sprintf("/dev/pts/%d", number), unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.Join(errNoArena, err)
	}
	defer unix.Close(slave)
	signal.Ignore(unix.SIGHUP) // closing the master hangs up
	letter := byte('x')
	return call(unix.SYS_IOCTL, uintptr(slave), request, uintptr(unsafe.Pointer(&letter)))
}

// int80 calls on a thread of its own: a filter may kill just the thread.
func int80(*Arena) error {
	answer := make(chan int32, 1)
	go func() {
		runtime.LockOSThread()
		answer <- getpid32()
	}()
	select {
	case pid := <-answer:
		if pid == noDoor {
			return errNoArena
		}
		if pid < 0 {
			return syscall.Errno(-pid)
		}
		return nil
	case <-time.After(10 * time.Second):
		return errKilled
	}
}
