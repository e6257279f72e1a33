package native

import "golang.org/x/sys/unix"

// auditArch is how the kernel names this machine's system calls to a filter.
const auditArch = unix.AUDIT_ARCH_X86_64
