//go:build unix

package registries

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
)

// ownGroup makes an end of the wait end the client's children too: many
// clients are scripts that start the real one.
func ownGroup(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error {
		err := syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		if errors.Is(err, syscall.ESRCH) {
			return os.ErrProcessDone
		}
		return err
	}
}
