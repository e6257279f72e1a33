package escape

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

var (
	noProcess = []string{"ESRCH", "EPERM", "ENOENT"}
	notAsked  = []string{"EPERM", "EACCES"}
)

// processAttempts reach for processes of the host, and for the first process
// inside, which holds everything that the others have lost.
func processAttempts() []Attempt {
	return []Attempt{
		{Name: "signal-host", Tries: "signal a process of the host", Want: noProcess, do: func(a *Arena) error { return unix.Kill(a.Victim, 0) }},
		{Name: "ptrace-host", Tries: "trace a process of the host", Want: noProcess, Lacking: []string{"EPERM"}, do: func(a *Arena) error { return seize(a.Victim) }},
		{Name: "environ-host", Tries: "read the environment of a process of the host", Want: notThere, do: func(a *Arena) error { return reads(proc(a.Victim, "environ")) }},
		{Name: "memory-host", Tries: "open the memory of a process of the host", Want: notThere, Lacking: []string{"EACCES", "EPERM"}, do: func(a *Arena) error { return opens(proc(a.Victim, "mem"), unix.O_RDWR) }},
		{Name: "root-host", Tries: "reach the host's files by a process of the host", Want: notThere, do: func(a *Arena) error {
			return opens(proc(a.Victim, "root/proc"), unix.O_RDONLY|unix.O_DIRECTORY)
		}},
		{Name: "readv-host", Tries: "read memory by process_vm_readv", Want: noProcess, Lacking: []string{"EPERM", "ENOSYS"}, do: func(a *Arena) error { return readv(a.Victim) }},
		{Name: "pidfd-host", Tries: "take a descriptor of a process of the host", Want: noProcess, Lacking: []string{"EPERM", "ENOSYS"}, do: func(a *Arena) error { return getfd(a.Victim) }},
		{Name: "priority-host", Tries: "read the priority of a process of the host", Want: noProcess, do: func(a *Arena) error {
			_, err := unix.Getpriority(unix.PRIO_PROCESS, a.Victim)
			return err
		}},
		{Name: "limits-host", Tries: "read the limits of a process of the host", Want: noProcess, do: func(a *Arena) error {
			var now unix.Rlimit
			return unix.Prlimit(a.Victim, unix.RLIMIT_CORE, nil, &now)
		}},
		// If one of them ended the sandbox there would be no answer at all.
		{Name: "pidfd-signal-1", Tries: "send every signal to the first process by pidfd", Want: notAsked, Outside: needsPid1, Known: "commands of one sandbox may signal each other, and a filter cannot see whose a pidfd is; the first process blocks all signals, and the kernel drops KILL and STOP from inside", do: signalsToFirst},
		{Name: "program-1", Tries: "read the first process' program", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return reads("/proc/1/exe") }},
		{Name: "signal-1", Call: "kill", Tries: "signal the first process", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return unix.Kill(1, 0) }},
		{Name: "ptrace-1", Call: "ptrace", Tries: "trace the first process", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return seize(1) }},
		{Name: "memory-1", Tries: "open the first process' memory", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return opens("/proc/1/mem", unix.O_RDONLY) }},
		{Name: "environ-1", Tries: "read the first process' environment", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return reads("/proc/1/environ") }},
		{Name: "maps-1", Tries: "read the first process' address map", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return reads("/proc/1/maps") }},
		{Name: "root-1", Tries: "reach files by the first process' root", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return opens("/proc/1/root/", unix.O_RDONLY|unix.O_DIRECTORY) }},
		{Name: "fd-1", Tries: "list the first process' descriptors", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return opens("/proc/1/fd", unix.O_RDONLY|unix.O_DIRECTORY) }},
		{Name: "open-fd-1", Tries: "open what the first process' descriptors lead to", Want: append([]string{"ENOENT"}, notAsked...), Outside: elsewhere, do: openDescriptors},
		{Name: "readv-1", Tries: "read the first process by process_vm_readv", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return readv(1) }},
		{Name: "pidfd-1", Call: "pidfd_getfd", Tries: "take a descriptor of the first process", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return getfd(1) }},
		{Name: "kcmp-1", Call: "kcmp", Tries: "compare with the first process by kcmp", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return call(unix.SYS_KCMP, 1, uintptr(os.Getpid()), 1) }},
		{Name: "setns-1", Tries: "enter the first process' namespaces", Want: notAsked, Outside: elsewhere, do: setns},
		{Name: "limits-1", Call: "prlimit64", Tries: "set the first process' limits (to what they are)", Want: notAsked, Outside: elsewhere, do: limits},
		{Name: "affinity-1", Call: "sched_setaffinity", Tries: "choose the first process' processors (those that it has)", Want: notAsked, Outside: elsewhere, do: func(*Arena) error {
			var now unix.CPUSet
			if err := unix.SchedGetaffinity(1, &now); err != nil {
				return errors.Join(errNoArena, err)
			}
			return unix.SchedSetaffinity(1, &now)
		}},
		{Name: "scheduler-1", Call: "sched_setscheduler", Tries: "choose how the first process is scheduled (in the usual way)", Want: notAsked, Outside: elsewhere, do: func(*Arena) error {
			var priority int32
			return call(unix.SYS_SCHED_SETSCHEDULER, 1, 0, uintptr(unsafe.Pointer(&priority)))
		}},
		{Name: "priority-1", Call: "setpriority", Tries: "set the first process' priority (to what it is)", Want: notAsked, Outside: elsewhere, do: priority(unix.PRIO_PROCESS)},
		{Name: "priority-group-1", Call: "setpriority", Tries: "the same by its process group", Want: notAsked, Outside: elsewhere, do: priority(unix.PRIO_PGRP)},
		{Name: "fork-bomb", Tries: "start processes without end", Want: []string{"EAGAIN", NoArena}, Outside: "nobody should run it on a host", do: forkBomb},
	}
}

func proc(pid int, name string) string { return fmt.Sprintf("/proc/%d/%s", pid, name) }

// seize traces without stopping, and lets go by ending.
func seize(pid int) error {
	runtime.LockOSThread()
	return call(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0)
}

func signalsToFirst(*Arena) error {
	fd, err := unix.PidfdOpen(1, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for sig := syscall.Signal(1); sig <= 64; sig++ {
		if err := unix.PidfdSendSignal(fd, sig, nil, 0); err != nil {
			return err
		}
	}
	return nil
}

// readv asks for one byte of an address that is not mapped: EFAULT comes only
// after leave has been given.
func readv(pid int) error {
	var b byte
	local := unix.Iovec{Base: &b, Len: 1}
	remote := unix.RemoteIovec{Base: 8, Len: 1}
	_, err := unix.ProcessVMReadv(pid, []unix.Iovec{local}, []unix.RemoteIovec{remote}, 0)
	return reached(err, unix.EFAULT)
}

func getfd(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return descriptor(unix.PidfdGetfd(fd, 0, 0))
}

func setns(*Arena) error {
	fd, err := unix.Open("/proc/1/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	runtime.LockOSThread()
	return unix.Setns(fd, 0)
}

func openDescriptors(*Arena) error {
	var err error
	for fd := range 64 {
		path := proc(1, fmt.Sprintf("fd/%d", fd))
		if err = opens(path, unix.O_RDONLY); err == nil {
			return nil
		}
		if _, e := os.Readlink(path); e == nil {
			return nil
		}
	}
	return err
}

func limits(*Arena) error {
	var now unix.Rlimit
	if err := unix.Prlimit(1, unix.RLIMIT_CORE, nil, &now); err != nil {
		return err
	}
	return unix.Prlimit(1, unix.RLIMIT_CORE, &now, nil)
}

func priority(which int) func(*Arena) error {
	return func(*Arena) error {
		now, err := unix.Getpriority(which, 1)
		if err != nil {
			return errors.Join(errNoArena, err)
		}
		return unix.Setpriority(which, 1, 20-now) // the raw call returns it like that
	}
}

// forkBomb starts sleepers until it is refused or has passed the limit.
func forkBomb(a *Arena) error {
	if a.Processes == 0 {
		return errNoArena
	}
	var pids []int
	defer func() {
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			_, _ = syscall.Wait4(pid, nil, 0, nil)
		}
	}()
	for range a.Processes + 16 {
		pid, err := syscall.ForkExec("/usr/bin/sleep", []string{"sleep", "60"}, &syscall.ProcAttr{})
		if err != nil {
			return err
		}
		pids = append(pids, pid)
	}
	return nil
}

// privilegeAttempts try to become more than the session is.
func privilegeAttempts() []Attempt {
	return []Attempt{
		{Name: "setuid-0", Tries: "become root by setuid", Want: []string{"EPERM", "EINVAL"}, Outside: elsewhere, do: func(*Arena) error { return call(unix.SYS_SETUID, 0) }},
		{Name: "setgroups", Tries: "choose supplementary groups", Want: []string{"EPERM"}, Outside: needsRoot, do: func(*Arena) error { return call(unix.SYS_SETGROUPS, 0, 0) }},
		{Name: "setuid-program", Tries: "become root by a setuid program", Want: []string{"EPERM", "EACCES", "ENOENT"}, Lacking: []string{NoArena}, do: setuidProgram},
		{Name: "capabilities", Tries: "raise a capability", Want: []string{"EPERM"}, Outside: elsewhere, do: raise},
		{Name: "new-user-namespace", Call: "unshare", Tries: "make a user namespace of its own", Want: []string{"EPERM", "ENOSPC"}, Lacking: []string{"EPERM", "ENOSPC", "EACCES"}, do: newUserNamespace},
		{Name: "clone3", Tries: "call clone3, whose flags a filter cannot see", Want: []string{"ENOSYS", "EPERM"}, Lacking: []string{"ENOSYS"}, do: func(*Arena) error { return reached(call(unix.SYS_CLONE3, 0, 0), unix.EINVAL, unix.EFAULT) }},
		{Name: "unshare-mount", Call: "unshare", Tries: "make a mount namespace", Want: notAsked, Outside: elsewhere, do: unshare(unix.CLONE_NEWNS)},
		{Name: "unshare-net", Call: "unshare", Tries: "make a network namespace", Want: notAsked, Outside: elsewhere, do: unshare(unix.CLONE_NEWNET)},
		{Name: "unshare-time", Call: "unshare", Tries: "make a time namespace", Want: notAsked, Outside: elsewhere, do: unshare(unix.CLONE_NEWTIME)},
		{Name: "mount-tmpfs", Call: "mount", Tries: "mount over /tmp", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return unix.Mount("x", "/tmp", "tmpfs", 0, "") }},
		{Name: "remount-config", Call: "mount", Tries: "remount a protected path writable", Want: notAsked, Outside: elsewhere, Lacking: []string{"EPERM"}, do: func(a *Arena) error {
			return unix.Mount("", config(a), "", unix.MS_REMOUNT|unix.MS_BIND, "")
		}},
		{Name: "umount-config", Call: "umount2", Tries: "unmount the protection of a path", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error { return unix.Unmount(config(a), unix.MNT_DETACH) }},
		{Name: "mount-setattr", Call: "mount_setattr", Tries: "make a protected path writable by mount_setattr", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error {
			return unix.MountSetattr(unix.AT_FDCWD, config(a), 0, &unix.MountAttr{Attr_clr: unix.MOUNT_ATTR_RDONLY})
		}},
		{Name: "open-tree", Call: "open_tree", Tries: "clone a mount without its covers", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error {
			return descriptor(unix.OpenTree(unix.AT_FDCWD, a.Repo, unix.OPEN_TREE_CLONE))
		}},
		{Name: "move-mount", Call: "move_mount", Tries: "move a mount", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error {
			return unix.MoveMount(unix.AT_FDCWD, a.Repo, unix.AT_FDCWD, "/tmp", 0)
		}},
		{Name: "fsopen", Call: "fsopen", Tries: "make a file system by fsopen", Want: notAsked, Outside: elsewhere, do: func(*Arena) error { return descriptor(unix.Fsopen("tmpfs", unix.FSOPEN_CLOEXEC)) }},
		{Name: "chroot", Call: "chroot", Tries: "change the root", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error { return unix.Chroot(a.Repo) }},
		{Name: "pivot-root", Call: "pivot_root", Tries: "change the root by pivot_root", Want: notAsked, Outside: elsewhere, do: func(a *Arena) error { return unix.PivotRoot(a.Repo, a.Repo) }},
		{Name: "uid-map", Tries: "write the user namespace's map", Want: []string{"EPERM", "EACCES", "EROFS"}, Outside: needsCaps, do: func(*Arena) error {
			return os.WriteFile("/proc/self/uid_map", []byte("0 0 1"), 0)
		}},
		{Name: "oom-score", Tries: "be spared by the killer of processes", Want: []string{"EPERM", "EACCES", "EROFS"}, Outside: needsRoot, do: func(*Arena) error {
			return os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0)
		}},
		{Name: "core-limit", Tries: "have the host's handler of core dumps run, by a limit of 0", Want: []string{"EPERM"}, do: coreLimit},
		{Name: "raise-limit", Tries: "raise a hard limit", Want: []string{"EPERM"}, Outside: needsRoot, do: raiseLimit},
	}
}

func unshare(flags int) func(*Arena) error {
	return func(*Arena) error {
		runtime.LockOSThread()
		return unix.Unshare(flags)
	}
}

// newUserNamespace clones with the flag, since Go's threads forbid unshare.
func newUserNamespace(*Arena) error {
	pid, err := syscall.ForkExec("/proc/self/exe", []string{"attack", "nothing"}, &syscall.ProcAttr{
		Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER},
	})
	if err == nil {
		_, err = syscall.Wait4(pid, nil, 0, nil)
	}
	return err
}

// setuidProgram runs a copy of this program that belongs to root.
func setuidProgram(a *Arena) error {
	if a.Setuid == "" {
		return errNoArena
	}
	pid, err := syscall.ForkExec(a.Setuid, []string{"attack", "am-i-root"}, &syscall.ProcAttr{Files: []uintptr{0, 1, 2}})
	if err != nil {
		return err
	}
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(pid, &status, 0, nil); err != nil {
		return err
	}
	if status.ExitStatus() != 0 {
		return unix.EPERM
	}
	return nil
}

func raise(*Arena) error {
	head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	data := [2]unix.CapUserData{{Effective: 1 << unix.CAP_SYS_ADMIN, Permitted: 1 << unix.CAP_SYS_ADMIN}}
	return unix.Capset(&head, &data[0])
}

func raiseLimit(*Arena) error {
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil {
		return errors.Join(errNoArena, err)
	}
	l.Max++
	return call(unix.SYS_PRLIMIT64, 0, unix.RLIMIT_NOFILE, uintptr(unsafe.Pointer(&l)), 0)
}

// coreLimit sets its own limit of core files to 0 and looks whether it is. With
// 0 the kernel runs a handler that it is told of as root, with 1 it does not.
func coreLimit(*Arena) error {
	var was, now unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_CORE, &was); err != nil {
		return errors.Join(errNoArena, err)
	}
	zero := unix.Rlimit{Max: was.Max}
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, &zero, nil); err != nil {
		return err
	}
	if err := unix.Prlimit(0, unix.RLIMIT_CORE, nil, &now); err != nil || now.Cur != 0 {
		return errors.Join(err, unix.EPERM)
	}
	return unix.Prlimit(0, unix.RLIMIT_CORE, &was, nil)
}
