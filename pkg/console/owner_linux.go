package console

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// ownerOf asks the kernel which user made the other end of a connection within
// this machine, as sock_diag(7) tells it. On loopback anybody can connect, and
// this is the only thing about them that they cannot choose.
//
// The question is for exactly one socket, by both its ends. A list of sockets by
// their ports would have others in it: 127.0.0.2:40000 is not 127.0.0.1:40000.
func ownerOf(conn *net.TCPConn) (uid int, err error) {
	ours, ok := conn.LocalAddr().(*net.TCPAddr)
	theirs, also := conn.RemoteAddr().(*net.TCPAddr)
	if !ok || !also {
		return -1, errors.New("the connection has no addresses")
	}
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return -1, fmt.Errorf("asking whose a connection is: %w", err)
	}
	defer unix.Close(fd)
	local, remote := plain(theirs.AddrPort()), plain(ours.AddrPort())
	ask, err := socketQuestion(local, remote)
	if err != nil {
		return -1, err
	}
	if err := unix.Sendto(fd, ask, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return -1, fmt.Errorf("asking whose a connection is: %w", err)
	}
	var room [4096]byte
	n, _, err := unix.Recvfrom(fd, room[:], 0)
	if err != nil {
		return -1, fmt.Errorf("asking whose a connection is: %w", err)
	}
	return ownerIn(room[:n], local, remote)
}

// plain is an address as IPv4 where it is one.
func plain(a netip.AddrPort) netip.AddrPort { return netip.AddrPortFrom(a.Addr().Unmap(), a.Port()) }

// The kernel's structures nlmsghdr, inet_diag_req_v2 and inet_diag_msg.
const (
	sizeHeader   = 16
	sizeID       = 48 // inet_diag_sockid
	idCookie     = 40 // where its cookie begins, behind both ends and the interface
	sizeQuestion = sizeHeader + 8 + sizeID
	offsetID     = sizeHeader + 4          // in an answer
	offsetUID    = offsetID + sizeID + 3*4 // behind expires, rqueue, wqueue
	sizeAnswer   = offsetUID + 8           // uid and inode
	byFamily     = 20                      // SOCK_DIAG_BY_FAMILY
)

// socketQuestion asks for the one socket that is local, connected to remote.
func socketQuestion(local, remote netip.AddrPort) ([]byte, error) {
	from, to := local.Addr(), remote.Addr()
	family := byte(unix.AF_INET6)
	if from.Is4() {
		family = unix.AF_INET
	}
	if from.Is4() != to.Is4() {
		return nil, errors.New("the ends of a connection are of different families")
	}
	b := make([]byte, sizeQuestion)
	binary.NativeEndian.PutUint32(b, sizeQuestion)
	binary.NativeEndian.PutUint16(b[4:], byFamily)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST)
	b[sizeHeader], b[sizeHeader+1] = family, unix.IPPROTO_TCP
	binary.NativeEndian.PutUint32(b[sizeHeader+4:], ^uint32(0)) // in whatever state
	id := b[sizeHeader+8:]
	binary.BigEndian.PutUint16(id, local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], from.AsSlice())
	copy(id[20:36], to.AsSlice())
	for i := idCookie; i < sizeID; i++ {
		id[i] = 0xff // INET_DIAG_NOCOOKIE
	}
	return b, nil
}

// States of a TCP socket that somebody holds who may still read from it.
const (
	tcpEstablished = 1
	tcpFinWait1    = 4
	tcpFinWait2    = 5
	tcpCloseWait   = 8
)

// ownerIn reads an answer. One about another socket is none: where the one that
// was asked for is gone, the kernel names a listener on its port. Nor is one
// about a socket that no process has open: its user is told as root.
func ownerIn(answer []byte, local, remote netip.AddrPort) (uid int, err error) {
	if len(answer) < sizeHeader+4 {
		return -1, errors.New("the kernel's answer is cut")
	}
	if kind := binary.NativeEndian.Uint16(answer[4:]); kind != byFamily {
		errno := unix.Errno(-int32(binary.NativeEndian.Uint32(answer[sizeHeader:])))
		return -1, fmt.Errorf("asking whose a connection is: %w", errno)
	}
	if len(answer) < sizeAnswer {
		return -1, errors.New("the kernel's answer is cut")
	}
	from, to := ends(answer[sizeHeader], answer[offsetID:offsetID+sizeID])
	if from != local || to != remote {
		return -1, errors.New("the connection is gone")
	}
	switch answer[sizeHeader+1] {
	case tcpEstablished, tcpFinWait1, tcpFinWait2, tcpCloseWait:
	default:
		return -1, errors.New("the connection is over")
	}
	if binary.NativeEndian.Uint32(answer[offsetUID+4:]) == 0 {
		return -1, errors.New("no process has the connection open")
	}
	return int(binary.NativeEndian.Uint32(answer[offsetUID:])), nil
}

// ends reads an inet_diag_sockid. A socket of IPv6 may carry IPv4.
func ends(family byte, id []byte) (local, remote netip.AddrPort) {
	address := func(b []byte) netip.Addr {
		if family == unix.AF_INET {
			b = b[:4]
		}
		a, _ := netip.AddrFromSlice(b)
		return a.Unmap()
	}
	return netip.AddrPortFrom(address(id[4:20]), binary.BigEndian.Uint16(id)),
		netip.AddrPortFrom(address(id[20:36]), binary.BigEndian.Uint16(id[2:]))
}
