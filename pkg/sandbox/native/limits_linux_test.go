package native

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// noGroups is a machine without any that this process may use.
func noGroups() *cgroup.Host {
	return cgroup.Find(fstest.MapFS{}, func(string) error { return fs.ErrPermission })
}

// eachMeans runs a test with the control groups that there are, and with what
// remains without any.
func eachMeans(t *testing.T, f func(t *testing.T, e *Engine)) {
	t.Run("Groups", func(t *testing.T) {
		e := engine(t)
		wantGroups(t, e)
		f(t, e)
	})
	t.Run("Without", func(t *testing.T) {
		e := engine(t)
		e.groups = noGroups()
		f(t, e)
	})
}

// wantGroups skips where this user may write no control groups. Where root may
// not, something is missing.
func wantGroups(t *testing.T, e *Engine) {
	t.Helper()
	for _, c := range cgroup.Controllers() {
		switch {
		case e.groups.Has(c):
		case os.Geteuid() == 0:
			kerneltest.Lacking(t, "the controller "+string(c), e.groups.Mode()+" without it")
		default:
			t.Skipf("wanted root or delegation for the controller %s, found user %d and %s without it", c, os.Geteuid(), e.groups.Mode())
		}
	}
}

// openBy is open with a certain engine.
func openBy(t testing.TB, e *Engine, spec sandbox.Spec) *box {
	t.Helper()
	b, err := e.Prepare(soon(t), spec)
	check(t, err)
	go serve(b.Listener())
	t.Cleanup(func() {
		b.Listener().Close()
		if err := b.Remove(soonest()); err != nil {
			t.Error(err)
		}
		for _, dir := range e.groups.Paths(spec.ID, wanted(spec.Limits)) {
			if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%s: %v", dir, err)
			}
		}
	})
	return b.(*box)
}

// factOf is what the check says of one limit.
func factOf(t *testing.T, b *box, name string) sandbox.Fact {
	t.Helper()
	facts, err := b.Check(soon(t))
	check(t, err)
	i := slices.IndexFunc(facts, func(f sandbox.Fact) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("nothing is said of the %s", name)
	}
	return facts[i]
}

func wantFact(t *testing.T, b *box, name string, strength sandbox.Strength, words ...string) {
	t.Helper()
	f := factOf(t, b, name)
	for _, w := range words {
		if f.Strength != strength || !strings.Contains(f.Detail, w) {
			t.Errorf("%s: %s %q, want %s with %q", name, f.Strength, f.Detail, strength, w)
		}
	}
}

const mib = 1 << 20

// bomb is a program of awk that takes half a gigabyte and keeps it.
const bomb = `BEGIN { s = "0123456789abcdef"; for (i = 0; i < 25; i++) s = s s; while (1) {} }`

// TestB69_KilledForMemory: each way to hit the limit has its own sentence.
func TestB69_KilledForMemory(t *testing.T) {
	eachMeans(t, func(t *testing.T, e *Engine) {
		spec := newWorld(t).spec()
		spec.Limits.Memory = 64 * mib
		b := openBy(t, e, spec)
		if e.groups.Has(cgroup.Memory) {
			wantFact(t, b, "memory limit", sandbox.Held, "64 MiB", "control group v")
		} else {
			wantFact(t, b, "memory limit", sandbox.Weaker, "64 MiB", "no control group")
		}
		// The command itself.
		exit := ended(t, b, "awk", bomb)
		if !exit.OOM || exit.Limit != "killed for memory: limit 64 MiB" || exit.Code != 137 {
			t.Errorf("the command itself: %+v", exit)
		}
		// A child of it, and the command carries on.
		exit = ended(t, b, "sh", "-c", "awk '"+bomb+"'; exit 7")
		if exit.OOM || exit.Limit != "" || exit.Code != 7 || !strings.Contains(exit.Noted, "a process that it started was killed for memory: limit 64 MiB") {
			t.Errorf("a child: %+v", exit)
		}
		// Nothing of it: what came before is not the next one's.
		if exit = ended(t, b, "true"); exit != (sandbox.Exit{}) {
			t.Errorf("nothing: %+v", exit)
		}
		// Somebody else's kill is not the limit's.
		p, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"sleep", "600"}}, sandbox.Stdio{})
		check(t, err)
		check(t, p.Signal(os.Kill))
		if exit, err := p.Wait(soon(t)); err != nil || exit != (sandbox.Exit{Code: 137, Signal: 9}) {
			t.Errorf("killed by us: %+v, %v", exit, err)
		}
	})
}

func ended(t testing.TB, b sandbox.Sandbox, argv ...string) sandbox.Exit {
	t.Helper()
	p, err := b.Exec(soon(t), sandbox.Command{Argv: argv}, sandbox.Stdio{})
	check(t, err)
	exit, err := p.Wait(soon(t))
	check(t, err)
	return exit
}

// TestProcessLimitIsExact: so many processes and threads, and whoever asks for
// one more is refused and told of.
func TestProcessLimitIsExact(t *testing.T) {
	eachMeans(t, func(t *testing.T, e *Engine) {
		const limit = 20
		spec := newWorld(t).spec()
		spec.Limits.Processes = limit
		b := openBy(t, e, spec)
		wantFact(t, b, "process limit", sandbox.Held, "20 processes")
		// The shell is one of them; dash ends where it cannot fork.
		exit := ended(t, b, "sh", "-c", "i=1; while [ $i -lt 20 ]; do sleep 600 & i=$((i+1)); done; exit 5")
		if exit.Code != 5 || exit.Noted != "" && e.groups.Has(cgroup.Processes) {
			t.Errorf("up to the limit: %+v", exit)
		}
		want := "starting a process or thread was refused"
		if !e.groups.Has(cgroup.Processes) {
			want = "as many processes and threads as may be: limit 20"
		}
		// One that was there has ended; what it has started lives on.
		out, exit := sh(t, b, "sleep 600 & sleep 600 & sleep 600 & echo no")
		if exit.Code == 0 || strings.Contains(out, "no\n") {
			t.Errorf("above the limit: %+v %s", exit, out)
		}
		// As many as may be, for as long as it takes to be seen.
		_, err := b.Exec(soon(t), sandbox.Command{Argv: []string{"sleep", "600"}}, sandbox.Stdio{})
		check(t, err)
		_, err = b.Exec(soon(t), sandbox.Command{Argv: []string{"true"}}, sandbox.Stdio{})
		var full *LimitError
		if !errors.As(err, &full) || full.Limit != "process limit of 20" || full.Hint() == "" {
			t.Errorf("a command too many: %v", err)
		}
		eventually(t, func() bool {
			var e sandbox.Exit
			b.bounds.tell(&e, seen{}, false)
			return strings.Contains(e.Noted, want)
		})
	})
}

// TestProcessorLimit burns on every processor for a while.
func TestProcessorLimit(t *testing.T) {
	eachMeans(t, func(t *testing.T, e *Engine) {
		spec := newWorld(t).spec()
		spec.Limits.CPUs = 0.25
		b := openBy(t, e, spec)
		began := time.Now()
		out, exit := sh(t, b, "for i in 1 2 3 4; do timeout 1 sh -c 'while :; do :; done' & done; wait; times")
		took := time.Since(began)
		used := spent(t, out)
		t.Logf("used %v of processor time in %v, exit %d", used, took, exit.Code)
		if e.groups.Has(cgroup.CPU) {
			wantFact(t, b, "processor limit", sandbox.Held, "0.25 processors' time", "control group v")
			if used > took/2 {
				t.Errorf("used %v of processor time in %v", used, took)
			}
			return
		}
		wantFact(t, b, "processor limit", sandbox.Weaker, "0.25 asked for", "1 of")
		if used > took*5/4 {
			t.Errorf("used %v of processor time in %v on one processor", used, took)
		}
		out, _ = sh(t, b, "nice; taskset -p 1 $$ 2>&1 || echo refused; grep Cpus_allowed_list /proc/self/status; renice -n 0 $$ 2>/dev/null || echo refused")
		if !strings.HasPrefix(out, "10\n") || strings.Count(out, "refused") != 2 || strings.ContainsAny(out[strings.Index(out, "list:"):], ",-") {
			t.Errorf("it said %q", out)
		}
	})
}

// spent sums the children's line of times: 0m0.251000s 0m0.010000s.
func spent(t *testing.T, line string) time.Duration {
	t.Helper()
	var sum time.Duration
	lines := strings.Split(strings.TrimSpace(line), "\n")
	for _, word := range strings.Fields(lines[len(lines)-1]) {
		d, err := time.ParseDuration(word)
		check(t, err)
		sum += d
	}
	return sum
}

// TestScratchCountsAsMemory where a group counts it; elsewhere it has a limit
// of the same size.
func TestScratchCountsAsMemory(t *testing.T) {
	eachMeans(t, func(t *testing.T, e *Engine) {
		spec := newWorld(t).spec()
		spec.Limits.Memory = 48 * mib
		b := openBy(t, e, spec)
		exit := ended(t, b, "sh", "-c", "head -c 60000000 /dev/zero > /tmp/big")
		if exit.Code == 0 || exit.OOM || exit.Noted != "" {
			t.Errorf("60 MB of scratch within 48 MiB: %+v", exit)
		}
		// Full, and one can still clear up.
		if out, exit := sh(t, b, "df /tmp | tail -1; rm /tmp/big && echo gone"); !strings.Contains(out, "100%") || !strings.HasSuffix(out, "gone\n") {
			t.Errorf("afterwards: %q, %+v", out, exit)
		}
	})
}

func TestTooSmallALimit(t *testing.T) {
	e := engine(t)
	wantGroups(t, e)
	spec := newWorld(t).spec()
	spec.Limits.Memory = 64 << 10
	_, err := e.Prepare(soon(t), spec)
	var small *LimitError
	if !errors.As(err, &small) || !strings.Contains(err.Error(), "memory limit of 64 KiB leaves no room") || small.Hint() == "" {
		t.Errorf("got %v", err)
	}
	for _, dir := range e.groups.Paths(spec.ID, wanted(spec.Limits)) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s: %v", dir, err)
		}
	}
}

// TestBombsHurtThemselves measures how a neighbour's small work fares while a
// bomb goes off in a sandbox with limits.
func TestBombsHurtThemselves(t *testing.T) {
	kerneltest.Long(t)
	eachMeans(t, func(t *testing.T, e *Engine) {
		quiet := newWorld(t)
		neighbour := openBy(t, e, quiet.spec())
		alone := latency(t, neighbour)
		for name, script := range map[string]string{
			"memory":     "while :; do awk '" + bomb + "'; done",
			"processes":  `exec bash -c ":(){ :|:& };:; wait; sleep 600"`,
			"processors": "for i in 1 2 3 4 5 6 7 8; do (while :; do :; done) & done; wait",
		} {
			t.Run(name, func(t *testing.T) {
				spec := newWorld(t).spec()
				spec.Limits = sandbox.Limits{Memory: 128 * mib, Processes: 128, CPUs: 0.5}
				bomb := openBy(t, e, spec)
				p, err := bomb.Exec(soon(t), sandbox.Command{Argv: []string{"sh", "-c", script}}, sandbox.Stdio{})
				check(t, err)
				under := latency(t, neighbour)
				t.Logf("start and end of a small command, p95: %v alone, %v beside the bomb", alone, under)
				if limit := max(20*alone, 5*time.Second); under > limit {
					t.Errorf("p95 of %v beside the bomb, %v alone: more than %v", under, alone, limit)
				}
				// On a busy machine half a processor takes a while to fill the memory.
				for ctx := soon(t); ; {
					went := bomb.bounds.seen()
					if name == "processors" || name == "memory" && went.killed > 0 || name == "processes" && (went.refused > 0 || went.reached) {
						break
					}
					if ctx.Err() != nil {
						t.Errorf("the bomb did not go off: %+v", went)
						break
					}
					latency(t, neighbour)
				}
				check(t, bomb.Remove(soon(t)))
				_, err = p.Wait(soon(t))
				check(t, err)
			})
		}
	})
}

// latency is the p95 of small commands. It goes on for a second.
func latency(t *testing.T, b *box) time.Duration {
	t.Helper()
	var all []time.Duration
	for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end) || len(all) < 20; {
		began := time.Now()
		if exit := ended(t, b, "true"); exit.Code != 0 {
			t.Errorf("the neighbour: %+v", exit)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(all)
	return all[len(all)*95/100]
}

// TestDeadSandboxOfTheSameName: an empty group that lies there is in nobody's
// way, and one in which something runs is.
func TestDeadSandboxOfTheSameName(t *testing.T) {
	e := engine(t)
	wantGroups(t, e)
	spec := newWorld(t).spec()
	spec.Limits.Processes = 50
	dirs := e.groups.Paths(spec.ID, wanted(spec.Limits))
	check(t, os.Mkdir(dirs[0], 0o755))
	b := openBy(t, e, spec)
	wantFact(t, b, "process limit", sandbox.Held, "control group")
	e.groups.Paths(spec.ID, wanted(spec.Limits))
	again, err := e.groups.Make(spec.ID, wanted(spec.Limits))
	if err == nil {
		check(t, again.Remove(soon(t)))
		t.Error("the group of a living sandbox was given once more")
	}
	pid := strconv.Itoa(b.helper.PID())
	procs, err := os.ReadFile(filepath.Join(dirs[0], "cgroup.procs"))
	check(t, err)
	if !bytes.Contains(procs, []byte(pid+"\n")) {
		t.Errorf("%s is not in %q", pid, procs)
	}
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	ctx := soon(t)
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatal("it did not come about")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// TestSweepEndsAGroup ends what lives in a group, of this name only.
func TestSweepEndsAGroup(t *testing.T) {
	e := engine(t)
	w := newWorld(t)
	spec, other := w.spec(), newWorld(t).spec()
	spec.Limits.Processes, other.Limits.Processes = 50, 50
	wantGroups(t, e)
	dirs := e.groups.Paths(spec.ID, wanted(spec.Limits))
	b, bystander := openBy(t, e, spec), openBy(t, e, other)
	ended(t, b, "true") // and with that what looked at the sandbox
	for _, u := range []sandbox.Undo{
		{Kind: undoGroup, Path: dirs[0], ID: other.ID},
		{Kind: undoGroup, Path: filepath.Dir(dirs[0]), ID: spec.ID},
		{Kind: undoGroup, Path: w.dir + "/mojoup-" + spec.ID, ID: spec.ID},
	} {
		check(t, os.MkdirAll(w.dir+"/mojoup-"+spec.ID, 0o755))
		if did, err := e.Sweep(soon(t), u); err == nil {
			t.Errorf("%+v: %q", u, did)
		}
	}
	did, err := e.Sweep(soon(t), sandbox.Undo{Kind: undoGroup, Path: dirs[0], ID: spec.ID})
	check(t, err)
	if want := "ended 2 processes of the control group " + dirs[0]; did != want {
		t.Errorf("said %q, want %q", did, want)
	}
	select {
	case <-b.Done():
	case <-soon(t).Done():
		t.Error("the sandbox lives")
	}
	if exit := ended(t, bystander, "true"); exit.Code != 0 {
		t.Errorf("another sandbox: %+v", exit)
	}
}
