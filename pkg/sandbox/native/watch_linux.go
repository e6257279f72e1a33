package native

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// usual is how often a sandbox without a control group is looked at.
	usual = 250 * time.Millisecond
	// nearby is how often above half of its limit.
	nearby = 50 * time.Millisecond
	// tries is how many looks in a row may end a process before all end: a
	// bomb that starts anew each time is not ended one by one.
	tries = 10
)

// watch is what remains of a memory limit without a control group: somebody
// who looks. It also sees when there are as many processes as may be, since
// the kernel tells only the process that asked for one more.
type watch struct {
	memory    int64 // bytes; 0: nothing to end
	processes int   // 0: nothing to see

	mu   sync.Mutex // guards seen
	seen seen
}

func (w *watch) add(to *seen) {
	if w == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	to.killed += w.seen.killed
	to.reached = to.reached || w.seen.reached
	to.all = to.all || w.seen.all
}

// run looks until the helper, whose outer process root is, has ended. end ends
// everything.
func (w *watch) run(root int, done <-chan struct{}, end func()) {
	if w == nil {
		return
	}
	next := time.NewTimer(usual)
	defer next.Stop()
	over := 0
	for {
		select {
		case <-done:
			return
		case <-next.C:
		}
		all := processes(root)
		w.count(all)
		wait := usual
		switch used := used(all, w.memory); {
		case w.memory == 0:
		case used > w.memory && over >= tries:
			w.mu.Lock()
			w.seen.all = true
			w.mu.Unlock()
			end()
		case used > w.memory:
			wait = nearby
			over++
			w.endLargest(all)
		case used > w.memory/2:
			wait, over = nearby, 0
		default:
			over = 0
		}
		next.Reset(wait)
	}
}

func (w *watch) count(all []resident) {
	threads := 0
	for _, p := range all {
		threads += p.threads
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.seen.reached = w.seen.reached || w.processes > 0 && threads >= w.processes
}

func (w *watch) endLargest(all []resident) {
	var largest *resident
	for i := range all {
		if largest == nil || all[i].bytes > largest.bytes {
			largest = &all[i]
		}
	}
	if largest == nil {
		return
	}
	// Counted first: the command's end may be asked about at once.
	w.mu.Lock()
	w.seen.killed++
	w.mu.Unlock()
	if !largest.kill() {
		w.mu.Lock()
		w.seen.killed--
		w.mu.Unlock()
	}
}

// resident is one process inside.
type resident struct {
	pid     int
	began   string // when it was started, to know it again
	threads int
	bytes   int64 // resident; what is shared counts in each
}

// processes are those of the session: what stands below pid 1, which gets
// every orphan. Itself and the outer process are the engine's.
func processes(root int) []resident {
	var out []resident
	below := children(root)
	for depth := 0; len(below) > 0; depth++ {
		var next []int
		for _, pid := range below {
			next = append(next, children(pid)...)
			if depth == 0 {
				continue // pid 1
			}
			if p, ok := lookAt(pid); ok {
				out = append(out, p)
			}
		}
		below = next
	}
	return out
}

func children(pid int) []int {
	files, _ := filepath.Glob("/proc/" + strconv.Itoa(pid) + "/task/*/children")
	var out []int
	for _, file := range files {
		text, _ := os.ReadFile(file)
		for _, word := range strings.Fields(string(text)) {
			if child, err := strconv.Atoi(word); err == nil {
				out = append(out, child)
			}
		}
	}
	return out
}

// lookAt reads /proc/PID/stat, see proc_pid_stat(5): the fields behind the
// name, which may hold anything, begin with the third one.
func lookAt(pid int) (resident, bool) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return resident{}, false
	}
	f := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(f) < 22 {
		return resident{}, false
	}
	threads, _ := strconv.Atoi(f[17])
	pages, _ := strconv.ParseInt(f[21], 10, 64)
	return resident{pid: pid, began: f[19], threads: threads, bytes: pages * int64(os.Getpagesize())}, true
}

// used is the memory of all. The sum of what is resident counts what several
// share several times; only where that would be too much is each one's part
// asked for, which costs the kernel a walk over its pages.
func used(all []resident, enough int64) int64 {
	var sum, parts int64
	for _, p := range all {
		sum += p.bytes
	}
	if sum <= enough {
		return sum
	}
	for _, p := range all {
		parts += p.part()
	}
	return min(sum, parts)
}

// part is the process' proportional share, or all that is resident where the
// kernel does not tell.
func (p resident) part() int64 {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(p.pid) + "/smaps_rollup")
	if err != nil {
		return p.bytes
	}
	var sum int64
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && (f[0] == "Pss:" || f[0] == "SwapPss:") {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			sum += n << 10
		}
	}
	return sum
}

// kill goes by a descriptor, so that the number cannot come to mean another
// process in between.
func (p resident) kill() bool {
	fd, err := unix.PidfdOpen(p.pid, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if now, ok := lookAt(p.pid); !ok || now.began != p.began {
		return false
	}
	return unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) == nil
}
