package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// system is how control files are written: the kernel's tree, or in a test a
// plain directory, where a file has to be made.
type system interface {
	write(file, value string) error
	mkdir(dir string) error
}

type kernel struct{}

// write must not make a file: where there is none, the controller is not.
func (kernel) write(file, value string) error {
	f, err := os.OpenFile(file, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

func (kernel) mkdir(dir string) error { return os.Mkdir(dir, 0o755) }

// slack is what of a sandbox is not the session's: the helper's two processes.
const slack = 2

// period is the kernel's own default, in microseconds.
const period = 100_000

// A Group is the control group of one sandbox, in as many trees as its
// controllers are in. Its methods may be called concurrently.
type Group struct {
	limits Limits
	parts  []*part
	lost   map[Controller]error
	os     system

	mu   sync.Mutex // guards seen
	seen Counts     // the most that was ever read: the files go with the group
}

// A part is the group's directory in one tree.
type part struct {
	place
	group       string // the directory
	controllers []Controller
}

// Make makes the group of a sandbox with its limits. What a controller refuses
// is left out and known to [Group.Lost]; where nothing can be bounded there is
// no group, and the error says why.
func (h *Host) Make(id string, l Limits) (*Group, error) {
	g := &Group{limits: l, lost: map[Controller]error{}, os: h.os}
	for _, c := range l.Needs() {
		p, ok := h.at[c]
		if !ok {
			g.lost[c] = errors.New(h.mode + ": this node may not write the group " + string(c))
			continue
		}
		if err := g.join(h, p, id, c); err != nil {
			g.lost[c] = err
		}
	}
	if len(g.parts) == 0 {
		for _, c := range l.Needs() {
			return nil, g.lost[c]
		}
		return nil, errors.New("no limit was asked for")
	}
	return g, nil
}

// join makes the directory for a controller, unless another one has made it,
// and sets the limit.
func (g *Group) join(h *Host, in place, id string, c Controller) error {
	dir := path.Join(in.dir, name(id))
	i := slices.IndexFunc(g.parts, func(p *part) bool { return p.group == dir })
	if in.unified {
		if err := h.passOn(in, c); err != nil {
			return err
		}
	}
	made := i < 0
	if made {
		if err := g.mkdir(dir); err != nil {
			return fmt.Errorf("making the control group: %w", err)
		}
	}
	if err := g.set(dir, in.unified, c); err != nil {
		if made {
			_ = os.Remove(dir)
		}
		return fmt.Errorf("setting the limit of the control group: %w", err)
	}
	if made {
		g.parts = append(g.parts, &part{place: in, group: dir})
		i = len(g.parts) - 1
	}
	g.parts[i].controllers = append(g.parts[i].controllers, c)
	return nil
}

// mkdir makes a directory anew: one that lies there is a dead sandbox's of the
// same name, and goes if nothing runs in it.
func (g *Group) mkdir(dir string) error {
	err := g.os.mkdir(dir)
	if errors.Is(err, fs.ErrExist) && os.Remove(dir) == nil {
		err = g.os.mkdir(dir)
	}
	return err
}

// passOn has a group of version 2 give a controller to those below it. Where
// this process is in that group it moves itself away first.
func (h *Host) passOn(p place, c Controller) error {
	if p.crowded {
		own := path.Join(p.dir, leaf)
		if err := h.os.mkdir(own); err != nil && !errors.Is(err, fs.ErrExist) {
			return fmt.Errorf("making a control group for the node itself: %w", err)
		}
		if err := h.os.write(path.Join(own, "cgroup.procs"), strconv.Itoa(os.Getpid())); err != nil {
			return fmt.Errorf("moving the node to a control group of its own: %w", err)
		}
	}
	if err := h.os.write(path.Join(p.dir, "cgroup.subtree_control"), "+"+string(c)); err != nil {
		return fmt.Errorf("passing the controller %s on: %w", c, err)
	}
	return nil
}

// A setting is one control file and what is written to it.
type setting struct {
	file, value string
	// optional: some kernels do not have it, and then it does not matter.
	optional bool
}

// settings are the control files of one limit. Names and units are those of
// the kernel's documentation, admin-guide/cgroup-v1 and cgroup-v2.rst.
func settings(l Limits, unified bool, c Controller) []setting {
	memory, processes := strconv.FormatInt(l.Memory, 10), strconv.Itoa(l.Processes+slack)
	quota := strconv.Itoa(max(int(l.CPUs*period), 1000))
	switch {
	case c == Processes:
		return []setting{{file: "pids.max", value: processes}}
	case c == CPU && unified:
		return []setting{{file: "cpu.max", value: quota + " " + strconv.Itoa(period)}}
	case c == CPU:
		return []setting{{file: "cpu.cfs_period_us", value: strconv.Itoa(period)}, {file: "cpu.cfs_quota_us", value: quota}}
	case unified: // one process is killed and not all: its parent may carry on
		return []setting{{file: "memory.oom.group", value: "0", optional: true}, {file: "memory.swap.max", value: "0", optional: true}, {file: "memory.max", value: memory}}
	}
	return []setting{
		{file: "memory.limit_in_bytes", value: memory},
		// Memory and swap together: what is not there cannot be swapped out.
		{file: "memory.memsw.limit_in_bytes", value: memory, optional: true},
		{file: "memory.swappiness", value: "0", optional: true},
		// Version 1 counts socket buffers apart.
		{file: "memory.kmem.tcp.limit_in_bytes", value: memory, optional: true},
	}
}

func (g *Group) set(dir string, unified bool, c Controller) error {
	for _, s := range settings(g.limits, unified, c) {
		err := g.os.write(path.Join(dir, s.file), s.value)
		if err != nil && !(s.optional && errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return nil
}

// Lost says why a limit that was asked for is not held by the group: nil where
// it is, or was not asked for.
func (g *Group) Lost(c Controller) error {
	if g == nil {
		return nil
	}
	return g.lost[c]
}

// Holds reports whether the group bounds a controller.
func (g *Group) Holds(c Controller) bool { return g.of(c) != nil }

// Version is "v1" or "v2", of the tree that a controller is in.
func (g *Group) Version(c Controller) string {
	if p := g.of(c); p != nil && p.unified {
		return "v2"
	}
	return "v1"
}

func (g *Group) of(c Controller) *part {
	if g == nil {
		return nil
	}
	for _, p := range g.parts {
		if slices.Contains(p.controllers, c) {
			return p
		}
	}
	return nil
}

// Start runs f so that the processes that it starts are in the group from
// their first instruction. f gets a descriptor for clone's CLONE_INTO_CGROUP,
// or -1.
//
// On version 1 a thread of this process joins the group for that while, and
// what it starts is born there. A thread may move itself at once, whereas
// moving another process waits until every processor has been quiet: 0.1 ms
// instead of 7 to 15.
func (g *Group) Start(f func(fd int) error) error {
	done := make(chan error, 1)
	go func() { done <- g.onThread(f) }()
	return <-done
}

func (g *Group) onThread(f func(fd int) error) error {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		// The main thread stands for the whole process, also for the kernel
		// when it looks for whom to kill for memory. While it is locked here
		// another goroutine cannot be on it.
		defer runtime.UnlockOSThread()
		return g.Start(f)
	}
	err := g.inside(f)
	for _, p := range g.parts {
		if !p.unified && g.os.write(path.Join(p.dir, "tasks"), "0") != nil {
			return err // still locked: the thread ends with this goroutine
		}
	}
	runtime.UnlockOSThread()
	return err
}

func (g *Group) inside(f func(fd int) error) error {
	fd := -1
	for _, p := range g.parts {
		if !p.unified {
			if err := g.os.write(path.Join(p.group, "tasks"), "0"); err != nil {
				return fmt.Errorf("entering the control group %s: %w", p.group, err)
			}
			continue
		}
		dir, err := unix.Open(p.group, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening the control group %s: %w", p.group, err)
		}
		defer unix.Close(dir)
		fd = dir
	}
	return f(fd)
}

// Verify wants that a process is in the group, and that the group's limits are
// what was asked for.
func (g *Group) Verify(pid int) error {
	for _, p := range g.parts {
		pids, err := members(p.group)
		if err != nil {
			return err
		}
		if !slices.Contains(pids, pid) {
			return fmt.Errorf("process %d is not in the control group %s", pid, p.group)
		}
		for _, c := range p.controllers {
			if err := g.verify(p, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (g *Group) verify(p *part, c Controller) error {
	for _, s := range settings(g.limits, p.unified, c) {
		text, err := os.ReadFile(path.Join(p.group, s.file))
		if s.optional && errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading a limit back: %w", err)
		}
		if got := strings.TrimSpace(string(text)); !same(got, s.value) {
			return fmt.Errorf("the control group %s has %s %s, not %s", p.group, s.file, got, s.value)
		}
	}
	return nil
}

// same allows the kernel to have rounded bytes down to a page.
func same(got, want string) bool {
	a, aerr := strconv.ParseInt(got, 10, 64)
	b, berr := strconv.ParseInt(want, 10, 64)
	if aerr != nil || berr != nil {
		return got == want
	}
	return a == b || a < b && b-a < int64(os.Getpagesize()) && a%int64(os.Getpagesize()) == 0
}

// Counts are what the limits have seen so far.
type Counts struct {
	Killed  int // processes that the kernel killed for memory
	Refused int // processes and threads that could not be started
}

// Counts reads them; after Remove they are the last ones. A command may end, and
// be asked about, while its sandbox is being removed.
func (g *Group) Counts() Counts {
	if g == nil {
		return Counts{}
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if p := g.of(Memory); p != nil {
		file := "memory.oom_control"
		if p.unified {
			file = "memory.events"
		}
		g.seen.Killed = max(g.seen.Killed, counter(path.Join(p.group, file), "oom_kill"))
	}
	if p := g.of(Processes); p != nil {
		g.seen.Refused = max(g.seen.Refused, counter(path.Join(p.group, "pids.events"), "max"))
	}
	return g.seen
}

// counter reads one line "key number" of a control file, 0 where there is none.
func counter(file, key string) int {
	text, err := os.ReadFile(file)
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 2 && f[0] == key {
			n, _ := strconv.Atoi(f[1])
			return n
		}
	}
	return 0
}
