package native

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// The self-check makes, moves and removes something where a session must be
// able to write. A death in the middle leaves it in the host's directory.

// undoTried lists the host's directories in which the self-check of a Spec
// makes something.
func undoTried(s sandbox.Spec) (out []sandbox.Undo) {
	for _, c := range s.Checks {
		m := covering(s.Mounts, c.Path)
		if c.Kind != sandbox.MustWrite || m == nil || m.Kind != sandbox.Bind {
			continue
		}
		dir := path.Join(m.Source, strings.TrimPrefix(c.Path, m.Target))
		out = append(out, sandbox.Undo{Kind: undoTry, Path: dir, ID: s.ID})
	}
	return out
}

// untry removes what attempts have left that were broken off: they make
// something, and take it away again as their last act. Whoever made them has
// ended.
func (b *box) untry() error {
	if !b.trying.Load() {
		return nil
	}
	var errs []error
	for _, u := range undoTried(b.spec) {
		_, err := sweepTried(u)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	b.trying.Store(false)
	return nil
}

// sweepTried removes what a self-check has left. Its names are of the sandbox
// alone, and what is not as a self-check makes it is left to whoever did: the
// session itself may have.
func sweepTried(u sandbox.Undo) (did string, err error) {
	dir, name, err := tried(u)
	if dir < 0 || err != nil {
		return "", err
	}
	defer unix.Close(dir)
	removed := false
	remove := func(at int, what string, flags int) {
		rerr := unix.Unlinkat(at, what, flags)
		removed = removed || rerr == nil
		others := errors.Is(rerr, unix.ENOTEMPTY) || errors.Is(rerr, unix.EISDIR)
		if rerr != nil && !gone(rerr) && !others {
			err = errors.Join(err, fmt.Errorf("removing %s of a self-check in %s: %w", what, u.Path, rerr))
		}
	}
	remove(dir, name+triedFile, 0)
	inner, oerr := unix.Openat(dir, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if oerr == nil {
		remove(inner, triedMoved, 0)
		unix.Close(inner)
		remove(dir, name, unix.AT_REMOVEDIR)
	}
	if removed {
		did = "removed what a self-check had made in " + u.Path
	}
	return did, err
}

// tried opens the directory of an undo, -1 where it is gone.
func tried(u sandbox.Undo) (dir int, name string, err error) {
	if !validID(u.ID) {
		return -1, "", wrong("undo", "%q names no sandbox", u.ID)
	}
	if err := clean("undo", u.Path); err != nil {
		return -1, "", err
	}
	name = checkName(sandbox.Spec{ID: u.ID})
	dir, err = placeholder{path: path.Join(u.Path, name)}.parent()
	if gone(err) {
		return -1, name, nil
	}
	if err != nil {
		return -1, name, fmt.Errorf("looking for what a self-check left in %s: %w", u.Path, err)
	}
	return dir, name, nil
}

// remainingTried is what a self-check has left.
func remainingTried(u sandbox.Undo) (out []sandbox.Trace, err error) {
	dir, name, err := tried(u)
	if dir < 0 || err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	for _, one := range []string{name, name + triedFile} {
		var stat unix.Stat_t
		if unix.Fstatat(dir, one, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
			out = append(out, sandbox.Trace{Kind: sandbox.TracePlaceholder, Sandbox: u.ID, Path: path.Join(u.Path, one)})
		}
	}
	return out, nil
}
