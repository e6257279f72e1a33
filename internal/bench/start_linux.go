package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/bench/stamp"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Starts measures from asking for a sandbox to the first instruction of the
// command in it, and to its being gone, beside a plain process and bubblewrap
// with the same binds. spec makes the specification of a session with the
// given id; its sandbox does not outlive the measurement.
func Starts(ctx context.Context, runs int, engine sandbox.Engine, spec func(id string) (sandbox.Spec, error)) ([]Row, error) {
	dir, err := os.MkdirTemp("", "mojoup-bench")
	if err != nil {
		return nil, fmt.Errorf("making a directory to measure in: %w", err)
	}
	defer os.RemoveAll(dir)
	program, err := stamp.Install(dir)
	if err != nil {
		return nil, err
	}
	s := starts{engine: engine, spec: spec, dir: dir, program: program}
	var floors, ends []measure
	if bwrap, err := exec.LookPath("bwrap"); err == nil {
		args, err := s.bwrapArgs()
		if err != nil {
			return nil, err
		}
		floors = append(floors, measure{peer, "", s.external(bwrap, append(args[:len(args):len(args)], program)...)})
		ends = append(ends, measure{peerEnd, "", s.goneOf(bwrap, append(args[:len(args):len(args)], "/usr/bin/cat")...)})
	}
	// Of a sandbox that has ended the kernel still takes namespaces away for 10
	// to 20 ms, and what is started next pays for some of that. So each start
	// comes after an end of the other's. A pause would be worse: on a machine
	// that goes to sleep in it, that is what would be measured.
	rows, err := inTurn(ctx, runs, slices.Concat([]measure{
		{"plain process, first instruction", "", s.plain},
		{"sandbox, end until gone", peerEnd, s.gone},
	}, floors, ends, []measure{
		{"sandbox, first instruction", peer, s.first},
	}))
	if err != nil {
		return rows, err
	}
	if k, ok := engine.(keeper); ok {
		warm, err := s.warm(ctx, runs, k, floors)
		if rows = append(rows, warm...); err != nil {
			return rows, err
		}
	}
	// A second turn for a node that has grown: making so much memory, and
	// giving it back, would disturb whatever is measured beside it.
	const grown = ", 1 GiB heap in the node"
	s.grow(1 << 30)
	for i := range floors {
		floors[i].name += grown
	}
	more, err := inTurn(ctx, runs, append(floors, measure{"sandbox, first instruction" + grown, peer + grown, s.first}))
	runtime.KeepAlive(s.ballast)
	return append(rows, more...), err
}

const (
	peer    = "bubblewrap, first instruction"
	peerEnd = "bubblewrap, end until gone"
)

// keeper is an engine that says when a spare waits.
type keeper interface {
	sandbox.Keeper
	Waiting(ctx context.Context) error
}

// saves is what the figures of two rows do not say by themselves.
const saves = "on control groups version 1 a cold start makes, joins and bounds a group in each tree and moves no process, since a move waits for every processor (7 to 15 ms); a spare has its groups and limits already"

// warm measures starts that find a spare. To make the next one is not part of
// a start, nor of what is measured beside it.
func (s *starts) warm(ctx context.Context, runs int, k keeper, floors []measure) ([]Row, error) {
	keeping, end := context.WithCancel(ctx)
	var kept sync.WaitGroup
	defer kept.Wait()
	defer end()
	kept.Go(func() {
		k.Keep(keeping, sandbox.Keeping{
			Spares: 1, Claimed: func(string, string) {}, Settled: func(string) {},
			Note: func(context.Context, string, []sandbox.Undo) error { return nil },
		})
	})
	const with = ", a spare waits"
	var ms []measure
	for _, f := range floors {
		ms = append(ms, measure{f.name + with, "", f.once})
	}
	begun := false
	rows, err := inTurn(ctx, runs, append(ms, measure{"sandbox, first instruction" + with, peer + with, func(ctx context.Context) (time.Duration, error) {
		took, err := s.first(ctx)
		if err != nil || begun {
			return took, errors.Join(err, k.Waiting(ctx))
		}
		// The keeper may begin while the first is made already.
		for !begun && err == nil {
			soon, cancel := context.WithTimeout(ctx, time.Second)
			begun = k.Waiting(soon) == nil
			cancel()
			if !begun {
				took, err = s.first(ctx)
			}
		}
		return took, err
	}}))
	if len(rows) > 0 {
		rows[len(rows)-1].Note = saves
	}
	return rows, err
}

// goneOf measures the end of a command that copies: from the signal to its
// outermost process until none inside has anything open any more.
func (s *starts) goneOf(name string, args ...string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		cmd := exec.CommandContext(ctx, name, args...)
		in, err := cmd.StdinPipe()
		if err != nil {
			return 0, err
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			return 0, err
		}
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		_, err = in.Write([]byte("x"))
		if err == nil {
			_, err = io.ReadFull(out, make([]byte, 1))
		}
		begun := clock()
		err = errors.Join(err, cmd.Process.Kill())
		_, rerr := io.Copy(io.Discard, out)
		took := clock() - begun
		_ = cmd.Wait() // killed
		return took, errors.Join(err, rerr)
	}
}

type starts struct {
	engine  sandbox.Engine
	spec    func(id string) (sandbox.Spec, error)
	dir     string
	program string
	count   int
	ballast []byte
}

// clock is the clock that the stamp tells.
func clock() time.Duration {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // cannot fail for this clock
	return time.Duration(ts.Nano())
}

func (s *starts) plain(ctx context.Context) (time.Duration, error) {
	return s.external(s.program)(ctx)
}

// external measures a command that ends up starting the stamp.
func (s *starts) external(name string, args ...string) func(context.Context) (time.Duration, error) {
	return func(ctx context.Context) (time.Duration, error) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Stdout, cmd.WaitDelay = &out, time.Second
		begun := clock()
		err := cmd.Run()
		return since(begun, &out, err)
	}
}

func since(begun time.Duration, out *bytes.Buffer, err error) (time.Duration, error) {
	if err != nil {
		return 0, err
	}
	if out.Len() != stamp.Size {
		return 0, fmt.Errorf("the measured program wrote %d bytes", out.Len())
	}
	return stamp.Read([stamp.Size]byte(out.Bytes())) - begun, nil
}

// bwrapArgs gives bubblewrap every namespace and the binds of our own spec.
// Files that we make from memory it does without.
func (s *starts) bwrapArgs() ([]string, error) {
	spec, err := s.next()
	if err != nil {
		return nil, err
	}
	args := []string{"--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"}
	for _, m := range spec.Mounts {
		switch {
		case m.Kind == sandbox.Link:
			args = append(args, "--symlink", m.Source, m.Target)
		case m.Kind == sandbox.Scratch:
			args = append(args, "--tmpfs", m.Target)
		case m.Kind == sandbox.Bind && m.Access == sandbox.ReadWrite:
			args = append(args, "--bind-try", m.Source, m.Target)
		case m.Kind == sandbox.Bind:
			args = append(args, "--ro-bind-try", m.Source, m.Target)
		}
	}
	return append(args, "--"), nil
}

// next is the specification of one more sandbox, with the stamp in it.
func (s *starts) next() (sandbox.Spec, error) {
	s.count++
	spec, err := s.spec(fmt.Sprintf("bench-%d-%d", os.Getpid(), s.count))
	spec.Mounts = append(spec.Mounts, sandbox.Mount{Kind: sandbox.Bind, Source: s.dir, Target: s.dir})
	return spec, err
}

// first measures a start as the node does it: prepared, served, checked from
// inside, and only then the command.
func (s *starts) first(ctx context.Context) (time.Duration, error) {
	took, box, err := s.start(ctx)
	if err != nil {
		return 0, err
	}
	return took, box.Remove(ctx)
}

// grow keeps so much touched memory in this process.
func (s *starts) grow(heap int) {
	s.ballast = make([]byte, heap)
	for i := 0; i < heap; i += os.Getpagesize() {
		s.ballast[i] = 1
	}
}

func (s *starts) gone(ctx context.Context) (time.Duration, error) {
	_, box, err := s.start(ctx)
	if err != nil {
		return 0, err
	}
	begun := clock()
	err = box.Remove(ctx)
	return clock() - begun, err
}

func (s *starts) start(ctx context.Context) (time.Duration, sandbox.Sandbox, error) {
	spec, err := s.next()
	if err != nil {
		return 0, nil, err
	}
	begun := clock()
	box, err := s.engine.Prepare(ctx, spec)
	if err != nil {
		return 0, nil, err
	}
	end := serveHealth(box.Listener())
	defer end()
	took, err := s.stamped(ctx, box, begun)
	if err != nil {
		return 0, nil, errors.Join(err, box.Remove(ctx))
	}
	return took, box, nil
}

func (s *starts) stamped(ctx context.Context, box sandbox.Sandbox, begun time.Duration) (time.Duration, error) {
	if _, err := box.Check(ctx); err != nil {
		return 0, err
	}
	var out bytes.Buffer
	proc, err := box.Exec(ctx, sandbox.Command{Argv: []string{filepath.Join(s.dir, "stamp")}, Dir: "/"}, sandbox.Stdio{Stdout: &out, Stderr: io.Discard})
	if err != nil {
		return 0, err
	}
	exit, err := proc.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = fmt.Errorf("the measured program ended with %d", exit.Code)
	}
	return since(begun, &out, err)
}

// serveHealth answers the self-check as the way out does.
func serveHealth(ln net.Listener) (end func()) {
	srv := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) }), ReadHeaderTimeout: time.Minute}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	return func() { _ = srv.Close(); <-done }
}
