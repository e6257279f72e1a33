package node

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"
)

// signalNumber is a client's signal as the sandbox takes it.
func signalNumber(n int) os.Signal { return syscall.Signal(n) }

// killed ends a command that hears nothing.
const killed = syscall.SIGKILL

// goodbye is what a command hears first when its session must end: SIGHUP
// where its client went away, as from a terminal, else SIGTERM.
func goodbye(why error) os.Signal {
	if errors.Is(why, errClientGone) || errors.Is(why, context.Canceled) {
		return syscall.SIGHUP
	}
	return syscall.SIGTERM
}

// drainFor is how long output may go on to arrive from a terminal whose
// command has ended while something it started still holds the terminal.
const drainFor = 200 * time.Millisecond

// drain makes a read of the terminal end soon: at once where nobody holds its
// other side any more, which is the usual case.
func drain(screen *os.File) { _ = screen.SetReadDeadline(time.Now().Add(drainFor)) }
