package main

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// keepOutput has a terminal keep what is on its way to the screen when Ctrl-C is
// typed. Otherwise the kernel sends the signal first and throws that away then,
// and it may be the program's answer already.
func keepOutput(tty *os.File) error {
	modes, err := unix.IoctlGetTermios(int(tty.Fd()), unix.TCGETS)
	if err != nil {
		return err
	}
	modes.Lflag |= unix.NOFLSH
	return unix.IoctlSetTermios(int(tty.Fd()), unix.TCSETS, modes)
}

// slayProcess kills a process and waits until it has ended with all its threads,
// and so has closed what it had open.
func slayProcess(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil {
		return err
	}
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(seeWithin.Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err == nil && n == 0:
			return fmt.Errorf("process %d does not end", pid)
		default:
			return err
		}
	}
}
