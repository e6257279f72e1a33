package inlet

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"os"
	"strconv"
	"strings"
)

// uidOf is the user of the socket of this machine that is connected from one
// address to the other, or -1.
func uidOf(from, to netip.AddrPort) int {
	uid := -1
	sockets(func(f []string) bool {
		if !sameSocket(f[1], from) || !sameSocket(f[2], to) {
			return false
		}
		if n, err := strconv.Atoi(f[7]); err == nil {
			uid = n
		}
		return true
	})
	return uid
}

// SocketInode names the socket of this network namespace with that local
// address which is connected, as links of /proc/PID/fd name it; "" where there
// is none.
func SocketInode(local netip.AddrPort) (inode string) {
	sockets(func(f []string) bool {
		const established = "01"
		if f[3] != established || !sameSocket(f[1], local) {
			return false
		}
		inode = f[9]
		return true
	})
	return inode
}

// sockets goes through the fields of every TCP socket until look has found
// what it wanted. See proc_pid_net(5).
func sockets(look func(fields []string) (found bool)) {
	for _, file := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} {
		text, err := os.ReadFile(file)
		if err != nil {
			continue
		}
		for line := range strings.Lines(string(text)) {
			if f := strings.Fields(line); len(f) >= 10 && look(f) {
				return
			}
		}
	}
}

func sameSocket(text string, want netip.AddrPort) bool {
	at, ok := parseSocket(text)
	return ok && at.Addr().Unmap() == want.Addr().Unmap() && at.Port() == want.Port()
}

// parseSocket reads an address of /proc/net/tcp: hexadecimal words in the
// machine's own order.
func parseSocket(text string) (netip.AddrPort, bool) {
	host, port, ok := strings.Cut(text, ":")
	raw, err := hex.DecodeString(host)
	n, perr := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil || perr != nil || len(raw)%4 != 0 {
		return netip.AddrPort{}, false
	}
	for i := 0; i < len(raw); i += 4 {
		binary.NativeEndian.PutUint32(raw[i:], binary.BigEndian.Uint32(raw[i:]))
	}
	addr, ok := netip.AddrFromSlice(raw)
	return netip.AddrPortFrom(addr, uint16(n)), ok
}
