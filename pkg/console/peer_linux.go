package console

import (
	"net"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Peer asks the kernel who connected. A peer in another user namespace is
// refused: its uid was translated on the way and may be anybody's there, as
// when the socket is mounted into a container.
func Peer(conn net.Conn) (Caller, bool) {
	sc, ok := conn.(syscall.Conn)
	if !ok || conn.LocalAddr().Network() != "unix" {
		return Caller{}, false
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Caller{}, false
	}
	var cred *unix.Ucred
	var cerr error
	if err := raw.Control(func(fd uintptr) {
		cred, cerr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil || cerr != nil {
		return Caller{}, false
	}
	ours, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return Caller{}, false
	}
	theirs, err := os.Readlink("/proc/" + strconv.Itoa(int(cred.Pid)) + "/ns/user")
	switch {
	case err == nil && theirs != ours:
		return Caller{}, false
	case err != nil && (int(cred.Uid) == os.Geteuid() || os.Geteuid() == 0):
		// One of our own can be looked at, and root looks at everybody's,
		// unless it hides or has ended.
		return Caller{}, false
	}
	// Another uid's may not be looked at; whether that uid may call is the
	// node's to say.
	return Caller{UID: int(cred.Uid), GID: int(cred.Gid), PID: int(cred.Pid)}, true
}
