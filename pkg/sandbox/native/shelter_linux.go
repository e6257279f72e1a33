package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// freshLink is the link before it takes the file's name.
const freshLink = ".link"

// moveIn puts the file into its shelter, dir, and a link to it in its place,
// with the file at one of the two names at every moment. Where another
// sandbox has done so, nothing is left to do. Everything happens under git's
// own lock of the file.
func (p placeholder) moveIn(ctx context.Context, parent int, dir *os.File) error {
	name := path.Base(p.shelter)
	if isLinked(parent, name, p.shelter) {
		return nil
	}
	unlock, err := lockBeside(ctx, parent, name)
	if err != nil {
		return err
	}
	defer unlock()
	sandbox.Reached(ctx, "locked "+p.shelter)
	if isLinked(parent, name, p.shelter) {
		return nil
	}
	inside := int(dir.Fd())
	var stat unix.Stat_t
	err = unix.Fstatat(parent, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if err == nil && stat.Mode&unix.S_IFMT == unix.S_IFREG {
		// What a dead node left of an earlier move is this file or an old one.
		_ = unix.Unlinkat(inside, name, 0)
		err = unix.Fstatat(parent, name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	}
	switch {
	case errors.Is(err, unix.ENOENT):
		if err := unix.Symlinkat(sandbox.ShelterLink(p.shelter), parent, name); err != nil {
			return fmt.Errorf("%w: %w", errNoShelter, err)
		}
		return nil
	case err != nil:
		return err
	case stat.Mode&unix.S_IFMT != unix.S_IFREG:
		return unix.ELOOP
	case stat.Nlink > 1:
		return unix.EMLINK
	}
	_ = unix.Unlinkat(inside, freshLink, 0)
	if err := unix.Symlinkat(sandbox.ShelterLink(p.shelter), inside, freshLink); err != nil {
		return fmt.Errorf("%w: %w", errNoShelter, err)
	}
	sandbox.Reached(ctx, "linked to "+p.shelter)
	if err := unix.Linkat(parent, name, inside, name, 0); err != nil {
		_ = unix.Unlinkat(inside, freshLink, 0)
		return fmt.Errorf("%w: %w", errNoShelter, err)
	}
	sandbox.Reached(ctx, "doubled "+p.shelter)
	if err := unix.Renameat(inside, freshLink, parent, name); err != nil {
		return errors.Join(err, unix.Unlinkat(inside, freshLink, 0), unix.Unlinkat(inside, name, 0))
	}
	return nil
}

// errNoShelter says that the file system, or who owns the file, does not let
// it be moved so that its name is there at every moment.
var errNoShelter = errors.New("it cannot be moved")

// unsheltered is the Spec with what could not be moved held as well as it can
// be where it is, and those paths.
func unsheltered(s sandbox.Spec, held []*hold) (sandbox.Spec, []string) {
	var bare []string
	for _, h := range held {
		if h.bare {
			bare = append(bare, h.shelter)
		}
	}
	if len(bare) == 0 {
		return s, nil
	}
	var protect []sandbox.Protection
	for _, p := range s.Protect {
		if m := covering(s.Mounts, p.Path); p.Guard == sandbox.Shelter {
			if on := path.Join(m.Source, p.Path[len(m.Target):]); slices.Contains(bare, on) {
				if _, err := os.Lstat(on); err != nil {
					continue // nothing is there to hold
				}
				p.Guard = sandbox.Freeze
			}
		}
		protect = append(protect, p)
	}
	s.Protect = protect
	return s, bare
}

// moveOut puts the file back. It reports whether the shelter may go: not while
// a program of the host is at the file.
func (p placeholder) moveOut(ctx context.Context, parent int, dir *os.File) (done bool, err error) {
	name, inside := path.Base(p.shelter), int(dir.Fd())
	unlock, err := lockBeside(ctx, inside, name)
	if err != nil {
		return false, fmt.Errorf("moving %s back: %w", p.shelter, err)
	}
	defer unlock()
	sandbox.Reached(ctx, "locked to move back "+p.shelter)
	_ = unix.Unlinkat(inside, freshLink, 0)
	var stat unix.Stat_t
	there := unix.Fstatat(parent, name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil
	if there && !isLinked(parent, name, p.shelter) {
		// The host has put another file there: that one counts.
		err = unix.Unlinkat(inside, name, 0)
	} else if err = unix.Renameat(inside, name, parent, name); errors.Is(err, unix.ENOENT) {
		err = unix.Unlinkat(parent, name, 0) // there was none, and there is none
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return false, fmt.Errorf("moving %s back: %w", p.shelter, err)
	}
	sandbox.Reached(ctx, "moved back "+p.shelter)
	return true, nil
}

// isLinked reports whether name is the link to what is sheltered.
func isLinked(parent int, name, file string) bool {
	var to [unix.PathMax]byte
	n, err := unix.Readlinkat(parent, name, to[:])
	return err == nil && string(to[:n]) == sandbox.ShelterLink(file)
}
