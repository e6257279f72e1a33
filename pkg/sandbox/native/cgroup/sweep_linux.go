package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// again is how long to wait before a group that is not empty yet is looked at
// once more.
const again = time.Millisecond

// Remove ends what is left in the group and removes it. It may be called more
// than once, not concurrently with itself.
func (g *Group) Remove(ctx context.Context) error {
	if g == nil {
		return nil
	}
	g.Counts() // the last that can be read
	var errs []error
	for _, p := range g.parts {
		_, _, err := sweep(ctx, p.group)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Sweep ends every process in the group dir, which must be sandbox id's, and
// removes it. What is already gone counts as done.
func Sweep(ctx context.Context, dir, id string) (ended int, removed bool, err error) {
	if !Named(dir, id) {
		return 0, false, fmt.Errorf("%s is not the control group of sandbox %s", dir, id)
	}
	var stat unix.Statfs_t
	switch err := unix.Statfs(dir, &stat); {
	case errors.Is(err, unix.ENOENT):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("looking at the control group %s: %w", dir, err)
	case stat.Type != unix.CGROUP_SUPER_MAGIC && stat.Type != unix.CGROUP2_SUPER_MAGIC:
		return 0, false, fmt.Errorf("%s is not in a tree of control groups", dir)
	}
	return sweep(ctx, dir)
}

func sweep(ctx context.Context, dir string) (ended int, removed bool, err error) {
	seen := map[int]bool{}
	for {
		err := os.Remove(dir)
		switch {
		case err == nil:
			return len(seen), true, nil
		case errors.Is(err, fs.ErrNotExist):
			return len(seen), false, nil
		case !errors.Is(err, unix.EBUSY):
			return len(seen), false, fmt.Errorf("removing the control group: %w", err)
		}
		if err := killAll(dir, seen); err != nil {
			return len(seen), false, err
		}
		select {
		case <-ctx.Done():
			return len(seen), false, fmt.Errorf("emptying the control group %s: %w", dir, context.Cause(ctx))
		case <-time.After(again):
		}
	}
}

// killAll kills every process of a group, noting which were alive. On version 2 the
// kernel does it at once; on version 1 nothing may be started meanwhile where
// the group counts processes, and elsewhere one comes back and looks again.
func killAll(dir string, seen map[int]bool) error {
	pids, err := members(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, pid := range pids {
		if alive(pid) {
			seen[pid] = true
		}
	}
	if (kernel{}).write(path.Join(dir, "cgroup.kill"), "1") == nil {
		return nil
	}
	_ = kernel{}.write(path.Join(dir, "pids.max"), "0")
	for _, pid := range pids {
		if err := kill(dir, pid); err != nil {
			return fmt.Errorf("ending process %d of the control group %s: %w", pid, dir, err)
		}
	}
	return nil
}

// alive tells a process from one that has ended and has not been collected.
func alive(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return n == 0 && err == nil
}

// kill goes by a descriptor, so that the number cannot come to mean a process
// outside of the group in between.
func kill(dir string, pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if pids, err := members(dir); err != nil || !slices.Contains(pids, pid) {
		return nil // it has left since
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return err
	}
	return nil
}

// members are the processes in a group, but for this one, a thread of which
// may be there to start another.
func members(dir string) ([]int, error) {
	text, err := os.ReadFile(path.Join(dir, "cgroup.procs"))
	if err != nil {
		return nil, fmt.Errorf("reading a control group: %w", err)
	}
	var pids []int
	for _, word := range strings.Fields(string(text)) {
		if pid, err := strconv.Atoi(word); err == nil && pid > 0 && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
