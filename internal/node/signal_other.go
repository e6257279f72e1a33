//go:build !linux

package node

import (
	"os"
	"syscall"
)

func signalNumber(n int) os.Signal { return syscall.Signal(n) }

const killed = syscall.SIGKILL

func goodbye(error) os.Signal { return os.Interrupt }
func drain(screen *os.File)   { _ = screen.Close() }
