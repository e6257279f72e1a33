package main

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
)

// closeMemory makes this process undumpable: its memory and descriptors are
// nobody else's.
func closeMemory() { _ = unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

const (
	// lookWithin bounds the search for a program: it is for people to read,
	// and nothing waits for it long.
	lookWithin = 10 * time.Millisecond
	mostSeen   = 512 // processes
)

// whoAsked finds the program behind a connection from this very machine, as
// far as can be seen and quickly: zero and empty where not.
func whoAsked(remote net.Addr) (pid int, name string) {
	from, err := netip.ParseAddrPort(remote.String())
	if err != nil {
		return 0, ""
	}
	inode := inlet.SocketInode(from)
	if inode == "" {
		return 0, ""
	}
	due := time.Now().Add(lookWithin)
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return 0, ""
	}
	// The newest process first: most connections are of one that just began.
	for i, seen := len(entries)-1, 0; i >= 0 && seen < mostSeen && time.Now().Before(due); i-- {
		pid, err := strconv.Atoi(entries[i].Name())
		if err != nil {
			continue
		}
		seen++
		if holds(entries[i].Name(), "socket:["+inode+"]") {
			name, err := os.ReadFile("/proc/" + entries[i].Name() + "/comm")
			if err != nil {
				return 0, ""
			}
			return pid, strings.TrimSpace(string(name))
		}
	}
	return 0, ""
}

// holds reports whether a process has this open. One that is another user's
// does not say.
func holds(pid, what string) bool {
	dir := "/proc/" + pid + "/fd"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + "/" + e.Name()); err == nil && to == what {
			return true
		}
	}
	return false
}
