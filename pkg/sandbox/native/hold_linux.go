package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A placeholder is a path of the host that stands for a missing one while a
// sandbox lives: an empty directory, or a file with a known content.
type placeholder struct {
	path    string
	file    bool
	content string
	useful  bool // a directory that git writes to: one that was there stays
	// shelter is the file that is moved into the directory, empty for none.
	shelter string
}

// placeholders lists, from the Spec alone, what Prepare may make on the host.
func placeholders(s sandbox.Spec) []placeholder {
	var out []placeholder
	for _, p := range s.Protect {
		if one, needed := placeholderOf(s, p); needed {
			out = append(out, one)
		}
	}
	return out
}

// placeholderOf is what one protection of a Spec needs on the host, if anything.
func placeholderOf(s sandbox.Spec, p sandbox.Protection) (_ placeholder, needed bool) {
	m := covering(s.Mounts, p.Path)
	if m == nil || m.Kind != sandbox.Bind {
		return placeholder{}, false
	}
	on := path.Join(m.Source, p.Path[len(m.Target):])
	switch p.Guard {
	case sandbox.HoldDir, sandbox.Thaw:
		return placeholder{path: on, useful: p.Guard == sandbox.Thaw}, true
	case sandbox.HoldFile:
		return placeholder{path: on, file: true, content: p.Content}, true
	case sandbox.Shelter:
		return placeholder{path: sandbox.ShelterDir(on), shelter: on}, true
	}
	return placeholder{}, false
}

// A hold is a placeholder that this sandbox uses. The lock on it is shared:
// several sandboxes may use one, and whoever can have it alone takes it away.
// Locks end with their process, so that a dead node holds nothing.
type hold struct {
	placeholder
	lock *os.File
	made bool // by this sandbox: what was there before and has no mark stays
	bare bool // the file could not be moved into its shelter
}

// holdAll makes everything that a Spec holds. Where that is in several
// directories, stands hears of all that stands before each further one.
func holdAll(ctx context.Context, s sandbox.Spec, stands func(held []*hold) error) (held []*hold, err error) {
	dir, parent := "", -1
	defer func() { shut(parent) }()
	for i, p := range placeholders(s) {
		if next := path.Dir(p.path); next != dir {
			if i > 0 && stands != nil {
				if err := stands(held); err != nil {
					return held, err
				}
			}
			shut(parent)
			if parent, err = p.parent(); err != nil {
				return held, fmt.Errorf("holding %s: %w", p.path, err)
			}
			dir = next
		}
		h, err := p.hold(ctx, parent, s.Identity)
		if err != nil {
			return held, fmt.Errorf("holding %s: %w", p.path, err)
		}
		held = append(held, h)
		sandbox.Reached(ctx, "held "+p.path)
	}
	return held, nil
}

// standing is how many of a Spec's protections, from the first on, need nothing
// of the host beside the first held placeholders.
func standing(s sandbox.Spec, held int) int {
	for n, p := range s.Protect {
		if _, needed := placeholderOf(s, p); !needed {
			continue
		}
		if held--; held < 0 {
			return n
		}
	}
	return len(s.Protect)
}

func shut(fd int) {
	if fd >= 0 {
		unix.Close(fd)
	}
}

const (
	lockWithin = 2 * time.Second
	lockAgain  = 2 * time.Millisecond
)

// hold makes the placeholder where there is nothing, as the session's user,
// and takes the shared lock. What stands there already is left as it is.
func (p placeholder) hold(ctx context.Context, parent int, id sandbox.Identity) (*hold, error) {
	// Another sandbox may be taking it away at this moment, which takes as long
	// as a few changes of a directory do; a lock that lasts is somebody else's.
	due := time.Now().Add(lockWithin)
	for first := true; first || time.Now().Before(due); first = false {
		if !first {
			<-time.After(lockAgain)
		}
		made := true
		err := asUser(id, func() error { return p.make(parent) })
		if errors.Is(err, unix.EEXIST) {
			made, err = false, nil
		}
		if err != nil {
			return nil, err
		}
		if made {
			sandbox.Reached(ctx, "made "+p.path)
		}
		lock, err := p.open(parent)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return nil, err
		}
		locked := unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) == nil
		still, err := p.isStill(parent, lock)
		if err != nil {
			lock.Close()
			return nil, err
		}
		if locked && still {
			h := &hold{placeholder: p, lock: lock, made: made}
			if p.shelter == "" {
				return h, nil
			}
			err := asUser(id, func() error { return p.moveIn(ctx, parent, lock) })
			if err == nil || errors.Is(err, errNoShelter) {
				h.bare = err != nil
				return h, nil
			}
			_, rerr := h.release(ctx)
			return nil, errors.Join(err, rerr)
		}
		lock.Close()
	}
	return nil, errors.New("another program has locked it")
}

// parent opens the directory that holds it, through no symbolic link.
func (p placeholder) parent() (int, error) {
	return unix.Openat2(unix.AT_FDCWD, path.Dir(p.path), &unix.OpenHow{
		Flags: unix.O_PATH | unix.O_DIRECTORY | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS,
	})
}

func (p placeholder) make(parent int) error {
	name := path.Base(p.path)
	if !p.file {
		mode := uint32(0o755)
		switch {
		case p.shelter != "": // its name marks it
		case p.useful:
			mode |= unix.S_ISVTX
		default:
			mode = 0o700 | unix.S_ISVTX // nobody else has anything to look for there, or to lock
		}
		return unix.Mkdirat(parent, name, mode)
	}
	err := p.makeWhole(parent)
	if err == nil || errors.Is(err, unix.EEXIST) {
		return err
	}
	// This file system makes no file without a name: for a moment it is empty.
	fd, err := unix.Openat(parent, name, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(p.content))
	return err
}

// makeWhole gives the file its name when its content is in it: an empty
// commondir would end every git on the host that looks at that moment, and,
// after a death then, every later one.
func (p placeholder) makeWhole(parent int) error {
	fd, err := unix.Openat(parent, ".", unix.O_WRONLY|unix.O_TMPFILE|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if _, err := unix.Write(fd, []byte(p.content)); err != nil {
		return err
	}
	return unix.Linkat(unix.AT_FDCWD, "/proc/self/fd/"+strconv.Itoa(fd), parent, path.Base(p.path), unix.AT_SYMLINK_FOLLOW)
}

func (p placeholder) open(parent int) (*os.File, error) {
	flags := unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_CLOEXEC
	if p.file {
		flags |= unix.O_NONBLOCK // what stands there may be a pipe
	} else {
		flags |= unix.O_DIRECTORY
	}
	fd, err := unix.Openat(parent, path.Base(p.path), flags, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), p.path), nil
}

// isStill reports whether the name stands for what was opened.
func (p placeholder) isStill(parent int, file *os.File) (bool, error) {
	var named, opened unix.Stat_t
	if err := unix.Fstatat(parent, path.Base(p.path), &named, unix.AT_SYMLINK_NOFOLLOW); err != nil {
		if gone(err) {
			err = nil
		}
		return false, err
	}
	if err := unix.Fstat(int(file.Fd()), &opened); err != nil {
		return false, err
	}
	return named.Dev == opened.Dev && named.Ino == opened.Ino, nil
}

// gone reports whether an error says that nothing of ours stands at a path any
// more: there is nothing, or what no placeholder is. Any other error, such as
// the want of a right that a session took from its tree with chmod, says
// nothing about that, and leaves the undo for later.
func gone(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR) || errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENXIO)
}

// release gives the lock back and takes the placeholder away, unless another
// sandbox uses it or somebody has put something there.
//
// To close what has been removed takes the file system longer than everything
// else here, and nobody needs to wait for it: it has no name any more. A lock
// on what stays is given back at once, or another one would take us for a user
// of it.
func (h *hold) release(ctx context.Context) (removed bool, err error) {
	defer func() {
		if removed {
			go h.lock.Close()
			return
		}
		h.lock.Close()
	}()
	if !h.file && h.shelter == "" && !h.made && !marked(h.lock) {
		return false, nil // it was there before anybody held it
	}
	return h.remove(ctx, h.lock)
}

// sweep takes away what a dead node has left.
func (p placeholder) sweep(ctx context.Context) (removed bool, err error) {
	parent, err := p.parent()
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for the placeholder %s: %w", p.path, err)
	}
	defer unix.Close(parent)
	if p.shelter != "" {
		if _, err := removeDeadLock(parent, path.Base(p.shelter)+lockSuffix); err != nil {
			return false, err
		}
	}
	file, err := p.open(parent)
	if gone(err) || err != nil && p.foreign(parent) {
		return false, nil // gone, or something else stands there now
	}
	if err != nil {
		return false, fmt.Errorf("looking at the placeholder %s: %w", p.path, err)
	}
	defer file.Close()
	return p.remove(ctx, file)
}

// foreign reports whether what stands there is somebody else's.
func (p placeholder) foreign(parent int) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(parent, path.Base(p.path), &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && int(stat.Uid) != os.Geteuid()
}

func (p placeholder) remove(ctx context.Context, file *os.File) (removed bool, err error) {
	parent, err := p.parent()
	if gone(err) {
		return false, nil // its directory has gone, and it with that
	}
	if err != nil {
		return false, fmt.Errorf("removing the placeholder %s: %w", p.path, err)
	}
	defer unix.Close(parent)
	if err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil // another sandbox uses it
	} else if err != nil {
		return false, fmt.Errorf("locking the placeholder %s: %w", p.path, err)
	}
	if still, err := p.isStill(parent, file); err != nil {
		return false, fmt.Errorf("removing the placeholder %s: %w", p.path, err)
	} else if !still {
		return false, nil
	}
	if p.shelter != "" {
		if done, err := p.moveOut(ctx, parent, file); !done || err != nil {
			return false, err
		}
	}
	flags := unix.AT_REMOVEDIR
	if p.file {
		if flags = 0; !p.unchanged(file) {
			return false, nil
		}
	}
	err = unix.Unlinkat(parent, path.Base(p.path), flags)
	switch {
	case err == nil:
		return true, nil
	case errors.Is(err, unix.ENOENT):
		return false, nil
	case errors.Is(err, unix.ENOTEMPTY), errors.Is(err, unix.EEXIST):
		return false, unmark(file) // somebody has put something there: it is theirs
	}
	return false, fmt.Errorf("removing the placeholder %s: %w", p.path, err)
}

// marked reports whether a directory was made to hold a missing path.
func marked(dir *os.File) bool {
	info, err := dir.Stat()
	return err == nil && info.Mode()&sandbox.PlaceholderMark != 0
}

// unmark makes a placeholder a directory like others. Where others may write,
// the bit means something and is not ours.
func unmark(dir *os.File) error {
	info, err := dir.Stat()
	if err != nil || info.Mode()&sandbox.PlaceholderMark == 0 || info.Mode().Perm()&0o022 != 0 {
		return err
	}
	return dir.Chmod(info.Mode() &^ sandbox.PlaceholderMark)
}

// unchanged reports whether the file holds what was put there, or nothing,
// as after a death between making and writing.
func (p placeholder) unchanged(file *os.File) bool {
	got := make([]byte, len(p.content)+1)
	n, _ := file.ReadAt(got, 0)
	return n == 0 || string(got[:n]) == p.content
}

// asUser carries f out with the rights of the session's user on files: a node
// that is root must not make what that user could not.
func asUser(id sandbox.Identity, f func() error) error {
	if os.Geteuid() != 0 || id.UID == 0 {
		return f()
	}
	runtime.LockOSThread()
	// Only this thread's: with the user's number the kernel takes the rights
	// over files from it, and gives them back with root's.
	if _, err := unix.SetfsgidRetGid(id.GID); err != nil {
		runtime.UnlockOSThread()
		return err
	}
	if _, err := unix.SetfsuidRetUid(id.UID); err != nil {
		return err // the thread stays locked, and ends with its goroutine
	}
	err := f()
	_, errUID := unix.SetfsuidRetUid(0)
	_, errGID := unix.SetfsgidRetGid(0)
	if errUID == nil && errGID == nil {
		runtime.UnlockOSThread()
	}
	return errors.Join(err, errUID, errGID)
}
