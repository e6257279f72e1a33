package escape

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// nested is a tool with several threads that sets up sandboxes of its own: rules of
// Landlock for one thread, then for all, twice, and a filter for all. After each it
// has every thread, and at last a program that it starts, try what must go on and
// what must not. It says what was otherwise.
//
// The repository holds the directories one and two, which the tool's own rules leave
// to it, and other, which they take from it. What is held is the sandbox's to refuse.
func nested(repo, held string, filters bool, stdout io.Writer) int {
	n := nest{repo: repo, held: held, filters: filters, stdout: stdout}
	if err := n.run(); err != nil {
		n.say("%v", err)
	}
	return min(n.said, 1)
}

type nest struct {
	repo, held string
	filters    bool
	stdout     io.Writer

	mu   sync.Mutex // guards said, and stdout
	said int
}

func (n *nest) say(format string, args ...any) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.said++
	fmt.Fprintf(n.stdout, format+"\n", args...)
}

// threads is how many there are beside the runtime's own.
const threads = 4

func (n *nest) run() error {
	all := make([]chan func(int), threads)
	var alive sync.WaitGroup
	defer alive.Wait()
	for i := range all {
		all[i] = make(chan func(int))
		defer close(all[i])
		alive.Go(func() {
			runtime.LockOSThread() // and it ends with the goroutine
			for do := range all[i] {
				do(i)
			}
		})
	}
	each := func(do func(thread int)) {
		var done sync.WaitGroup
		for i := range all {
			done.Add(1)
			all[i] <- func(i int) { defer done.Done(); do(i) }
		}
		done.Wait()
	}
	each(func(i int) { n.try("as it is", i, false) })

	rules, err := n.rules()
	if err != nil {
		return err
	}
	var one error
	each(func(i int) {
		if i == 0 {
			_, _, one = restrict(syscall.Syscall, rules)
		}
	})
	if one != nil {
		return fmt.Errorf("rules for one thread: %w", one)
	}
	each(func(i int) { n.try("rules for the first thread", i, i == 0) })
	for _, when := range []string{"rules for all", "rules for all twice"} {
		if _, _, err := restrict(syscall.AllThreadsSyscall, rules); err != nil {
			return fmt.Errorf("%s: %w", when, err)
		}
		each(func(i int) { n.try(when, i, true) })
	}
	if n.filters {
		if err := filterAll(); err != nil {
			return fmt.Errorf("a filter for all: %w", err)
		}
		each(func(i int) {
			n.try("a filter for all", i, true)
			if _, err := unix.Getpriority(unix.PRIO_PROCESS, 0); !errors.Is(err, unix.EXDEV) {
				n.say("thread %d: the tool's own filter: %v", i, err)
			}
		})
	}
	said, err := exec.Command("/proc/self/exe", "nested-in", n.repo, n.held).CombinedOutput()
	if err != nil {
		return fmt.Errorf("the program that the tool starts: %w: %s", err, said)
	}
	return nil
}

// nestedIn is the program that such a tool starts.
func nestedIn(repo, held string, stdout io.Writer) int {
	n := nest{repo: repo, held: held, stdout: stdout}
	n.try("started", threads, true)
	return min(n.said, 1)
}

// try does what must go on in this thread, and what must not.
func (n *nest) try(when string, thread int, own bool) {
	name := fmt.Sprintf("f%d", thread)
	one, two, other := filepath.Join(n.repo, "one", name), filepath.Join(n.repo, "two", name), filepath.Join(n.repo, "other", name)
	for _, act := range []struct {
		what    string
		err     error
		refused bool
	}{
		{"making a file", os.WriteFile(one, []byte("x"), 0o600), false},
		{"moving it to another directory", os.Rename(one, two), false},
		{"linking it from another directory", os.Link(two, one), false},
		{"moving it over one in another directory", os.Rename(two, one), false},
		{"removing it", errors.Join(os.Remove(one), gone(two)), false},
		{"writing to the null device", os.WriteFile("/dev/null", []byte("x"), 0), false},
		{"writing where the tool's rules allow nothing", os.WriteFile(other, nil, 0o600), own},
		{"writing where the sandbox allows nothing", os.WriteFile(filepath.Join(n.held, name), nil, 0o600), true},
		{"moving a directory over what is held", os.Rename(filepath.Join(n.repo, "over"), n.held), true},
		{"moving what is held", os.Rename(n.held, filepath.Join(n.repo, "one", "held")), true},
		{"leaving for namespaces", unix.Unshare(unix.CLONE_NEWUSER | unix.CLONE_NEWNS), true},
	} {
		if (act.err != nil) != act.refused {
			n.say("%s, thread %d: %s: %v", when, thread, act.what, act.err)
		}
	}
}

// gone removes what a rename of two names of one file leaves: both.
func gone(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}

// change is what the tool may do in its own directories.
const change = unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_REMOVE_DIR | unix.LANDLOCK_ACCESS_FS_REMOVE_FILE |
	unix.LANDLOCK_ACCESS_FS_MAKE_DIR | unix.LANDLOCK_ACCESS_FS_MAKE_REG | unix.LANDLOCK_ACCESS_FS_REFER | unix.LANDLOCK_ACCESS_FS_TRUNCATE

// rules are those of a tool that lets itself change two directories only. Without
// the right to move, each layer would forbid that for itself.
func (n *nest) rules() (fd uintptr, err error) {
	attr := unix.LandlockRulesetAttr{Handled_access_fs: change}
	fd, _, errno := syscall.Syscall(unix.SYS_LANDLOCK_CREATE_RULESET, uintptr(unsafe.Pointer(&attr)), 8, 0) // #nosec: as the call wants it
	if errno != 0 {
		return 0, fmt.Errorf("making rules: %w", errno)
	}
	for path, access := range map[string]uint64{
		filepath.Join(n.repo, "one"): change, filepath.Join(n.repo, "two"): change,
		"/dev/null": unix.LANDLOCK_ACCESS_FS_WRITE_FILE | unix.LANDLOCK_ACCESS_FS_TRUNCATE,
	} {
		at, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return 0, fmt.Errorf("a rule for %s: %w", path, err)
		}
		// Packed, as the kernel reads it: a right of eight bytes and a descriptor of four.
		rule := unix.LandlockPathBeneathAttr{Allowed_access: access, Parent_fd: int32(at)}
		_, _, errno := syscall.Syscall6(unix.SYS_LANDLOCK_ADD_RULE, fd, unix.LANDLOCK_RULE_PATH_BENEATH, uintptr(unsafe.Pointer(&rule)), 0, 0, 0) // #nosec: as above
		unix.Close(at)
		if errno != 0 {
			return 0, fmt.Errorf("a rule for %s: %w", path, errno)
		}
	}
	return fd, nil
}

func restrict(call func(trap, a1, a2, a3 uintptr) (r1, r2 uintptr, err syscall.Errno), rules uintptr) (r1, r2 uintptr, err error) {
	r1, r2, errno := call(unix.SYS_LANDLOCK_RESTRICT_SELF, rules, 0, 0)
	if errno != 0 {
		err = errno
	}
	return r1, r2, err
}

// filterAll has one call answered with EXDEV in every thread at once.
func filterAll() error {
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0}, // the call's number
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_GETPRIORITY, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EXDEV)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	thread, _, errno := syscall.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&program))) // #nosec: as above
	switch {
	case errno != 0:
		return errno
	case thread != 0:
		return fmt.Errorf("thread %d has filters of its own", thread)
	}
	return nil
}
