package escape

import "golang.org/x/sys/unix"

// noDoor stands for a machine without a 32-bit entry.
const noDoor = -1 << 31

// getpid32 asks the kernel by int 0x80.
func getpid32() int32

// x32 asks for getpid by the numbers of the x32 table.
func x32(*Arena) error {
	const bit = 0x40000000 // __X32_SYSCALL_BIT
	return call(bit | unix.SYS_GETPID)
}
