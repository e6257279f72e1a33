package hostsocket

import (
	"encoding/binary"
	"fmt"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Of sock_diag(7), where x/sys has no names for them.
const (
	stateListen, stateClose = 10, 7 // as of TCP
	showName, showFile      = 1, 2
	attributeName           = 0
	attributeFile           = 1
	messageSize             = 16
)

// List asks the kernel for all path sockets of this network namespace that
// somebody can reach.
func List() ([]Socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, fmt.Errorf("asking for sockets: %w", err)
	}
	defer unix.Close(fd)
	_ = unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1})
	if err := unix.Sendto(fd, request(), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, fmt.Errorf("asking for sockets: %w", err)
	}
	var out []Socket
	buf := make([]byte, 64<<10)
	for {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err != nil {
			return nil, fmt.Errorf("asking for sockets: %w", err)
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return nil, fmt.Errorf("asking for sockets: %w", err)
		}
		for _, m := range messages {
			switch m.Header.Type {
			case unix.NLMSG_DONE:
				return out, nil
			case unix.NLMSG_ERROR:
				return nil, fmt.Errorf("asking for sockets: the kernel refused")
			}
			if s, ok := parse(m.Data); ok {
				out = append(out, s)
			}
		}
	}
}

// request asks for the dump of all sockets that listen or are not connected.
func request() []byte {
	native := binary.NativeEndian
	out := native.AppendUint32(nil, unix.NLMSG_HDRLEN+24)
	out = native.AppendUint16(out, unix.SOCK_DIAG_BY_FAMILY)
	out = native.AppendUint16(out, unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	out = native.AppendUint32(out, 1)
	out = native.AppendUint32(out, 0)
	out = append(out, unix.AF_UNIX, 0, 0, 0)
	out = native.AppendUint32(out, 1<<stateListen|1<<stateClose)
	out = native.AppendUint32(out, 0)
	out = native.AppendUint32(out, showName|showFile)
	return append(out, make([]byte, 8)...)
}

// parse reads one answer; ok where it is of a socket that has a file.
func parse(data []byte) (s Socket, ok bool) {
	if len(data) < messageSize {
		return s, false
	}
	if kind, state := data[1], data[2]; kind != unix.SOCK_DGRAM && state != stateListen {
		return s, false
	}
	for rest := data[messageSize:]; len(rest) >= unix.SizeofRtAttr; {
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if size < unix.SizeofRtAttr || size > len(rest) {
			break
		}
		switch value := rest[unix.SizeofRtAttr:size]; {
		case kind == attributeName:
			s.name = strings.TrimRight(string(value), "\x00")
		case kind == attributeFile && len(value) >= 4:
			s.inode, ok = binary.NativeEndian.Uint32(value), true
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return s, ok && s.name != "" && s.name[0] != 0
}
