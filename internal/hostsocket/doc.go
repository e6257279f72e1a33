// Package hostsocket promises to name the path sockets of this machine's
// programs that lie in given directories, now and as they appear.
//
// Whoever may write to such a socket can connect to it, and the mount through
// which a session sees it does not matter. Sockets of sessions are not named:
// they belong to network namespaces of their own.
package hostsocket

import "time"

// period is how often is looked: the kernel tells nobody of a new socket.
const period = 2 * time.Second

// A Socket is one that a program has bound to a path and that others can
// connect or send to.
type Socket struct {
	name  string // as it was bound; relative to a directory that nobody knows, or absolute
	inode uint32 // of the file, its lower half
}
