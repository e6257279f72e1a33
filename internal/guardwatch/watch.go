// Package guardwatch promises to notice when a program of the host takes a
// protection away: a mount over a path ends, without a word of the kernel's,
// as soon as somebody outside replaces or removes what stands there.
//
// Nothing inside a sandbox can do that to a path with a mount on it, so
// whatever changes such a name was the host. What to do about it is decided
// elsewhere.
package guardwatch

import (
	"log/slog"
	"time"
)

// pause is how long changes are gathered before they are looked at. A session
// that makes files beside a protected one all the time costs one look per
// pause.
const pause = 50 * time.Millisecond

// A Lost is one path that lost its protection.
type Lost struct {
	Path string
	At   time.Time // when it was noticed
	Gone bool      // nothing stands there any more; else it is another one
}

// A Missed is one path that is not watched.
type Missed struct {
	Path string
	Err  error
}

// A Stamp tells one file from another at the same path, even where the inode's
// number is used again.
type Stamp struct{ device, inode, sec, nsec uint64 }

// New makes a watcher. It opens nothing before it is first asked, and one of
// them serves all sessions of a node. A nil logger discards.
func New(log *slog.Logger) *Watcher {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	return &Watcher{log: log}
}
