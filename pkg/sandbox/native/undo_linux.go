package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// Kinds of undo.
const (
	undoHelper = "native-helper" // end the helper of ID, which runs as user Content
	undoDir    = "native-dir"    // remove the directory Path if it is empty
	undoFile   = "native-file"   // remove the file Path if it holds Content
	undoMove   = "native-move"   // move the sheltered file back to Path
	undoTry    = "native-try"    // remove what the self-check of ID has made in the directory Path
	undoGroup  = "native-group"  // end what runs in the control group Path of ID, and remove it
)

// Undo lists what Prepare may leave: processes first, since a placeholder
// may only go when nothing relies on it.
func (e *Engine) Undo(s sandbox.Spec) []sandbox.Undo {
	out := []sandbox.Undo{{Kind: undoHelper, ID: s.ID, Content: strconv.Itoa(s.Identity.UID)}}
	for _, dir := range e.groups.Paths(s.ID, wants(s)) {
		out = append(out, sandbox.Undo{Kind: undoGroup, Path: dir, ID: s.ID})
	}
	return append(out, e.UndoInside(s)...)
}

// undoHold lists the placeholders that a Spec may leave.
func undoHold(s sandbox.Spec) (out []sandbox.Undo) {
	all := placeholders(s)
	for i := len(all) - 1; i >= 0; i-- { // deepest first
		p := all[i]
		u := sandbox.Undo{Kind: undoDir, Path: p.path, ID: s.ID}
		switch {
		case p.file:
			u.Kind, u.Content = undoFile, p.content
		case p.shelter != "":
			u.Kind, u.Path = undoMove, p.shelter
		}
		out = append(out, u)
	}
	return out
}

// Sweep carries out one act of an earlier Undo.
func (e *Engine) Sweep(ctx context.Context, u sandbox.Undo) (did string, err error) {
	p := placeholder{path: u.Path}
	switch u.Kind {
	case undoHelper:
		return sweepHelper(ctx, u)
	case undoGroup:
		return sweepGroup(ctx, u)
	case undoTry:
		return sweepTried(u)
	case undoFile:
		p.file, p.content = true, u.Content
	case undoMove:
		p.path, p.shelter = sandbox.ShelterDir(u.Path), u.Path
	case undoDir:
	default:
		return "", fmt.Errorf("undo %q: not of the native engine", u.Kind)
	}
	if err := clean("undo", u.Path); err != nil {
		return "", err
	}
	removed, err := p.sweep(ctx)
	switch {
	case removed && p.shelter != "":
		did = "moved " + u.Path + " back to its place"
	case removed:
		did = "removed the placeholder " + u.Path
	}
	return did, err
}

var _ sandbox.Mortal = (*Engine)(nil)

// EndsWithBoot: processes and control groups do, files do not.
func (e *Engine) EndsWithBoot(u sandbox.Undo) bool {
	return u.Kind == undoHelper || u.Kind == undoGroup
}

func sweepGroup(ctx context.Context, u sandbox.Undo) (string, error) {
	ended, removed, err := cgroup.Sweep(ctx, u.Path, u.ID)
	switch {
	case ended > 0:
		return fmt.Sprintf("ended %d processes of the control group %s", ended, u.Path), err
	case removed:
		return "removed the control group " + u.Path, err
	}
	return "", err
}

// sweepHelper kills what is left of a helper. Normally nothing is: it leaves
// when its node's end of the socket closes.
func sweepHelper(ctx context.Context, u sandbox.Undo) (string, error) {
	id, uid := u.ID, os.Getuid()
	if !validID(id) {
		return "", wrong("undo", "%q names no sandbox", id)
	}
	if u.Content != "" {
		var err error
		if uid, err = strconv.Atoi(u.Content); err != nil {
			return "", wrong("undo", "%q is no user", u.Content)
		}
	}
	pids, err := helpersOf(id, uid)
	if err != nil {
		return "", err
	}
	ended := 0
	for _, pid := range pids {
		did, err := end(ctx, pid, id, uid)
		if err != nil {
			return "", fmt.Errorf("ending sandbox helper %d: %w", pid, err)
		}
		if did {
			ended++
		}
	}
	if ended == 0 {
		return "", nil
	}
	return fmt.Sprintf("ended %d processes of sandbox %s", ended, id), nil
}

// helpersOf finds processes of a user by command line: name and ID are all of
// it. Any other user may have a program called like that: it is not ours.
func helpersOf(id string, uid int) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("looking for sandbox helpers: %w", err)
	}
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && isHelper(pid, id, uid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func isHelper(pid int, id string, uid int) bool {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	return err == nil && strings.TrimRight(string(line), "\x00") == child.Name+"\x00"+id && ours(pid, uid)
}

// anybody stands for every user where processes are looked for.
const anybody = -1

// ours keeps a session that named a process of its own like that from having
// the node kill it, or wait for it: the outer process and pid 1 are the only
// ones that stand in this process' own namespace or directly in the next.
func ours(pid, uid int) bool {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return false
	}
	owned, placed := false, false
	for line := range strings.Lines(string(status)) {
		name, rest, _ := strings.Cut(line, ":")
		switch all := strings.Fields(rest); {
		case len(all) == 0:
		case name == "Uid": // real, effective, saved, of files
			owned = uid == anybody || all[0] == strconv.Itoa(uid)
		case name == "NSpid":
			placed = len(all) == 1 || all[len(all)-1] == "1"
		}
	}
	return owned && placed
}

// end kills one process by a descriptor, so that the number cannot come to
// mean another one in between, and waits until it has gone.
func end(ctx context.Context, pid int, id string, uid int) (bool, error) {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unix.Close(fd)
	if !isHelper(pid, id, uid) {
		return false, nil
	}
	err = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
	if errors.Is(err, unix.ESRCH) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int((100 * time.Millisecond).Milliseconds()))
		if n > 0 || err != nil && !errors.Is(err, unix.EINTR) {
			return true, err
		}
	}
	return true, context.Cause(ctx)
}
