package engine

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// removeStage takes the stage away, whatever a session has made in it: rights
// that it took from its own directories are given back on the way, and every
// directory in another is moved up first, so that one is open at a time, however
// deep they lie.
func removeStage(dir string) error {
	err := clearOut(dir)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("removing a sandbox's directory: %w", err)
	}
	return nil
}

func clearOut(dir string) error {
	top, err := openClosed(unix.AT_FDCWD, dir)
	if err != nil {
		return err
	}
	defer top.Close()
	r := rubble{top: int(top.Fd())}
	// What is moved up is met later, or in the next round.
	if err := rounds(top, func(name string) error { return one(r.top, name, r.remove) }); err != nil {
		return err
	}
	return os.Remove(dir)
}

// rubble is what is left of a sandbox.
type rubble struct {
	top   int // the directory of all
	moved int
}

// one takes one name away, or has it done where that is a directory that holds
// something. An empty one may be Docker's, who makes what it mounts on as root.
func one(at int, name string, full func(name string) error) error {
	err := unix.Unlinkat(at, name, 0)
	if errors.Is(err, unix.EISDIR) {
		err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
	}
	if errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
		return full(name)
	}
	if err != nil {
		return &os.PathError{Op: "removing", Path: name, Err: err}
	}
	return nil
}

// remove takes a directory of the top away.
func (r *rubble) remove(name string) error {
	dir, err := openClosed(r.top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	at := int(dir.Fd())
	if err := rounds(dir, func(name string) error {
		return one(at, name, func(name string) error { return r.up(at, name) })
	}); err != nil {
		return err
	}
	return unix.Unlinkat(r.top, name, unix.AT_REMOVEDIR)
}

// up moves a directory to the top, under a name of its own.
func (r *rubble) up(at int, name string) error {
	for opened := false; ; {
		r.moved++
		err := unix.Renameat2(at, name, r.top, "rubble-"+strconv.Itoa(r.moved), unix.RENAME_NOREPLACE)
		switch {
		case errors.Is(err, unix.EEXIST): // of an attempt that ended before
		case errors.Is(err, unix.EACCES) && !opened:
			if err := giveBack(at, name); err != nil {
				return err
			}
			opened = true
		case err != nil:
			return fmt.Errorf("moving %q: %w", name, err)
		default:
			return nil
		}
	}
}

// rounds calls take for every name in a directory until there is none any more.
func rounds(dir *os.File, take func(name string) error) error {
	for {
		if _, err := dir.Seek(0, io.SeekStart); err != nil {
			return err
		}
		none := true
		for {
			names, err := dir.Readdirnames(512)
			for _, name := range names {
				none = false
				if err := take(name); err != nil && !errors.Is(err, unix.ENOENT) {
					return err
				}
			}
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				return err
			}
		}
		if none {
			return nil
		}
	}
}

// openClosed opens a directory of ours, whatever its mode is.
func openClosed(at int, name string) (*os.File, error) {
	const flags = unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	var stat unix.Stat_t
	if err := unix.Fstatat(at, name, &stat, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		return nil, &os.PathError{Op: "looking at", Path: name, Err: err}
	}
	if stat.Mode&0o700 != 0o700 { // it may be opened, and nothing in it removed
		if err := giveBack(at, name); err != nil {
			return nil, err
		}
	}
	fd, err := unix.Openat(at, name, flags, 0)
	if err != nil {
		return nil, &os.PathError{Op: "opening", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// giveBack lets its owner into a directory again.
func giveBack(at int, name string) error {
	fd, err := unix.Openat(at, name, unix.O_PATH|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "opening", Path: name, Err: err}
	}
	defer unix.Close(fd)
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), 0o700)
}
