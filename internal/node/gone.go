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
	"github.com/mojoup/mojoup-node/internal/guardwatch"
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
	for _, path := range frozen(spec) {
		if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
			return lostWhileStarting(path, true, "protect")
		}
	}
	return nil
}

// frozen are the paths of the host that were there when a plan was made, and are to
// be protected.
func frozen(spec sandbox.Spec) (paths []string) {
	for _, p := range spec.Protect {
		if path := onHost(spec, p.Path); path != "" && (p.Guard == sandbox.Freeze || p.Guard == sandbox.Pin) {
			paths = append(paths, path)
		}
	}
	return paths
}

// A stood is a path of the host as it was when a plan was made that protects it.
type stood struct {
	path string
	to   string // what the session was to do about it
	was  guardwatch.Stamp
}

// standing are those that stood when the plan was made, and what it hides. One that
// is away at this moment is another one when it is back.
func standing(spec sandbox.Spec, hidden []repo.Hidden) (all []stood) {
	note := func(path, to string) {
		was, _ := guardwatch.Look(path)
		all = append(all, stood{path, to, was})
	}
	for _, path := range frozen(spec) {
		note(path, "protect")
	}
	for _, h := range hidden {
		note(h.Path, "hide")
	}
	return all
}

// replaced says which of them, or which sheltered file, is another one now. It
// explains a start that has failed: what was replaced before it was mounted is
// protected like any other.
func replaced(p prepared) error {
	for _, s := range p.stood {
		if now, err := guardwatch.Look(s.path); err == nil && now != s.was {
			return lostWhileStarting(s.path, false, s.to)
		}
	}
	for _, guarded := range p.spec.Protect {
		path := onHost(p.spec, guarded.Path)
		if guarded.Guard != sandbox.Shelter || path == "" {
			continue
		}
		_, err := os.Lstat(filepath.Join(sandbox.ShelterDir(path), filepath.Base(path)))
		if to, _ := os.Readlink(path); err == nil && to != sandbox.ShelterLink(path) {
			return lostWhileStarting(path, false, "protect")
		}
	}
	return nil
}

// lostWhileStarting is the sentence about a path that the host took from a start.
func lostWhileStarting(path string, gone bool, to string) error {
	did := " is not what it was: it was replaced"
	if gone {
		did = " no longer exists: it was removed"
	}
	return fault.CannotRun("%s%s while the session started, which was to %s it", path, did, to).WithHint("start the session again")
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
		gone = replaced(p)
	}
	if gone == nil {
		gone = l.guarded.held(err.Error()) // only what it is about
	}
	if gone == nil {
		return err
	}
	l.n.log.Warn("what a session was asked for has gone", "session", l.id, "err", err)
	return gone
}

// stillThere is asked last before the command: one that runs in what has been
// removed works for nothing, what goes just after its protection was tried is
// the session's to make. From here on the watch tells of it.
func (l *life) stillThere(ctx context.Context, p prepared) error {
	_, err := bounded(ctx, l.n.o.Times.Patience, func() (struct{}, error) {
		if err := vanished(p.seen, whileStarting); err != nil {
			return struct{}{}, err
		}
		if err := unprotected(p.spec); err != nil {
			return struct{}{}, err
		}
		return struct{}{}, l.guarded.held("")
	}, nil)
	return err
}

// What a session was about when something went.
const whileStarting, whileWaiting = "started", "waited for a slot"
