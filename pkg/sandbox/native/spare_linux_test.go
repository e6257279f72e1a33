package native

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

// asKeeper makes this test binary a node that keeps spares in the directory
// that it names, and says what it has noted down.
const asKeeper = "MOJOUP_TEST_KEEPER"

// ledger is what a node writes down of spares.
type ledger struct {
	mu      sync.Mutex
	noted   map[string][]sandbox.Undo
	claimed map[string]string
	settled map[string]bool
}

func newLedger() *ledger {
	return &ledger{noted: map[string][]sandbox.Undo{}, claimed: map[string]string{}, settled: map[string]bool{}}
}

func (l *ledger) keeping(n int) sandbox.Keeping {
	locked := func(do func()) { l.mu.Lock(); defer l.mu.Unlock(); do() }
	return sandbox.Keeping{
		Spares: n,
		Note: func(_ context.Context, id string, u []sandbox.Undo) error {
			locked(func() { l.noted[id] = u })
			return nil
		},
		Claimed: func(id, by string) { locked(func() { l.claimed[id] = by }) },
		Settled: func(id string) { locked(func() { l.settled[id] = true }) },
	}
}

// unsettled are the spares that were noted and of which something may be left.
func (l *ledger) unsettled() (out []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for id := range l.noted {
		if !l.settled[id] {
			out = append(out, id)
		}
	}
	return out
}

// warm is the engine with a spare ready for each sandbox before it is asked
// for, as far as one can be made.
type warm struct {
	*Engine
	k sandbox.Keeping
}

func warmEngine(tb testing.TB, n int) (warm, *ledger) {
	tb.Helper()
	l := newLedger()
	w := warm{engine(tb), l.keeping(n)}
	w.spares.keeping = &w.k
	tb.Cleanup(func() {
		w.dropAll(soonest())
		if left := l.unsettled(); len(left) > 0 && !tb.Failed() {
			tb.Errorf("something of %q may be left", left)
		}
	})
	return w, l
}

func (w warm) fill(ctx context.Context, s sandbox.Spec) {
	w.spares.follow(s)
	w.refill(ctx, w.k)
}

func (w warm) Prepare(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	if validate(s) == nil && validateIdentity(s.Identity) == nil && ctx.Err() == nil {
		w.fill(ctx, s)
	}
	return w.Engine.Prepare(ctx, s)
}

// claimed prepares a sandbox and reports whether it was made of a spare.
func (w warm) claimed(tb testing.TB, s sandbox.Spec) (*box, bool) {
	tb.Helper()
	made, err := w.Engine.Prepare(soon(tb), s)
	check(tb, err)
	b := made.(*box)
	go serve(b.Listener())
	tb.Cleanup(func() {
		b.Listener().Close()
		if err := b.Remove(soonest()); err != nil {
			tb.Error(err)
		}
	})
	return b, b.settle != nil
}

// TestSuiteWithSpares: a sandbox that was begun before anybody asked for it is
// like any other.
func TestSuiteWithSpares(t *testing.T) {
	kerneltest.Long(t)
	engine(t) // skips where there can be none
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine { w, _ := warmEngine(t, 1); return w }, sandboxtest.Options{Confines: true})
}

// shared is a Spec of which a spare holds as much as it can.
func (w *world) shared() sandbox.Spec {
	s := w.spec()
	s.Shared = len(s.Mounts) - 1 // all but the repository
	return s
}

func TestSpareBecomesASandbox(t *testing.T) {
	e, l := warmEngine(t, 1)
	spec := newWorld(t).shared()
	spec.Protect = append(spec.Protect, sandbox.Protection{Path: filepath.Join(filepath.Dir(spec.Protect[0].Path), ".mojoup"), Guard: sandbox.HoldDir})
	e.fill(soon(t), spec)
	b, warm := e.claimed(t, spec)
	if !warm {
		t.Fatal("the spare was not used")
	}
	_, err := b.Check(soon(t))
	check(t, err)
	want(t, b, map[string]string{"ls /": "bin\ndev\netc\nlib\nlib64\nproc\nrun\ntmp\nusr"})
	// What the journal of the session names finds it.
	pids, err := helpersOf(spec.ID, spec.Identity.UID)
	check(t, err)
	if len(pids) != 1 {
		t.Errorf("found by its name: %v", pids)
	}
	if len(l.claimed) != 1 || len(l.settled) != 0 {
		t.Errorf("claimed %v, settled %v", l.claimed, l.settled)
	}
	did, err := e.Sweep(soon(t), e.Undo(spec)[0])
	check(t, err)
	if did != "ended 1 processes of sandbox "+spec.ID {
		t.Errorf("sweeping said %q", did)
	}
	<-b.Done()
	check(t, b.Remove(soon(t)))
	if left := l.unsettled(); len(left) > 0 {
		t.Errorf("not settled: %q", left)
	}
}

// TestSpareIsUsedOnce asks for more sandboxes at once than there are spares.
func TestSpareIsUsedOnce(t *testing.T) {
	const spares, asked = 3, 12
	e, l := warmEngine(t, spares)
	spec := newWorld(t).shared()
	e.fill(soon(t), spec)
	if n := e.spares.count(); n != spares {
		t.Fatalf("%d spares wait", n)
	}
	ctx := soon(t)
	var mu sync.Mutex
	warm, pids := 0, map[int]bool{}
	var all sync.WaitGroup
	for i := range asked {
		all.Go(func() {
			mine := spec
			mine.ID = fmt.Sprintf("%s-%d", spec.ID, i)
			made, err := e.Engine.Prepare(ctx, mine)
			if err != nil {
				t.Errorf("%s: %v", mine.ID, err)
				return
			}
			b := made.(*box)
			mu.Lock()
			if pids[b.helper.PID()] {
				t.Errorf("helper %d serves two sandboxes", b.helper.PID())
			}
			pids[b.helper.PID()] = true
			if b.settle != nil {
				warm++
			}
			mu.Unlock()
			defer b.Listener().Close()
			go serve(b.Listener())
			if _, err := b.Check(ctx); err != nil {
				t.Errorf("%s: %v", mine.ID, err)
			}
			check(t, b.Remove(ctx))
		})
	}
	all.Wait()
	if warm != spares || len(l.claimed) != spares {
		t.Errorf("%d sandboxes of %d spares, %v", warm, spares, l.claimed)
	}
}

// TestSpareHasTheLimits: what was begun before the session is bound as the
// session is.
func TestSpareHasTheLimits(t *testing.T) {
	e, _ := warmEngine(t, 1)
	spec := newWorld(t).shared()
	spec.Limits = sandbox.Limits{Processes: 24, Memory: 256 << 20, CPUs: 1, Files: 100}
	e.fill(soon(t), spec)
	b, warm := e.claimed(t, spec)
	if !warm {
		t.Fatal("the spare was not used")
	}
	check(t, b.bounds.verify(b.helper.PID()))
	enforced, err := b.Check(soon(t))
	check(t, err)
	for _, f := range enforced {
		if f.Name == "process limit" && !strings.HasPrefix(f.Detail, "24 ") {
			t.Errorf("%s: %s", f.Name, f.Detail)
		}
	}
	if out, _ := sh(t, b, "ulimit -n"); out != "100\n" {
		t.Errorf("open files: %q", out)
	}
	if out, _ := sh(t, b, "for i in $(seq 40); do sleep 60 & done 2>&1 | grep -m1 -o fork"); out != "fork\n" {
		t.Errorf("forty processes: %q", out)
	}
}

// TestSpareFitsItsOwnOnly changes one thing at a time that a spare has of its
// Spec. The sandbox is then made without it.
func TestSpareFitsItsOwnOnly(t *testing.T) {
	w := newWorld(t)
	good := w.shared()
	for name, change := range map[string]func(*sandbox.Spec){
		"memory":    func(s *sandbox.Spec) { s.Limits.Memory = 1 << 30 },
		"processes": func(s *sandbox.Spec) { s.Limits.Processes = 100 },
		"disk":      func(s *sandbox.Spec) { s.Limits.Disk = 32 << 20 },
		"text":      func(s *sandbox.Spec) { s.Mounts[6].Content = []byte("other:x:1:1::/:/bin/sh\n") },
		"access":    func(s *sandbox.Spec) { s.Mounts[0].NoExec = true },
		"fewer":     func(s *sandbox.Spec) { s.Shared-- },
		"proxy":     func(s *sandbox.Spec) { s.Proxy = "127.0.0.1:3129" },
		"host name": func(s *sandbox.Spec) { s.Hostname = "other" },
	} {
		e, _ := warmEngine(t, 1)
		e.fill(soon(t), good)
		spec := good
		spec.Mounts = append([]sandbox.Mount(nil), good.Mounts...)
		change(&spec)
		if e.claim(soon(t), spec) != nil {
			t.Errorf("%s: used for another", name)
		}
		spec = good
		spec.Limits.Wall = time.Hour // the node's to carry out
		if _, warm := e.claimed(t, spec); !warm {
			t.Errorf("%s: not used for its own", name)
		}
	}
	other := good
	other.Identity.Groups = []int{4}
	e, _ := warmEngine(t, 1)
	e.fill(soon(t), good)
	if e.claim(soon(t), other) != nil {
		t.Error("used for another identity")
	}
}

// TestSpareOfAnotherHostIsNotUsed: the host puts another file in the place of
// one that the spare has mounted, or the spare has died.
func TestSpareOfAnotherHostIsNotUsed(t *testing.T) {
	for name, change := range map[string]func(t *testing.T, e warm, file string){
		"replaced": func(t *testing.T, _ warm, file string) {
			check(t, os.WriteFile(file+".new", []byte("new"), 0o644))
			check(t, os.Rename(file+".new", file))
		},
		"dead": func(t *testing.T, e warm, file string) {
			check(t, os.WriteFile(file, []byte("new"), 0o644))
			one := e.spares.waiting[0]
			check(t, unix.Kill(one.helper.PID(), unix.SIGKILL))
			<-one.helper.Done()
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			e, l := warmEngine(t, 1)
			file := filepath.Join(w.dir, "file")
			check(t, os.WriteFile(file, []byte("old"), 0o644))
			spec := w.spec()
			last := len(spec.Mounts) - 1
			spec.Mounts = append(spec.Mounts[:last:last], sandbox.Mount{Kind: sandbox.Bind, Source: file, Target: "/opt/file"}, spec.Mounts[last])
			spec.Shared = last + 1
			e.fill(soon(t), spec)
			change(t, e, file)
			b, warm := e.claimed(t, spec)
			if warm {
				t.Error("used all the same")
			}
			if out, _ := sh(t, b, "cat /opt/file"); out != "new" {
				t.Errorf("inside: %q", out)
			}
			e.spares.dropping.Wait()
			if left := l.unsettled(); len(left) > 0 {
				t.Errorf("not taken away: %q", left)
			}
		})
	}
}

// TestKeepLeavesNothing: a node that ends takes its spares with it.
func TestKeepLeavesNothing(t *testing.T) {
	e := engine(t)
	l := newLedger()
	k := l.keeping(2)
	ctx, end := context.WithCancel(soon(t))
	var keeper sync.WaitGroup
	keeper.Go(func() { e.Keep(ctx, k) })
	defer keeper.Wait()
	defer end()
	spec := newWorld(t).shared()
	spec.Limits = sandbox.Limits{Memory: 256 << 20, Processes: 64}
	for { // until the keeper has begun
		b, err := e.Prepare(soon(t), spec)
		check(t, err)
		b.Listener().Close()
		check(t, b.Remove(soon(t)))
		e.spares.mu.Lock()
		begun := e.spares.model != nil
		e.spares.mu.Unlock()
		if begun {
			break
		}
	}
	check(t, e.Waiting(soon(t)))
	end()
	keeper.Wait()
	if n := e.spares.count(); n > 0 {
		t.Errorf("%d spares wait", n)
	}
	if len(l.noted) == 0 || len(l.unsettled()) > 0 {
		t.Errorf("noted %v, settled %v", l.noted, l.settled)
	}
	nothingLeft(t, e, l.noted, spec.Identity.UID)
}

// nothingLeft wants that whatever was noted is gone.
func nothingLeft(t *testing.T, e *Engine, noted map[string][]sandbox.Undo, uid int) {
	t.Helper()
	for id, undo := range noted {
		if pids, err := helpersOf(id, uid); err != nil || len(pids) > 0 {
			t.Errorf("left of %s: %v, %v", id, pids, err)
		}
		for _, u := range undo {
			traces, err := e.Remains(t.Context(), u)
			if err != nil || len(traces) > 0 {
				t.Errorf("left of %s: %v, %v", id, traces, err)
			}
		}
	}
}

// TestSparesAreNotMadeWithoutRoom: nor without a note of what undoes them.
func TestSparesAreNotMadeWithoutRoom(t *testing.T) {
	spec := newWorld(t).shared()
	for name, hinder := range map[string]func(*sandbox.Keeping){
		"no room": func(k *sandbox.Keeping) { k.May = func() bool { return false } },
		"no note": func(k *sandbox.Keeping) {
			k.Note = func(context.Context, string, []sandbox.Undo) error { return errors.New("full disk") }
		},
	} {
		e, l := warmEngine(t, 1)
		hinder(&e.k)
		e.fill(soon(t), spec)
		if n := e.spares.count(); n != 0 || len(l.noted) != 0 {
			t.Errorf("%s: %d spares", name, n)
		}
	}
}

// TestSparesComeWithRoom: nobody starts a session meanwhile.
func TestSparesComeWithRoom(t *testing.T) {
	e, l := engine(t), newLedger()
	e.spares.again = time.Millisecond
	k := l.keeping(1)
	asked := 0
	k.May = func() bool { asked++; return asked > 2 }
	ctx, end := context.WithCancel(t.Context())
	var keeper sync.WaitGroup
	keeper.Go(func() { e.Keep(ctx, k) })
	for kept := false; !kept; {
		e.spares.mu.Lock()
		kept = e.spares.keeping != nil
		e.spares.mu.Unlock()
	}
	e.spares.follow(newWorld(t).shared())
	e.spares.want()
	check(t, e.Waiting(soon(t)))
	end()
	keeper.Wait()
	if left := l.unsettled(); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// beKeeper is a node with spares that waits to be killed.
func beKeeper() int {
	e, err := New(Options{})
	if err != nil {
		fmt.Println(err)
		return 1
	}
	w := &world{dir: os.Getenv(asKeeper), repo: filepath.Join(os.Getenv(asKeeper), "repo"), id: sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}}
	if os.Geteuid() == 0 {
		w.id = sandbox.Identity{UID: ordinary, GID: ordinary}
	}
	spec := keptSpec(w)
	k := sandbox.Keeping{
		Spares: 3, Claimed: func(string, string) {}, Settled: func(string) {},
		Note: func(_ context.Context, id string, undo []sandbox.Undo) error {
			return json.NewEncoder(os.Stdout).Encode(map[string][]sandbox.Undo{id: undo})
		},
	}
	e.spares.keeping = &k
	e.spares.follow(spec)
	e.refill(context.Background(), k)
	fmt.Println("ready")
	select {}
}

func keptSpec(w *world) sandbox.Spec {
	s := w.shared()
	s.Limits = sandbox.Limits{Memory: 256 << 20, Processes: 64, CPUs: 1}
	return s
}

// TestKilledNodeLeavesNoSpares kills a node with spares at once: what it has
// noted finds all that is left (T9).
func TestKilledNodeLeavesNoSpares(t *testing.T) {
	w, e := newWorld(t), engine(t)
	node := exec.Command("/proc/self/exe")
	node.Env = append(os.Environ(), asKeeper+"="+w.dir)
	out, err := node.StdoutPipe()
	check(t, err)
	check(t, node.Start())
	defer func() { _ = node.Process.Kill(); _ = node.Wait() }()
	noted := map[string][]sandbox.Undo{}
	lines := bufio.NewScanner(out)
	for lines.Scan() && lines.Text() != "ready" {
		check(t, json.Unmarshal(lines.Bytes(), &noted))
	}
	uid := w.id.UID
	for id := range noted {
		if pids, err := helpersOf(id, uid); err != nil || len(pids) != 2 {
			t.Errorf("of %s there are %v, %v", id, pids, err)
		}
	}
	if len(noted) != 3 {
		t.Fatalf("noted %v", noted)
	}
	check(t, node.Process.Kill())
	_ = node.Wait()
	for _, undo := range noted {
		for _, u := range undo {
			_, err := e.Sweep(soon(t), u)
			check(t, err)
		}
	}
	nothingLeft(t, e, noted, uid)
}

// TestHostViewSeesMounts: a mount that comes below what a spare has mounted is
// not in it.
func TestHostViewSeesMounts(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wants root: it mounts where the node sees it")
	}
	dir := t.TempDir()
	elsewhere := t.TempDir()
	check(t, os.Mkdir(filepath.Join(dir, "below"), 0o755))
	v := lookAtHost([]sandbox.Mount{{Kind: sandbox.Bind, Source: dir}})
	defer v.close()
	mount := func(at string) {
		check(t, unix.Mount("none", at, "tmpfs", 0, "size=64k"))
		t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	}
	for _, step := range []struct {
		do   func()
		want bool
	}{
		{func() {}, true},
		{func() { mount(elsewhere) }, true},
		{func() { mount(filepath.Join(dir, "below")) }, false},
		{func() { check(t, unix.Unmount(filepath.Join(dir, "below"), 0)) }, true},
	} {
		step.do()
		if got := v.same(); got != step.want {
			t.Errorf("same: %v, want %v", got, step.want)
		}
	}
	if !strings.HasPrefix(spareID(), "spare-") || len(spareID()) != 32 || !validID(spareID()) {
		t.Errorf("a spare is called %q", spareID())
	}
}
