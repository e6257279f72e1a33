package store

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/mojoup/mojoup-node/internal/session"
	"modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"
)

// Kind is why a store cannot be used, for programs.
type Kind string

const (
	Unusable Kind = "store-unusable"  // the directory or file is not what it must be
	Denied   Kind = "store-denied"    // this user may not write it
	ReadOnly Kind = "store-read-only" // nobody may write it
	Full     Kind = "store-full"      // the disk is full
	Remote   Kind = "store-remote"    // on a network file system
	Corrupt  Kind = "store-corrupt"   // not a database, or a damaged one
	Foreign  Kind = "store-foreign"   // a database of another program
	Newer    Kind = "store-newer"     // made by a newer mojoup-node
	Busy     Kind = "store-busy"      // another process does not let go of it
)

// An Error says why the store cannot be used.
type Error struct {
	Kind   Kind
	Path   string
	Reason string // for people, without the path
	Err    error  // what is behind it, or nil
}

func (e *Error) Error() string {
	msg := e.Reason + ": " + e.Path
	var errno syscall.Errno
	if e.Err != nil && errors.As(e.Err, &errno) { // the words, not the path again
		msg += ": " + errno.Error()
	}
	return msg
}

// Unwrap returns the error behind it.
func (e *Error) Unwrap() error { return e.Err }

// Code is the kind.
func (e *Error) Code() string { return string(e.Kind) }

// Hint says what to do next.
func (e *Error) Hint() string {
	switch e.Kind {
	case Full:
		return "free space on that disk; nothing was half written"
	case Corrupt, Foreign:
		return "the file was left as it is; move it away with its -wal and -shm files to start with an empty one"
	case Newer:
		return "install the newer mojoup-node again, or give this one another MOJOUP_STATE_DIR"
	case Busy:
		return "another mojoup-node is using it; try again when it has finished"
	case Denied, ReadOnly, Remote, Unusable:
		return "name a directory of your own on a local disk in MOJOUP_STATE_DIR"
	}
	return ""
}

// A NotFoundError says that the store holds no such thing.
type NotFoundError struct {
	What string // "session", "verdict", "undo"
	ID   string
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("there is no %s %s", e.What, e.ID) }

// Code is for programs.
func (e *NotFoundError) Code() string { return "not-found" }

// Hint says where to look.
func (e *NotFoundError) Hint() string {
	if e.What != "session" {
		return ""
	}
	return "mojoup-node session list shows the sessions"
}

// A PendingError refuses to call a session gone while something of it may be
// left.
type PendingError struct {
	Session session.ID
	Undo    int // acts not done
}

func (e *PendingError) Error() string {
	return fmt.Sprintf("session %s is not gone: %d of its undo acts are not done", e.Session, e.Undo)
}

const fullReason = "the disk of the state file is full"

// translate gives the driver's result codes a kind and a sentence. Codes that
// speak of a programming mistake are not translated.
func translate(err error) (Kind, string, bool) {
	var already *Error
	var driver *sqlite.Error
	if errors.As(err, &already) || !errors.As(err, &driver) {
		return "", "", false
	}
	switch driver.Code() & 0xff { // the rest is detail
	case lib.SQLITE_FULL:
		return Full, fullReason, true
	case lib.SQLITE_READONLY:
		return ReadOnly, "the state file cannot be written", true
	case lib.SQLITE_CANTOPEN, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		return Denied, "the state file cannot be opened for writing", true
	case lib.SQLITE_CORRUPT:
		return Corrupt, "the state file is damaged", true
	case lib.SQLITE_NOTADB:
		return Corrupt, "the state file is not a database", true
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED:
		return Busy, "the state file is locked", true
	case lib.SQLITE_IOERR:
		return Unusable, "the state file cannot be read or written", true
	}
	return "", "", false
}

// kindOf sorts an error of the file system.
func kindOf(err error) Kind {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return Denied
	case errors.Is(err, syscall.EROFS):
		return ReadOnly
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return Full
	}
	return Unusable
}
