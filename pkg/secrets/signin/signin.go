// Package signin promises that a person's sign-in to a coding agent's service
// works in sessions and is never lost by one: whatever runs inside, and whenever
// the node dies, the tool on the host stays signed in.
//
//	found, err := tool.Find(ctx, world)            // where the tool itself keeps it
//	staged, err := found.Stage(signin.Lease, "")   // what of it goes into a session
//	fresh, err := refresher.Refresh(ctx, tool, path, due)
//
// Three things make that so. Nothing is copied but the keys that a [Tool]
// names, so that what else lies in the same file stays outside. A refresh
// token, which is spent by its use, never enters a session: it is spent by one
// [Refresher] at a time, which writes what it got where the tool keeps it
// before anybody uses it. And nothing that a session says or writes ever comes
// to the host's file.
package signin

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

// A Mode is how a session gets a sign-in.
type Mode = profile.Mode

// The modes, the strongest first.
const (
	StandIn = profile.StandIn
	Lease   = profile.Lease
	Hold    = profile.Hold
	Copy    = profile.Copy
	Off     = profile.Off
)

// Kind tells why there is no sign-in to use.
type Kind string

// The kinds of an [Error].
const (
	None       Kind = "none"       // the tool is not signed in here
	Unreadable Kind = "unreadable" // there is one, which cannot be read
	Malformed  Kind = "malformed"  // it is not what the tool writes
	Ended      Kind = "ended"      // it was signed out
	Expired    Kind = "expired"    // and only the tool's own sign-in helps
	Locked     Kind = "locked"     // it is in a keyring that is locked
	Unsure     Kind = "unsure"     // what became of its refresh token is not known
	Refused    Kind = "refused"    // the service does not renew it
)

// An Error says in one sentence why there is no sign-in. It holds no byte of a
// token.
type Error struct {
	Kind         Kind
	reason, hint string
}

func (e *Error) Error() string { return e.reason }

// Hint is the next step for people.
func (e *Error) Hint() string { return e.hint }

func errorf(k Kind, hint, format string, a ...any) *Error {
	return &Error{k, fmt.Sprintf(format, a...), hint}
}

// KindOf is the kind of an error of this package, or "".
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return ""
}

// A SignIn is what was found of one person's sign-in to one tool.
type SignIn struct {
	Tool Tool
	// Kept says where, for people: "file /home/me/.codex/auth.json".
	Kept string
	// Printed says that a program has said it.
	Printed bool
	// Path is the file, without symbolic links; empty for one in a variable or
	// a keyring, which nobody renews. Named is the same file as its place names it.
	Path, Named string
	// Account is whose it is, for people, or empty where nobody can tell.
	Account string
	// ID tells accounts apart. It is empty where the tool writes none.
	ID string
	// Expires is when the access token does; zero where it does not, or
	// nobody can tell.
	Expires time.Time
	// Renews says that there is a refresh token beside it.
	Renews bool
	// OthersRead says that others may read the file.
	OthersRead bool

	access  secrets.Value
	refresh secrets.Value
	// kept holds what else of the document a session may have, by path.
	kept     map[string]any
	identity string
}

// Access is the access token.
func (s *SignIn) Access() secrets.Value { return s.access }

// Left is how long the access token still holds. It is negative once that has
// expired, and very long where nobody can tell.
func (s *SignIn) Left(now time.Time) time.Duration {
	if s.Expires.IsZero() {
		return 100 * 365 * 24 * time.Hour
	}
	return s.Expires.Sub(now.Round(0)) // by the wall clock: tokens know no other
}

// dueBefore is how long before its end a sign-in is due at the latest, and
// dueEarlier by how much earlier than its tool would renew it.
const (
	dueBefore  = 10 * time.Minute
	dueEarlier = 5 * time.Minute
)

// Due reports whether it is time to renew: earlier than the tool does it by
// itself, so that the two do not meet.
func (s *SignIn) Due(now time.Time) bool {
	return s.Left(now) < max(dueBefore, s.Tool.Margin+dueEarlier)
}

// Same reports whether both are of one account. Where neither says whose it is,
// their place is all that is known.
func (s *SignIn) Same(o *SignIn) bool { return s.ID == o.ID }

// Mark tells access tokens apart and says nothing else of them.
func (s *SignIn) Mark() string {
	b := s.access.RevealForTheWire()
	defer clear(b)
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Wipe overwrites the tokens.
func (s *SignIn) Wipe() {
	s.access.Wipe()
	s.refresh.Wipe()
}

// In is the mode that is carried out where it was asked for, or the reason why
// it cannot be.
func (s *SignIn) In(asked Mode) (Mode, error) {
	if asked == Off || slices.Contains(s.Tool.Modes, asked) {
		return asked, nil
	}
	return "", errorf(Refused, fmt.Sprintf("mojoup-node config set node.signin.mode.%s %s", s.Tool.Name, s.Tool.Default),
		"the sign-in of %s cannot be given in mode %s", s.Tool.Title, asked)
}
