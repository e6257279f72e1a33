//go:build unix

package cli

import "syscall"

// noFollow refuses a symbolic link in the place of a file.
const noFollow = syscall.O_NOFOLLOW
