// Package program promises that a program of the host that is run here ends when
// it is given up, with everything that it has started, and that nobody waits for
// what it has left running.
package program

import (
	"context"
	"errors"
	"os/exec"
	"time"
)

// lingers is how long is waited for who still holds the output once the program
// itself has ended, or was given up.
const lingers = time.Second

// Command is a program in a process group of its own. Many of those that are run
// here are scripts that start the real one, which holds their output.
func Command(ctx context.Context, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.WaitDelay = lingers
	cmd.Cancel = func() error { return End(cmd) }
	alone(cmd)
	return cmd
}

// Ended is the error with which it ended: that it has left something running is
// none of it.
func Ended(ctx context.Context, err error) error {
	switch {
	case ctx.Err() != nil && err != nil:
		return context.Cause(ctx)
	case errors.Is(err, exec.ErrWaitDelay):
		return nil
	}
	return err
}
