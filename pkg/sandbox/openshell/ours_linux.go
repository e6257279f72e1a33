package openshell

import (
	"bufio"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
)

// ours refuses a connection without encryption to a program of another person
// of this machine: nothing else says whose gateway it is. The kernel knows who
// owns the other end of a connection within the machine. An end that it does
// not list belongs to no program here, as where Docker redirects to a
// container.
func ours(conn net.Conn, reg Registration) error {
	local, ok1 := conn.LocalAddr().(*net.TCPAddr)
	remote, ok2 := conn.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return nil
	}
	uid, found := socketOwner(remote.AddrPort(), local.AddrPort())
	if !found || uid == 0 || uid == reg.UID {
		return nil
	}
	return &Error{Code: BadCredentials, Sentence: fmt.Sprintf("what listens at %s belongs to user %d, not to user %d", reg.Endpoint, uid, reg.UID),
		Advice: "register a gateway of your own, or one that proves itself by a certificate"}
}

// socketOwner finds the socket with these two ends in the kernel's tables.
func socketOwner(local, remote netip.AddrPort) (uid int, found bool) {
	for table, width := range map[string]int{"/proc/net/tcp": 4, "/proc/net/tcp6": 16} {
		f, err := os.Open(table)
		if err != nil {
			continue
		}
		want := [2]string{kernelAddress(local, width), kernelAddress(remote, width)}
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			fields := strings.Fields(lines.Text())
			if len(fields) > 7 && fields[1] == want[0] && fields[2] == want[1] {
				uid, err = strconv.Atoi(fields[7])
				found = err == nil
				break
			}
		}
		f.Close()
		if found {
			return uid, true
		}
	}
	return 0, false
}

// kernelAddress spells an address as those tables do: words of four bytes,
// each in the order of this machine, which is little-endian wherever we build.
func kernelAddress(a netip.AddrPort, width int) string {
	addr := a.Addr().Unmap()
	raw := addr.AsSlice()
	if width == 16 {
		b := addr.As16()
		raw = b[:]
	}
	if len(raw) != width {
		return ""
	}
	var b strings.Builder
	for word := range slices.Chunk(raw, 4) {
		slices.Reverse(word)
		b.WriteString(strings.ToUpper(hex.EncodeToString(word)))
	}
	return fmt.Sprintf("%s:%04X", b.String(), a.Port())
}
