package native

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// bounds are the limits of one sandbox and what holds each of them: its
// control group, or what remains without one.
type bounds struct {
	asked   sandbox.Limits // by whoever made the Spec
	limits  sandbox.Limits // the same, with what holds where nobody asks
	group   *cgroup.Group  // nil where there is none
	why     error          // why there is none; nil where nobody asked for one
	scratch int64          // bytes of all scratch directories, each filled to its size
	user0   bool
	pinned  pinned
	watch   *watch // nil where the group sees everything
	// killed counts processes killed for memory where somebody else's group
	// holds the limit; nil where none does.
	killed func() int
	// removing: an end by SIGKILL is then the node's doing.
	removing atomic.Bool
}

// wanted are the limits that a control group could hold.
func wanted(l sandbox.Limits) cgroup.Limits {
	return cgroup.Limits{Memory: l.Memory, Processes: l.Processes, CPUs: l.CPUs}
}

// bound makes the control group of a sandbox. What cannot be bounded by it is
// no error: the sandbox says so.
func (e *Engine) bound(s sandbox.Spec) *bounds {
	b := &bounds{asked: s.Limits, limits: e.machine.shares.limited(s, e.machine.scratch), scratch: scratch(s, e.machine.scratch), user0: s.Identity.UID == 0}
	want := wants(s)
	if len(want.Needs()) > 0 {
		want.Processes = min(want.Processes, b.limits.Processes)
		b.group, b.why = e.groups.Make(s.ID, want)
	}
	if s.Limits.CPUs > 0 && !b.holds(cgroup.CPU) {
		b.pinned = e.pins.choose(s.Limits.CPUs)
	}
	if s.Limits.Memory > 0 && !b.holds(cgroup.Memory) || s.Limits.Processes > 0 && !b.holds(cgroup.Processes) {
		b.watch = &watch{memory: s.Limits.Memory, processes: s.Limits.Processes}
		if b.holds(cgroup.Memory) {
			b.watch.memory = 0
		}
	}
	return b
}

func (b *bounds) holds(c cgroup.Controller) bool { return b.group.Holds(c) }

// inner is the part that pid 1 carries out: what the group holds is left out,
// so that one means counts and says when it was hit.
func (b *bounds) inner(l sandbox.Limits) sandbox.Limits {
	if b.holds(cgroup.Processes) {
		l.Processes = 0
	}
	if l.Memory == 0 {
		return l
	}
	// Scratch is memory, which only a group counts as such. There it stays
	// below the limit, so that who fills it is told that it is full and not
	// killed, and a quarter is left to clear up with.
	most := l.Memory
	if b.holds(cgroup.Memory) {
		most = l.Memory / 4 * 3
	}
	if l.Disk == 0 || l.Disk > most {
		l.Disk = most
	}
	return l
}

// start runs f, which starts the helper, within the group.
func (b *bounds) start(f func(fd int) error) error {
	if b.group == nil {
		return f(-1)
	}
	return b.group.Start(f)
}

// tooSmall explains a start that did not come about because the kernel killed
// the helper for memory, or had none left for what it needs to begin: its
// arguments count already (E2BIG).
func (b *bounds) tooSmall(err error) error {
	none := b.holds(cgroup.Memory) && (errors.Is(err, unix.E2BIG) || errors.Is(err, unix.ENOMEM))
	if b.group.Counts().Killed == 0 && !none {
		return err
	}
	return &LimitError{Limit: "memory limit of " + sizeOf(b.limits.Memory), Err: err}
}

// refused explains a command that could not be started because there are as
// many processes as may be.
func (b *bounds) refused(err error) error {
	var stage *child.StageError
	if !errors.As(err, &stage) || stage.Stage != child.StageFork || stage.Errno != unix.EAGAIN {
		return err
	}
	return &LimitError{Limit: fmt.Sprintf("process limit of %d", b.limits.Processes), Err: err}
}

// A LimitError says that nothing can be started within a limit.
type LimitError struct {
	Limit string // with its value
	Err   error
}

func (e *LimitError) Error() string { return "the " + e.Limit + " leaves no room: " + e.Err.Error() }

// Unwrap returns what happened.
func (e *LimitError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *LimitError) Hint() string {
	return "end something inside, or raise the limit in the policy or in the node's settings"
}

// pins spread sandboxes without a control group for processor time over the
// processors.
type pins struct{ next atomic.Int64 }

// pinned is a choice of processors.
type pinned struct {
	set  unix.CPUSet
	n    int // how many; 0 means that none was made
	of   int // how many this process may use
	seen error
}

// choose takes as many processors as are asked for, beginning behind those
// that the sandbox before got.
func (p *pins) choose(cpus float64) pinned {
	var own unix.CPUSet
	if err := unix.SchedGetaffinity(0, &own); err != nil {
		return pinned{seen: fmt.Errorf("asking for the processors: %w", err)}
	}
	var usable []int
	for cpu := range len(own) * 64 {
		if own.IsSet(cpu) {
			usable = append(usable, cpu)
		}
	}
	c := pinned{n: min(int(math.Ceil(cpus)), len(usable)), of: len(usable)}
	first := int(p.next.Add(int64(c.n)) - int64(c.n))
	for i := range c.n {
		c.set.Set(usable[(first+i)%len(usable)])
	}
	return c
}

// politeness is the niceness of a sandbox whose processor time nothing bounds:
// what it does not leave to others it loses to them. It cannot be taken back
// from inside.
const politeness = 10

// hold binds a helper that has not forked yet.
func (p *pinned) hold(pid int) {
	if p.n == 0 {
		return
	}
	if err := unix.SchedSetaffinity(pid, &p.set); err != nil {
		p.seen = fmt.Errorf("binding it to processors: %w", err)
		return
	}
	if err := unix.Setpriority(unix.PRIO_PROCESS, pid, politeness); err != nil {
		p.seen = fmt.Errorf("lowering its priority: %w", err)
	}
}

// affinity is the filter's row for pinned sandboxes.
var affinity = deny(calls("sched_setaffinity"), untold, "the processors that a session may use are its limit here")

// sizeOf writes a size as settings and policies do.
func sizeOf(n int64) string {
	for _, unit := range []struct {
		name  string
		shift uint
	}{{"GiB", 30}, {"MiB", 20}, {"KiB", 10}} {
		if n >= 1<<unit.shift && n%(1<<unit.shift) == 0 {
			return strconv.FormatInt(n>>unit.shift, 10) + " " + unit.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

// verify wants that the group bounds the helper, before anything counts on it.
func (b *bounds) verify(pid int) error {
	if b.group == nil {
		return nil
	}
	return b.group.Verify(pid)
}

// facts name each limit, also those that nobody asked for: whoever reads them
// wants to know what a bomb would do.
func (b *bounds) facts() []sandbox.Fact {
	var out []sandbox.Fact
	for _, one := range []struct {
		name  string
		asked bool
		say   func() (sandbox.Strength, string)
	}{
		{"memory limit", b.limits.Memory > 0, b.memoryFact},
		{"processor limit", b.limits.CPUs > 0, b.processorFact},
		{"process limit", true, b.processFact},
		{"open files limit", true, b.filesFact},
		{"disk limit", true, b.diskFact},
	} {
		f := sandbox.Fact{Name: one.name, Strength: sandbox.Absent, Detail: "none was asked for"}
		if one.asked {
			f.Strength, f.Detail = one.say()
		}
		out = append(out, f)
	}
	return out
}

// without says why no group holds a controller.
func (b *bounds) without(c cgroup.Controller) string {
	why := b.group.Lost(c)
	if why == nil {
		why = b.why
	}
	if why == nil {
		return "no control group"
	}
	return "no control group (" + why.Error() + ")"
}

func (b *bounds) memoryFact() (sandbox.Strength, string) {
	size := sizeOf(b.limits.Memory)
	if b.holds(cgroup.Memory) {
		return sandbox.Held, size + " by control group " + b.group.Version(cgroup.Memory) + ", scratch files and the kernel's own for it included"
	}
	return sandbox.Weaker, fmt.Sprintf("%s watched: %s; looked at every %v, then the largest process is ended, or everything; scratch files have as much again", size, b.without(cgroup.Memory), usual)
}

func (b *bounds) processorFact() (sandbox.Strength, string) {
	cpus := strconv.FormatFloat(b.limits.CPUs, 'g', -1, 64)
	switch {
	case b.holds(cgroup.CPU):
		return sandbox.Held, cpus + " processors' time by control group " + b.group.Version(cgroup.CPU)
	case b.pinned.n == 0 || b.pinned.seen != nil:
		return sandbox.Absent, fmt.Sprintf("not enforced: %s, %v", b.without(cgroup.CPU), b.pinned.seen)
	}
	return sandbox.Weaker, fmt.Sprintf("%s asked for: %s; it may run on %d of %d processors, behind all others of the host", cpus, b.without(cgroup.CPU), b.pinned.n, b.pinned.of)
}

func (b *bounds) processFact() (sandbox.Strength, string) {
	count := strconv.Itoa(b.limits.Processes) + " processes and threads"
	if b.asked.Processes == 0 {
		count += ", the usual number,"
	}
	switch {
	case b.holds(cgroup.Processes):
		return sandbox.Held, count + " by control group " + b.group.Version(cgroup.Processes)
	case b.user0:
		return sandbox.Absent, "not enforced: " + b.without(cgroup.Processes) + ", and the kernel exempts user 0 from what there is else"
	}
	return sandbox.Held, count + " by RLIMIT_NPROC, counted for this sandbox alone"
}

func (b *bounds) filesFact() (sandbox.Strength, string) {
	each := fmt.Sprintf("%d in each process", b.limits.Files)
	if b.asked.Files > b.limits.Files {
		each += fmt.Sprintf(", since %d would be more than half of the node's own", b.asked.Files)
	}
	return sandbox.Held, each
}

func (b *bounds) diskFact() (sandbox.Strength, string) {
	const rest = "; mounted directories are not limited"
	inner := b.inner(b.limits)
	if inner.Disk == 0 {
		return sandbox.Weaker, sizeOf(b.scratch) + " of scratch together, each directory with a size of its own" + rest
	}
	return sandbox.Weaker, sizeOf(inner.Disk) + " of scratch together by one file system of memory" + rest
}

// seen is what limits have been seen to do.
type seen struct {
	killed  int  // processes killed for memory
	refused int  // processes that could not be started
	reached bool // there were as many processes as may be
	all     bool // everything was ended for memory
}

func (b *bounds) seen() seen {
	counts := b.group.Counts()
	s := seen{killed: counts.Killed, refused: counts.Refused}
	if b.killed != nil {
		s.killed += b.killed()
	}
	b.watch.add(&s)
	return s
}

// tell adds to a command's end what limits did since before. killed says that
// somebody else sent it SIGKILL.
func (b *bounds) tell(e *sandbox.Exit, before seen, killed bool) {
	now := b.seen()
	dead := now.killed - before.killed
	limit := ": limit " + sizeOf(b.limits.Memory)
	var notes []string
	switch {
	case e.Signal == int(unix.SIGKILL) && !killed && (dead > 0 || now.all):
		e.OOM, e.Limit = true, "killed for memory"+limit
		if dead > 1 {
			notes = append(notes, fmt.Sprintf("%d processes in all were killed for memory%s", dead, limit))
		}
	case dead == 1:
		notes = append(notes, "a process that it started was killed for memory"+limit)
	case dead > 1:
		notes = append(notes, fmt.Sprintf("%d processes that it started were killed for memory%s", dead, limit))
	}
	switch refused := now.refused - before.refused; {
	case refused > 0:
		notes = append(notes, fmt.Sprintf("starting a process or thread was refused %d times: limit %d", refused, b.limits.Processes))
	case now.reached && !before.reached:
		notes = append(notes, fmt.Sprintf("there were as many processes and threads as may be: limit %d", b.limits.Processes))
	}
	e.Noted = strings.Join(notes, "; ")
	e.HitMemory = e.OOM || dead > 0
	e.HitProcesses = now.refused > before.refused || now.reached && !before.reached
}
