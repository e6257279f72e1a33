package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"slices"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/repo"
)

// A sight is a directory as it was when a session was looked at.
type sight struct {
	path string
	info fs.FileInfo
}

// sights are of all directories that a session was asked for.
func sights(directory string, r repo.Repository) (seen []sight) {
	for _, path := range []string{r.Top, r.GitDir, r.CommonDir, directory} {
		if path == "" || slices.ContainsFunc(seen, func(s sight) bool { return s.path == path }) {
			continue
		}
		if info, err := os.Stat(path); err == nil {
			seen = append(seen, sight{path, info})
		}
	}
	return seen
}

// vanished says which of them was removed or replaced since, if any was.
func vanished(seen []sight, while string) error {
	for _, s := range seen {
		now, err := os.Stat(s.path)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return fault.CannotRun("%s no longer exists: it was removed while the session %s", s.path, while)
		case err == nil && !os.SameFile(s.info, now):
			return fault.CannotRun("%s is not what it was: it was replaced while the session %s", s.path, while).WithHint("start the session again")
		}
	}
	return nil
}

// goneMeanwhile is err, said better where what the session was asked for has
// vanished: nothing else can be expected then, and whatever came upon it names a
// part of it only, or takes it for a sandbox that does not hold.
func (l *life) goneMeanwhile(err error, seen []sight, while string) error {
	if err == nil || errors.Is(err, errNoAnswer) { // a file system that hangs would hang us as well
		return err
	}
	if gone := vanished(seen, while); gone != nil {
		l.n.log.Warn("what a session was asked for has gone", "session", l.id, "err", err)
		return gone
	}
	return err
}

// stillThere is asked last before the command: one that runs in what has been
// removed works for nothing, and nobody would be told.
func (l *life) stillThere(ctx context.Context, seen []sight) error {
	_, err := bounded(ctx, l.n.o.Times.Patience, func() (struct{}, error) { return struct{}{}, vanished(seen, whileStarting) }, nil)
	return err
}

// What a session was about when something went.
const whileStarting, whileWaiting = "started", "waited for a slot"
