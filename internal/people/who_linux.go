package people

import (
	"encoding/binary"
	"net"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/console"
)

// caller is who connected, as the kernel tells it.
type caller struct {
	console.Caller
	groups []int
}

// callerOf asks the kernel. A peer in another user namespace is nobody that is
// known here.
func callerOf(conn net.Conn) (caller, bool) {
	c, ok := console.Peer(conn)
	if !ok {
		return caller{}, false
	}
	return caller{Caller: c, groups: peerGroups(conn)}, true
}

// peerGroups are the supplementary groups of a peer when it connected.
func peerGroups(conn net.Conn) (groups []int) {
	uc, ok := conn.(*net.UnixConn)
	if !ok {
		return nil
	}
	raw, err := uc.SyscallConn()
	if err != nil {
		return nil
	}
	_ = raw.Control(func(fd uintptr) {
		room := make([]byte, 4*64)
		for {
			size := uint32(len(room))
			_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, fd, unix.SOL_SOCKET, unix.SO_PEERGROUPS,
				uintptr(unsafe.Pointer(&room[0])), uintptr(unsafe.Pointer(&size)), 0)
			if errno == unix.ERANGE && int(size) > len(room) {
				room = make([]byte, size)
				continue
			}
			if errno != 0 {
				return
			}
			for b := range slices.Chunk(room[:size], 4) {
				groups = append(groups, int(binary.NativeEndian.Uint32(b)))
			}
			return
		}
	})
	return groups
}

// allowed reports whether a list of the setting's form has the caller.
func allowed(list []string, c caller) bool {
	return slices.ContainsFunc(list, func(who string) bool {
		if who == "*" || who == strconv.Itoa(c.UID) {
			return true
		}
		if group, ok := strings.CutPrefix(who, "@"); ok {
			gid, err := groupID(group)
			return err == nil && (gid == c.GID || slices.Contains(c.groups, gid))
		}
		u, err := user.Lookup(who)
		return err == nil && u.Uid == strconv.Itoa(c.UID)
	})
}

func groupID(name string) (int, error) {
	if gid, err := strconv.Atoi(name); err == nil {
		return gid, nil
	}
	g, err := user.LookupGroup(name)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(g.Gid)
}

// person is the user of a uid with the groups that the machine's lists give
// them. Of one whom the lists do not have the kernel knows those of the caller.
func person(c caller) Person {
	p := Person{UID: c.UID, GID: c.GID, Groups: c.groups, Name: strconv.Itoa(c.UID), peer: c.groups}
	u, err := user.LookupId(p.Name)
	if err != nil {
		return p
	}
	gid, err := strconv.Atoi(u.Gid)
	if err != nil {
		return p
	}
	p.GID, p.Name, p.Home, p.Groups = gid, u.Username, u.HomeDir, nil
	ids, _ := u.GroupIds()
	for _, id := range ids {
		if g, err := strconv.Atoi(id); err == nil && g != gid {
			p.Groups = append(p.Groups, g)
		}
	}
	return p
}

// listed is the person of a uid where nobody has called: from the lists, or with
// the group that their directory has.
func listed(uid, gid int) Person {
	return person(caller{Caller: console.Caller{UID: uid, GID: gid}})
}
