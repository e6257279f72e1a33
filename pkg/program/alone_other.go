//go:build !unix

package program

import "os/exec"

func alone(*exec.Cmd) {}

// End ends a program that [Command] made. What it has left running there is no
// group to end by.
func End(cmd *exec.Cmd) error {
	if cmd.Process == nil {
		return nil
	}
	return cmd.Process.Kill()
}
