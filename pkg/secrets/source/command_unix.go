//go:build unix

package source

import (
	"errors"
	"os"
	"syscall"
)

// alone puts a command into a process group of its own, so that all of it can
// be ended.
func alone(c *command) { c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

func end(c *command) error {
	if c.Process == nil {
		return nil
	}
	err := syscall.Kill(-c.Process.Pid, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}
