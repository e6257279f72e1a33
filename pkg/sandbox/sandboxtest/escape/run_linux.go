package escape

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// errKilled stands for a thread that a filter has killed.
var errKilled = errors.New("the thread was killed")

// How the attack program is called:
//
//	attack run ARENA NAME…   each attempt in a process of its own; a Result as
//	                         JSON on a line of stdout for each
//	attack run-own ARENA NAME…  the same, each as the root of namespaces of its
//	                         own, where the first process is its own as well
//	attack one ARENA NAME    one attempt in this process; one Result
//	attack own ARENA NAME    the same, as such a first process, by a child
//	attack victim            be attacked until stdin ends
//	attack nested REPO HELD WITH  be a tool with sandboxes of its own, "rules" or
//	                         "rules and a filter"; a line for each thing that was
//	                         otherwise, and then exit code 1
//	attack nested-in REPO HELD  be what such a tool starts
//
// ARENA is an [Arena] as JSON. The exit code is 0 wherever there are results.

// Main is the attack program without its main.
func Main(args []string, stdin io.Reader, stdout io.Writer) int {
	switch {
	case len(args) == 1 && args[0] == "nothing":
		return 0
	case len(args) == 1 && args[0] == "am-i-root":
		return min(os.Geteuid(), 1)
	case len(args) == 1 && args[0] == "victim":
		return victim(stdin, stdout)
	case len(args) >= 3 && args[0] == "run":
		return run(args[1], args[2:], stdout, apart)
	case len(args) >= 3 && args[0] == "run-own":
		return run(args[1], args[2:], stdout, inOwn)
	case len(args) == 3 && args[0] == "own":
		return own(args[1], args[2], stdout)
	case len(args) == 4 && args[0] == "nested":
		return nested(args[1], args[2], args[3] != "rules", stdout)
	case len(args) == 3 && args[0] == "nested-in":
		return nestedIn(args[1], args[2], stdout)
	case len(args) == 3 && args[0] == "one":
		return one(args[1], args[2], stdout)
	}
	return 2
}

func one(arena, name string, stdout io.Writer) int {
	var a Arena
	if err := json.Unmarshal([]byte(arena), &a); err != nil {
		return 2
	}
	all := Attempts()
	i := slices.IndexFunc(all, func(a Attempt) bool { return a.Name == name })
	if i < 0 {
		return 2
	}
	err := all[i].do(&a)
	r := outcome(err)
	if errors.Is(err, errKilled) {
		r = Result{Outcome: "SIGSYS", Detail: err.Error()}
	}
	r.Name = name
	if json.NewEncoder(stdout).Encode(r) != nil {
		return 1
	}
	return 0
}

func run(arena string, names []string, stdout io.Writer, try func(arena, name string) Result) int {
	out := json.NewEncoder(stdout)
	for _, name := range names {
		if out.Encode(try(arena, name)) != nil {
			return 1
		}
	}
	return 0
}

// apart makes one attempt in a process, which a filter may kill.
func apart(arena, name string) Result {
	return answer(name, &syscall.SysProcAttr{Setsid: true}, "one", arena, name)
}

// inOwn makes one attempt as root of namespaces of its own. No file, process or
// mount of the host is more within reach than before.
func inOwn(arena, name string) Result {
	return answer(name, &syscall.SysProcAttr{
		Setsid:      true,
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}, "own", arena, name)
}

// own is the first process of new namespaces: it mounts what there is to
// attack, a repository and its read-only configuration, and has a child attack.
func own(arena, name string, stdout io.Writer) int {
	var a Arena
	if err := json.Unmarshal([]byte(arena), &a); err != nil {
		return 2
	}
	for _, m := range []struct {
		from, at, kind string
		flags          uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{a.Repo, a.Repo, "", unix.MS_BIND | unix.MS_REC},
		{config(&a), config(&a), "", unix.MS_BIND},
		{"", config(&a), "", unix.MS_BIND | unix.MS_REMOUNT | unix.MS_RDONLY | locked(config(&a))},
	} {
		if err := unix.Mount(m.from, m.at, m.kind, m.flags, ""); err != nil {
			fmt.Fprintf(os.Stderr, "mounting %s: %v\n", m.at, err)
			return 1
		}
	}
	cmd := exec.Command("/proc/self/exe", "one", arena, name)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Stdout = stdout
	if cmd.Run() != nil {
		return 1
	}
	return 0
}

// locked are the flags of a mount that a remount may not leave out.
func locked(path string) uintptr {
	var is unix.Statfs_t
	if unix.Statfs(path, &is) != nil {
		return 0
	}
	return uintptr(is.Flags) & (unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC | unix.MS_NOATIME | unix.MS_NODIRATIME | unix.MS_RELATIME)
}

// answer runs this program once more and returns what it says of one attempt.
func answer(name string, as *syscall.SysProcAttr, args ...string) Result {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "/proc/self/exe", args...)
	cmd.SysProcAttr = as
	cmd.Stderr = os.Stderr
	cmd.WaitDelay = time.Second
	var said bytes.Buffer
	cmd.Stdout = &said
	err := cmd.Run()
	var r Result
	if json.Unmarshal(said.Bytes(), &r) == nil && r.Name == name {
		return r // it has an answer, however it ended
	}
	r = Result{Name: name, Outcome: "no answer", Detail: fmt.Sprint(err)}
	if ctx.Err() != nil {
		r.Outcome = Hangs
	} else if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		r.Outcome = unix.SignalName(status.Signal())
	}
	return r
}

// A Runner starts the attack program with arguments where the attempts are to
// be made, and returns its standard output.
type Runner func(ctx context.Context, args []string) (stdout []byte, err error)

// Try makes the attempts by run and returns a Result for each, in order. An
// attempt without an answer is an error: it has not been seen to fail.
func Try(ctx context.Context, attempts []Attempt, a *Arena, run Runner) ([]Result, error) {
	arena, err := json.Marshal(a)
	if err != nil {
		return nil, fmt.Errorf("encoding the arena: %w", err)
	}
	args := []string{"run", string(arena)}
	for _, at := range attempts {
		args = append(args, at.Name)
	}
	out, err := run(ctx, args)
	if err != nil {
		return nil, fmt.Errorf("running the attack program: %w", err)
	}
	var results []Result
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		var r Result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("answer %q of the attack program: %w", lines.Bytes(), err)
		}
		if i := len(results); i >= len(attempts) || attempts[i].Name != r.Name {
			return nil, fmt.Errorf("answer to %q, which was not next", r.Name)
		}
		results = append(results, r)
	}
	if len(results) != len(attempts) {
		return nil, fmt.Errorf("%d answers to %d attempts", len(results), len(attempts))
	}
	return results, nil
}
