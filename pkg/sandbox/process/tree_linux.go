package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// A stat is what /proc/PID/stat says about one process (proc(5)).
type stat struct {
	pid, parent, session int
	start                string // clock ticks since boot: with pid, an identity
	dead                 bool   // zombie: ended, not yet collected
}

// readStat parses one line. The name stands in brackets and may itself hold
// brackets and spaces, so fields are counted from the last one.
func readStat(line []byte) (stat, error) {
	open, end := bytes.IndexByte(line, ' '), bytes.LastIndexByte(line, ')')
	if open < 0 || end < open {
		return stat{}, errors.New("malformed process status")
	}
	fields := bytes.Fields(line[end+1:])
	if len(fields) < 20 {
		return stat{}, errors.New("short process status")
	}
	var s stat
	var err error
	for _, f := range []struct {
		text []byte
		into *int
	}{{line[:open], &s.pid}, {fields[1], &s.parent}, {fields[3], &s.session}} {
		if *f.into, err = strconv.Atoi(string(f.text)); err != nil {
			return stat{}, fmt.Errorf("process status: %w", err)
		}
	}
	s.start = string(fields[19])
	s.dead = fields[0][0] == 'Z' || fields[0][0] == 'X'
	return s, nil
}

// statOf looks at one process.
func statOf(pid int) (stat, error) {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return stat{}, err
	}
	return readStat(line)
}

// snapshot lists every process that this one can see. One that ends meanwhile
// is left out.
func snapshot() ([]stat, error) {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []stat
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil {
			continue
		}
		if s, err := statOf(pid); err == nil {
			all = append(all, s)
		}
	}
	return all, nil
}

// belonging picks what lives of the sessions: their members, whatever descends
// from a member, and the members of sessions that those have opened.
func belonging(all []stat, sessions map[int]bool) []stat {
	ours, opened := map[int]bool{}, map[int]bool{}
	for s := range sessions {
		opened[s] = true
	}
	for grown := true; grown; {
		grown = false
		for _, s := range all {
			if ours[s.pid] || !opened[s.session] && !ours[s.parent] {
				continue
			}
			ours[s.pid], opened[s.session], grown = true, true, true
		}
	}
	var alive []stat
	for _, s := range all {
		if ours[s.pid] && !s.dead {
			alive = append(alive, s)
		}
	}
	return alive
}

// signalExactly signals the process of s and no later one of the same number,
// and returns a descriptor that turns readable when it has ended.
func signalExactly(s stat, sig unix.Signal) (pidfd int, err error) {
	fd, err := unix.PidfdOpen(s.pid, 0)
	if err != nil {
		return -1, err
	}
	now, err := statOf(s.pid)
	if err == nil && now.start != s.start {
		err = unix.ESRCH
	}
	if err == nil {
		err = unix.PidfdSendSignal(fd, sig, nil, 0)
	}
	if err != nil {
		_ = unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// endSessions kills what belongs to the sessions until nothing is left of
// them. It reports how many processes it killed.
func endSessions(ctx context.Context, sessions map[int]bool) (killed int, err error) {
	refused := map[stat]bool{}
	for {
		if err := ctx.Err(); err != nil {
			return killed, err
		}
		members, err := freeze(sessions, refused)
		if err != nil {
			return killed, err
		}
		if len(members) == 0 {
			break
		}
		var fds []int
		for _, m := range members {
			if fd, err := signalExactly(m, unix.SIGKILL); err == nil {
				fds = append(fds, fd)
			}
		}
		killed += len(fds)
		if err := awaitEnd(ctx, fds); err != nil {
			return killed, err
		}
	}
	if len(refused) > 0 {
		return killed, fmt.Errorf("%d processes belong to another user now and could not be ended", len(refused))
	}
	return killed, nil
}

// freeze stops every member before the first one is killed: the death of a
// parent would cut the tie by which its children are found, and a running one
// could fork faster than it is looked for. It returns the members, without
// those that may not be signalled, which join refused.
func freeze(sessions map[int]bool, refused map[stat]bool) ([]stat, error) {
	stopped := map[int]stat{}
	for {
		all, err := snapshot()
		if err != nil {
			return nil, fmt.Errorf("looking for processes: %w", err)
		}
		fresh := false
		for _, m := range belonging(all, sessions) {
			if old, ok := stopped[m.pid]; ok && old.start == m.start {
				continue
			}
			fd, err := signalExactly(m, unix.SIGSTOP)
			switch {
			case errors.Is(err, unix.EPERM):
				refused[stat{pid: m.pid, start: m.start}] = true
			case err == nil:
				_ = unix.Close(fd)
				stopped[m.pid], fresh = m, true
			}
		}
		if !fresh {
			break
		}
	}
	var members []stat
	for _, m := range stopped {
		members = append(members, m)
	}
	return members, nil
}

// awaitEnd waits until every process has ended, and closes the descriptors.
func awaitEnd(ctx context.Context, pidfds []int) error {
	defer func() {
		for _, fd := range pidfds {
			_ = unix.Close(fd)
		}
	}()
	for _, fd := range pidfds {
		poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		for {
			n, err := unix.Poll(poll, 50) // ms: how late a cancelled ctx is seen
			if n == 1 {
				break
			}
			if err != nil && !errors.Is(err, unix.EINTR) {
				return fmt.Errorf("waiting for processes to end: %w", err)
			}
			if err := ctx.Err(); err != nil {
				return err
			}
		}
	}
	return nil
}
