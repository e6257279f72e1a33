package native

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

var _ sandbox.Witness = (*Engine)(nil)

// Marked finds helpers by their command line and control groups by their name.
// Everything else that a sandbox holds on the machine, its namespaces with
// their mounts and the processes in them, ends with its helper.
func (e *Engine) Marked(ctx context.Context) ([]sandbox.Trace, error) {
	out, err := e.markedProcesses()
	if err != nil {
		return nil, err
	}
	groups, err := cgroup.Marked(ctx)
	for dir, id := range groups {
		t := sandbox.Trace{Kind: sandbox.TraceGroup, Sandbox: id, Path: dir, Spare: isSpare(id)}
		if id == "" {
			t.Holds = cgroup.Holds(dir)
		}
		out = append(out, t)
	}
	return out, err
}

func isSpare(id string) bool { return strings.HasPrefix(id, sparePrefix) }

func (e *Engine) markedProcesses() (out []sandbox.Trace, err error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for sandbox helpers: %w", err)
	}
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "cmdline"))
		if err != nil {
			continue // it has ended
		}
		id, named := strings.CutPrefix(strings.TrimRight(string(line), "\x00"), child.Name+"\x00")
		if named && validID(id) && placed(pid) {
			out = append(out, traceOf(pid, id))
		}
	}
	return out, nil
}

func traceOf(pid int, id string) sandbox.Trace {
	return sandbox.Trace{Kind: sandbox.TraceProcess, Sandbox: id, Path: filepath.Join("/proc", strconv.Itoa(pid)), PID: pid, Spare: isSpare(id)}
}

// placed reports whether a process of that name is a helper that this user may
// know of: root knows of everybody's.
func placed(pid int) bool {
	if os.Geteuid() == 0 {
		return ours(pid, anybody)
	}
	return ours(pid, os.Getuid())
}

// Remains finds what one act of an earlier Undo would still undo.
func (e *Engine) Remains(_ context.Context, u sandbox.Undo) (out []sandbox.Trace, err error) {
	switch u.Kind {
	case undoHelper:
		return remainingHelpers(u)
	case undoGroup:
		if !cgroup.Named(u.Path, u.ID) {
			return nil, fmt.Errorf("%s is not the control group of sandbox %s", u.Path, u.ID)
		}
		if _, err := os.Lstat(u.Path); err == nil {
			out = append(out, sandbox.Trace{Kind: sandbox.TraceGroup, Sandbox: u.ID, Path: u.Path, Spare: isSpare(u.ID)})
		}
		return out, nil
	case undoTry:
		return remainingTried(u)
	case undoDir, undoFile, undoMove:
		if err := clean("undo", u.Path); err != nil {
			return nil, err
		}
		return remainingPlaceholder(u)
	}
	return nil, fmt.Errorf("undo %q: not of the native engine", u.Kind)
}

func remainingHelpers(u sandbox.Undo) (out []sandbox.Trace, err error) {
	uid := os.Getuid()
	if u.Content != "" {
		if uid, err = strconv.Atoi(u.Content); err != nil {
			return nil, wrong("undo", "%q is no user", u.Content)
		}
	}
	pids, err := helpersOf(u.ID, uid)
	for _, pid := range pids {
		out = append(out, traceOf(pid, u.ID))
	}
	return out, err
}

// remainingPlaceholder looks at a path by what marks it: an empty directory by
// its mode, a file by its content, a shelter by its name.
func remainingPlaceholder(u sandbox.Undo) ([]sandbox.Trace, error) {
	t := sandbox.Trace{Kind: sandbox.TracePlaceholder, Sandbox: u.ID, Path: u.Path}
	if u.Kind == undoMove {
		t.Kind, t.Path = sandbox.TraceShelter, sandbox.ShelterDir(u.Path)
	}
	info, err := os.Lstat(t.Path)
	if gone(err) && u.Kind == undoMove {
		return remainingBeside(t, u.Path)
	}
	if gone(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking at %s: %w", t.Path, err)
	}
	ours := false
	switch u.Kind {
	case undoMove:
		ours = info.IsDir()
	case undoFile:
		ours = info.Mode().IsRegular() && info.Size() <= int64(len(u.Content)) && holds(t.Path, u.Content)
	case undoDir:
		ours = info.IsDir() && info.Mode()&sandbox.PlaceholderMark != 0 && empty(t.Path)
	}
	if !ours {
		return nil, nil
	}
	t.InUse, err = inUse(info)
	return []sandbox.Trace{t}, err
}

// remainingBeside looks for what a shelter that is gone may have left: the link
// to it, or git's lock of the file.
func remainingBeside(t sandbox.Trace, file string) ([]sandbox.Trace, error) {
	if to, err := os.Readlink(file); err == nil && to == sandbox.ShelterLink(file) {
		t.Path = file
		return []sandbox.Trace{t}, nil
	}
	t.Path = file + lockSuffix
	f, err := os.OpenFile(t.Path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil // there is none, or none of ours
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !isOurLock(f) {
		return nil, nil
	}
	t.InUse, err = inUse(info)
	return []sandbox.Trace{t}, err
}

// holds reports whether a file has exactly this content, or none yet.
func holds(file, content string) bool {
	f, err := os.OpenFile(file, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	return placeholder{content: content}.unchanged(f)
}

func empty(dir string) bool {
	f, err := os.OpenFile(dir, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_DIRECTORY, 0)
	if err != nil {
		return false
	}
	defer f.Close()
	_, err = f.Readdirnames(1)
	return err == io.EOF
}

// A Holder is a process that has a lock on a file.
type Holder struct {
	PID    int
	Shared bool // others may have it as well
}

// Holders are those who have a lock of flock(2) on a file, by the kernel's own
// list, see proc_locks(5): to try the lock would keep others from it. The list's
// device numbers are those of the disk and not always those of stat, so that
// only the inode's number is compared.
func Holders(info os.FileInfo) (out []Holder, err error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil, fmt.Errorf("looking who has a lock on %s: %w", info.Name(), errors.ErrUnsupported)
	}
	list, err := os.ReadFile("/proc/locks")
	if err != nil {
		return nil, fmt.Errorf("looking who has a lock on %s: %w", info.Name(), err)
	}
	inode := ":" + strconv.FormatUint(stat.Ino, 10)
	for line := range strings.Lines(string(list)) {
		f := strings.Fields(line) // 1: FLOCK ADVISORY WRITE 4711 08:01:1234 0 EOF
		if len(f) <= 5 || f[1] != "FLOCK" || !strings.HasSuffix(f[5], inode) {
			continue
		}
		pid, err := strconv.Atoi(f[4])
		if err != nil {
			return nil, fmt.Errorf("looking who has a lock on %s: %w", info.Name(), err)
		}
		out = append(out, Holder{PID: pid, Shared: f[3] != "WRITE"})
	}
	return out, nil
}

// inUse reports whether anybody has a lock on a file.
func inUse(info os.FileInfo) (bool, error) {
	holders, err := Holders(info)
	return len(holders) > 0, err
}
