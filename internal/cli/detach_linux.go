package cli

import (
	"os/exec"
	"syscall"
)

// detach gives a background node a session of its own, so that the terminal's
// signals and hang-up do not reach it.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
