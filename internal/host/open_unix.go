//go:build unix

package host

import "syscall"

// nonblock keeps an open from waiting for a pipe's writer.
const nonblock = syscall.O_NONBLOCK | syscall.O_NOCTTY
