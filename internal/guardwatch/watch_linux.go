package guardwatch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A Watcher notices lost protections. Its methods may be called concurrently.
type Watcher struct {
	log *slog.Logger

	mu      sync.Mutex // guards what follows
	file    *os.File   // the inotify instance, nil until it is needed
	fd      int        // of file: File.Fd may make it wait
	dirs    map[int32]*directory
	closed  bool
	reading sync.WaitGroup
}

// A directory is watched for the names of one or more sessions.
type directory struct {
	wd     int32
	guards []*guard
}

// A guard is one path of one session.
type guard struct {
	path   string
	before Stamp
	lost   func(Lost)
	told   bool
}

// Look says which file stands at a path, itself where it is a link.
func Look(path string) (Stamp, error) {
	var s unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW, unix.STATX_INO|unix.STATX_BTIME, &s)
	if err != nil {
		return Stamp{}, err
	}
	out := Stamp{device: unix.Mkdev(s.Dev_major, s.Dev_minor), inode: s.Ino}
	if s.Mask&unix.STATX_BTIME != 0 {
		out.sec, out.nsec = uint64(s.Btime.Sec), uint64(s.Btime.Nsec)
	}
	return out, nil
}

const events = unix.IN_CREATE | unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF |
	unix.IN_ONLYDIR | unix.IN_DONT_FOLLOW

// A Watch is what one session has watched. Its methods may be called
// concurrently, and on nil.
type Watch struct {
	w    *Watcher
	mine []*guard
}

// Watch calls lost, once for each of these paths that is replaced or removed
// from now on, until the watch is stopped. lost must return soon, and may not
// call the watcher. Those that were missed are not watched.
func (w *Watcher) Watch(paths []string, lost func(Lost)) (_ *Watch, missed []Missed) {
	out := &Watch{w: w}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := w.open(); err != nil {
		for _, path := range paths {
			missed = append(missed, Missed{path, err})
		}
		return out, missed
	}
	for _, path := range paths {
		g := &guard{path: path, lost: lost}
		wd, err := unix.InotifyAddWatch(w.fd, filepath.Dir(path), events)
		if err == nil {
			g.before, err = Look(path)
		}
		if err != nil {
			missed = append(missed, Missed{path, fmt.Errorf("watching %s: %w", path, err)})
			continue
		}
		d := w.dirs[int32(wd)]
		if d == nil {
			d = &directory{wd: int32(wd)}
			w.dirs[d.wd] = d
		}
		d.guards = append(d.guards, g)
		out.mine = append(out.mine, g)
	}
	return out, missed
}

// Examine looks at once, without waiting for the kernel's word.
func (x *Watch) Examine() {
	if x == nil {
		return
	}
	x.w.mu.Lock()
	defer x.w.mu.Unlock()
	for _, g := range x.mine {
		g.examine()
	}
}

// Stop looks once more; after it has returned lost is not called any more.
func (x *Watch) Stop() {
	if x != nil {
		x.w.forget(x.mine)
	}
}

// open makes the instance and its reader.
func (w *Watcher) open() error {
	if w.closed {
		return os.ErrClosed
	}
	if w.file != nil {
		return nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("watching protected paths: %w", err)
	}
	w.fd, w.file, w.dirs = fd, os.NewFile(uintptr(fd), "inotify"), map[int32]*directory{}
	w.reading.Go(func() { w.read(w.file) })
	return nil
}

func (w *Watcher) forget(mine []*guard) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, g := range mine { // what was not read yet
		g.examine()
		g.told = true
	}
	for wd, d := range w.dirs {
		d.guards = slices.DeleteFunc(d.guards, func(g *guard) bool { return slices.Contains(mine, g) })
		if len(d.guards) == 0 {
			delete(w.dirs, wd)
			if !w.closed {
				_, _ = unix.InotifyRmWatch(w.fd, uint32(wd))
			}
		}
	}
}

// Close ends the watching.
func (w *Watcher) Close() error {
	w.mu.Lock()
	w.closed = true
	file := w.file
	w.mu.Unlock()
	if file == nil {
		return nil
	}
	err := file.Close()
	w.reading.Wait()
	return err
}

// read takes events until the instance is closed. What they say is only which
// directories to look at: events can be lost, what stands at a path cannot.
func (w *Watcher) read(file *os.File) {
	buf := make([]byte, 64<<10)
	rest := time.NewTimer(0)
	defer rest.Stop()
	for {
		n, err := file.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				w.log.Error("watching protected paths", "err", err)
			}
			return
		}
		<-rest.C
		w.examine(changed(buf[:n]))
		rest.Reset(pause)
	}
}

// changed are the directories that events are about; all is reported by -1,
// where the kernel had more than it kept.
func changed(buf []byte) map[int32]bool {
	out := map[int32]bool{}
	for len(buf) >= unix.SizeofInotifyEvent {
		out[int32(binary.NativeEndian.Uint32(buf))] = true
		size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(buf[12:]))
		buf = buf[min(size, len(buf)):]
	}
	return out
}

// examine looks at the paths in those directories.
func (w *Watcher) examine(dirs map[int32]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for wd, d := range w.dirs {
		if !dirs[wd] && !dirs[-1] {
			continue
		}
		for _, g := range d.guards {
			g.examine()
		}
	}
}

// examine tells a loss once. Where the path cannot be looked at, because a
// session took the right to from its own tree, nothing is known, and no mount
// ends by that.
func (g *guard) examine() {
	now, err := Look(g.path)
	away := errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ENOTDIR)
	if g.told || err == nil && now == g.before || err != nil && !away {
		return
	}
	g.told = true
	g.lost(Lost{Path: g.path, At: time.Now(), Gone: away})
}
