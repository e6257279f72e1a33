package native

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// TestKilledHelperEndsTheSandbox kills each of the helper's two processes.
func TestKilledHelperEndsTheSandbox(t *testing.T) {
	for which, name := range []string{"outer process", "pid 1"} {
		t.Run(name, func(t *testing.T) {
			b := open(t, newWorld(t).spec()).(*box)
			p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"sleep", "600"}}, sandbox.Stdio{})
			check(t, err)
			pids, err := helpersOf(b.spec.ID, b.spec.Identity.UID)
			check(t, err)
			if len(pids) != 2 || pids[0] != b.helper.PID() {
				t.Fatalf("helpers %v, outer %d", pids, b.helper.PID())
			}
			check(t, unix.Kill(pids[which], unix.SIGKILL))
			select {
			case <-b.Done():
			case <-soon(t).Done():
				t.Fatal("the sandbox lives")
			}
			if exit, err := p.Wait(soon(t)); err != nil || exit.Code != 137 {
				t.Errorf("the command: %+v, %v", exit, err)
			}
			if _, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"true"}}, sandbox.Stdio{}); !errors.Is(err, sandbox.ErrGone) {
				t.Errorf("Exec: %v", err)
			}
			check(t, b.Remove(soon(t)))
		})
	}
}

// TestManyAtOnce starts and checks sandboxes side by side, which all live at one
// moment: nothing of one is seen by another, and all of them go.
func TestManyAtOnce(t *testing.T) {
	e := engine(t)
	spec := newWorld(t).spec()
	spec.Limits = sandbox.Limits{Memory: 256 << 20, Processes: 64, CPUs: 1}
	ctx := soon(t)
	many := 100
	if kerneltest.ShortOfLong() {
		many = 24
	}
	var all, living sync.WaitGroup
	living.Add(many)
	for i := range many {
		all.Go(func() {
			mine := spec
			mine.ID = fmt.Sprintf("%s-%d", spec.ID, i)
			up := sync.OnceFunc(living.Done)
			defer up() // also where it did not come so far
			if err := liveOnce(ctx, e, mine, func() { up(); living.Wait() }); err != nil {
				t.Errorf("%s: %v", mine.ID, err)
			}
		})
	}
	all.Wait()
	for i := range many {
		if pids, err := helpersOf(fmt.Sprintf("%s-%d", spec.ID, i), spec.Identity.UID); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
		for _, dir := range e.groups.Paths(fmt.Sprintf("%s-%d", spec.ID, i), wanted(spec.Limits)) {
			if _, err := os.Lstat(dir); !os.IsNotExist(err) {
				t.Errorf("left: %s, %v", dir, err)
			}
		}
	}
}

// liveOnce removes its sandbox when together has returned.
func liveOnce(ctx context.Context, e *Engine, spec sandbox.Spec, together func()) error {
	b, err := e.Prepare(ctx, spec)
	if err != nil {
		return err
	}
	defer b.Listener().Close()
	go serve(b.Listener())
	if _, err := b.Check(ctx); err != nil {
		return err
	}
	// Eight processes at most: ps of another's sandbox would show more.
	p, err := b.Exec(ctx, sandbox.Command{Argv: []string{"sh", "-c", "[ $(ls -d /proc/[0-9]* | wc -l) -lt 8 ]"}}, sandbox.Stdio{})
	if err != nil {
		return err
	}
	exit, err := p.Wait(ctx)
	if err == nil && exit.Code != 0 {
		err = errors.New("sees processes of others")
	}
	together()
	return errors.Join(err, b.Remove(ctx))
}

// TestRemoveIsBounded: a caller's writer that blocks holds Remove up for as
// long as its context, and no longer.
func TestRemoveIsBounded(t *testing.T) {
	b := open(t, newWorld(t).spec())
	w := blocked{entered: make(chan struct{}), free: make(chan struct{})}
	_, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"echo", "x"}}, sandbox.Stdio{Stdout: w})
	check(t, err)
	<-w.entered
	brief, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Remove(brief); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
	<-b.Done() // all the same
	close(w.free)
	check(t, b.Remove(soon(t)))
}

type blocked struct{ entered, free chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	close(b.entered)
	<-b.free
	return len(p), nil
}
