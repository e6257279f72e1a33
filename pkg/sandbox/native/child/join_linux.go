package child

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// Program is the helper itself, for whoever has it started elsewhere: with the
// sandbox's ID and the path of a socket of the kind "unixpacket" as arguments
// it connects there, and [Join] takes it over.
func Program(arch string) ([]byte, error) { return embedded(arch) }

// Join takes over a helper that somebody else has started in a sandbox of
// their own making. It gets a socket that no file and no list of the inside
// shows; conn is closed. Nothing was set up: see [Helper.SetUp], with [Here]
// as the first operation.
func Join(conn *net.UnixConn) (*Helper, error) {
	defer conn.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	defer unix.Close(pair[1])
	ours := os.NewFile(uintptr(pair[0]), "control")
	defer ours.Close()
	own, err := net.FileConn(ours)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	if _, _, err := conn.WriteMsgUnix(message{kind: msgAdopt}.encode(), unix.UnixRights(pair[1]), nil); err != nil {
		own.Close()
		return nil, fmt.Errorf("%s: %w", StageProtocol, err)
	}
	h := &Helper{
		conn: own.(*net.UnixConn), done: make(chan struct{}),
		set: make(chan reply, 1), pidfd: -1, waiting: map[uint32]*Running{},
	}
	go h.read()
	return h, nil
}

// A Peer is who is at the other end of a socket, as the kernel says.
type Peer struct{ PID, UID, GID int }

// PeerOf asks the kernel.
func PeerOf(conn *net.UnixConn) (Peer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return Peer{}, err
	}
	var cred *unix.Ucred
	var failed error
	err = raw.Control(func(fd uintptr) { cred, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err == nil {
		err = failed
	}
	if err != nil {
		return Peer{}, fmt.Errorf("asking who is there: %w", err)
	}
	return Peer{PID: int(cred.Pid), UID: int(cred.Uid), GID: int(cred.Gid)}, nil
}
