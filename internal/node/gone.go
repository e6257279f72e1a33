package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
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

// unprotected says which path that was there when a plan was made, and is to be
// protected, is not there any more. What was missing then is held by something
// that the engine makes.
func unprotected(spec sandbox.Spec) error {
	for _, p := range spec.Protect {
		if p.Guard != sandbox.Freeze && p.Guard != sandbox.Pin {
			continue
		}
		path := onHost(spec, p.Path)
		if path == "" {
			continue
		}
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return fault.CannotRun("%s no longer exists: it was removed while the session started, which was to protect it", path).WithHint("start the session again")
		}
	}
	return nil
}

// onHost is where a path of a sandbox lies on the host, or "" where it does not:
// of two mounts above it the later one counts, as for the engines.
func onHost(spec sandbox.Spec, path string) string {
	for _, m := range slices.Backward(spec.Mounts) {
		if m.Kind != sandbox.Bind && m.Kind != sandbox.Scratch {
			continue
		}
		below, inside := strings.CutPrefix(path+"/", strings.TrimSuffix(m.Target, "/")+"/")
		switch {
		case inside && m.Kind == sandbox.Bind:
			return filepath.Join(m.Source, below)
		case inside:
			return ""
		}
	}
	return ""
}

// goneMeanwhile is err, said better where what the session was asked for, or what
// it was to protect, has vanished: nothing else can be expected then, and whatever
// came upon it names a part of it only, or takes it for a sandbox that does not
// hold. No start is tried again by itself: keys and sign-ins have been given to it.
func (l *life) goneMeanwhile(err error, p prepared, while string) error {
	if err == nil || errors.Is(err, errNoAnswer) { // a file system that hangs would hang us as well
		return err
	}
	gone := vanished(p.seen, while)
	if gone == nil {
		gone = unprotected(p.spec)
	}
	if gone == nil {
		return err
	}
	l.n.log.Warn("what a session was asked for has gone", "session", l.id, "err", err)
	return gone
}

// stillThere is asked last before the command: one that runs in what has been
// removed works for nothing, what goes just after its protection was tried is
// the session's to make, and nobody would be told.
func (l *life) stillThere(ctx context.Context, p prepared) error {
	_, err := bounded(ctx, l.n.o.Times.Patience, func() (struct{}, error) {
		if err := vanished(p.seen, whileStarting); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, unprotected(p.spec)
	}, nil)
	return err
}

// What a session was about when something went.
const whileStarting, whileWaiting = "started", "waited for a slot"
