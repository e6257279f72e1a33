package inside

import (
	"runtime"
	"unsafe"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// denied is what a sandbox of a real gateway refuses beyond what Docker does:
// with the capabilities that a container's first process needs, Docker's own
// filter lets these through.
var denied = []uint32{
	unix.SYS_MOUNT, unix.SYS_FSOPEN, unix.SYS_FSCONFIG, unix.SYS_FSMOUNT, unix.SYS_FSPICK, unix.SYS_MOVE_MOUNT,
	unix.SYS_OPEN_TREE, unix.SYS_PIVOT_ROOT, unix.SYS_UMOUNT2, unix.SYS_MOUNT_SETATTR, unix.SYS_SETNS, unix.SYS_UNSHARE, unix.SYS_CHROOT,
	unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD, unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE,
	unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV,
	unix.SYS_PIDFD_OPEN, unix.SYS_PIDFD_GETFD, unix.SYS_PIDFD_SEND_SIGNAL, unix.SYS_MEMFD_CREATE,
	unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY, unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_SECCOMP,
}

// Families of sockets that are allowed: no packet, no netlink, no vsock.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6}

const newNamespaces = unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWIPC |
	unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP

// filter installs it on every thread.
func filter() error {
	const (
		number = 0  // in the data that a filter sees
		arg0   = 16 // low half, on the machines that we build for
		arg1   = 24
		allow  = 0x7fff0000
		refuse = 0x00050000
	)
	deny := func(errno uint32) bpf.Instruction { return bpf.RetConstant{Val: refuse | errno} }
	p := []bpf.Instruction{bpf.LoadAbsolute{Off: number, Size: 4}}
	for _, call := range denied {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: call, SkipTrue: 1}, deny(uint32(unix.EPERM)))
	}
	// clone3 hides its flags behind a pointer; callers fall back on clone.
	p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE3, SkipTrue: 1}, deny(uint32(unix.ENOSYS)))
	p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_CLONE, SkipTrue: 4}, bpf.LoadAbsolute{Off: arg0, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpBitsNotSet, Val: newNamespaces, SkipTrue: 1}, deny(uint32(unix.EPERM)), bpf.RetConstant{Val: allow})
	p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.SYS_IOCTL, SkipTrue: 4}, bpf.LoadAbsolute{Off: arg1, Size: 4},
		bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: unix.TIOCSTI, SkipTrue: 1}, deny(uint32(unix.EPERM)), bpf.RetConstant{Val: allow})
	p = append(p, bpf.JumpIf{Cond: bpf.JumpEqual, Val: unix.SYS_SOCKET, SkipTrue: 1}, bpf.RetConstant{Val: allow}, bpf.LoadAbsolute{Off: arg0, Size: 4})
	for _, family := range families {
		p = append(p, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: family, SkipTrue: 1}, bpf.RetConstant{Val: allow})
	}
	p = append(p, deny(uint32(unix.EPERM)))
	raw, err := bpf.Assemble(p)
	if err != nil {
		return err
	}
	program := unix.SockFprog{Len: uint16(len(raw)), Filter: (*unix.SockFilter)(unsafe.Pointer(&raw[0]))}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program)))
	runtime.KeepAlive(raw)
	if errno != 0 {
		return errno
	}
	return nil
}
