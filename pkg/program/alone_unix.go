//go:build unix

package program

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

func alone(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// End ends a program that [Command] made, and what it has left running.
func End(cmd *exec.Cmd) error {
	if cmd.Process == nil {
		return nil // it was never there
	}
	err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
