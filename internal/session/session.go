// Package session promises one answer to what a session is: its name, its
// states and which of them may follow which.
//
// It holds no session and moves none; package store keeps them and package
// node carries them.
package session

import (
	"crypto/rand"
	"encoding/base32"
	"fmt"
	"strings"
)

// ID names a session: 1 to 32 characters of a-z, 0-9 and '-', not beginning
// with '-', so that it can stand in a path, a host name and on a command line.
type ID string

// maxID is the longest ID, in bytes; sandboxes are named by it.
const maxID = 32

// idEncoding has lower case letters and digits only.
var idEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// New makes an ID of 12 characters, 60 random bits. That is short enough for
// the names that engines derive from it.
func New() ID {
	var b [8]byte
	rand.Read(b[:]) // never fails, see crypto/rand
	return ID(idEncoding.EncodeToString(b[:])[:12])
}

// Parse checks an ID that came from outside.
func Parse(s string) (ID, error) {
	if s == "" || len(s) > maxID || s[0] == '-' {
		return "", &IDError{ID: s}
	}
	for i := range len(s) {
		if c := s[i]; (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return "", &IDError{ID: s}
		}
	}
	return ID(s), nil
}

// Shortest is how many characters of an ID call its session at least, where no
// other one begins so.
const Shortest = 4

// An IDError refuses a text that is no session ID.
type IDError struct{ ID string }

func (e *IDError) Error() string {
	const most = 40 // enough to recognise it
	id := e.ID
	if len(id) > most {
		id = strings.ToValidUTF8(id[:most], "") + "…"
	}
	return fmt.Sprintf("%q is not a session ID", id)
}

// Hint says where IDs are found.
func (e *IDError) Hint() string { return "mojoup-node session list shows the IDs" }
