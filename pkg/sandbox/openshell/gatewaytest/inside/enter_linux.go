package inside

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/landlock-lsm/go-landlock/landlock"
	llsys "github.com/landlock-lsm/go-landlock/landlock/syscall"
	"golang.org/x/sys/unix"
)

// enter becomes a command inside. It does not return where that worked.
func enter(args []string) error {
	c, err := load()
	if err != nil {
		return err
	}
	if err := join(c); err != nil {
		return fmt.Errorf("joining the network: %w", err)
	}
	// A terminal belongs to who uses it.
	if _, err := unix.IoctlGetTermios(0, unix.TCGETS); err == nil {
		unix.Fchown(0, c.UID, c.GID)
	}
	if err := drop(c); err != nil {
		return err
	}
	if err := confine(c); err != nil {
		return err
	}
	dir, command := args[0], args[1:]
	if err := os.Chdir(dir); err != nil {
		return fmt.Errorf("cd: %w", err)
	}
	program, err := exec.LookPath(command[0])
	if err != nil {
		fmt.Fprintln(os.Stderr, command[0]+": not found")
		os.Exit(127)
	}
	if err := filter(); err != nil {
		return fmt.Errorf("seccomp: %w", err)
	}
	return unix.Exec(program, command, os.Environ())
}

// join goes into the network namespace that the first process has made.
func join(c Config) error {
	if !c.Inner {
		return nil
	}
	tid, err := os.ReadFile(netnsFile)
	if err != nil {
		return err
	}
	fd, err := unix.Open("/proc/1/task/"+strings.TrimSpace(string(tid))+"/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	// One thread is enough: it is the one that execs. Main has locked it.
	return unix.Setns(fd, unix.CLONE_NEWNET)
}

// drop gives up every right for good. Group 0 stays, as it does on a real
// gateway.
func drop(c Config) error {
	for capability := 0; unix.Prctl(unix.PR_CAPBSET_READ, uintptr(capability), 0, 0, 0) == nil; capability++ {
		if err := unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(capability), 0, 0, 0); err != nil && err != unix.EINVAL {
			return fmt.Errorf("dropping capability %d: %w", capability, err)
		}
		if capability > 63 {
			break
		}
	}
	if err := unix.Setgroups([]int{0}); err != nil {
		return err
	}
	if err := unix.Setresgid(c.GID, c.GID, c.GID); err != nil {
		return err
	}
	if err := unix.Setresuid(c.UID, c.UID, c.UID); err != nil {
		return err
	}
	return unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
}

// confine leaves of the file system what the policy names. A path that is not
// there is an error: the policy asks for hard enforcement.
func confine(c Config) error {
	var rules []landlock.Rule
	add := func(paths []string, dir, file landlock.AccessFSSet) error {
		for _, p := range paths {
			info, err := os.Stat(p)
			if err != nil {
				return fmt.Errorf("landlock hard_requirement: %w", err)
			}
			access := file
			if info.IsDir() {
				access = dir
			}
			rules = append(rules, landlock.PathAccess(access, filepath.Clean(p)))
		}
		return nil
	}
	const (
		readFile  = llsys.AccessFSExecute | llsys.AccessFSReadFile
		readDir   = readFile | llsys.AccessFSReadDir
		writeFile = readFile | llsys.AccessFSWriteFile | llsys.AccessFSTruncate
		writeDir  = writeFile | readDir | llsys.AccessFSRemoveDir | llsys.AccessFSRemoveFile | llsys.AccessFSMakeChar | llsys.AccessFSMakeDir |
			llsys.AccessFSMakeReg | llsys.AccessFSMakeSock | llsys.AccessFSMakeFifo | llsys.AccessFSMakeBlock | llsys.AccessFSMakeSym | llsys.AccessFSRefer
	)
	if err := add(c.ReadOnly, readDir, readFile); err != nil {
		return err
	}
	if err := add(c.ReadWrite, writeDir, writeFile); err != nil {
		return err
	}
	return landlock.V3.RestrictPaths(rules...)
}
