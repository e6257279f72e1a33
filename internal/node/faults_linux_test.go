package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/residue"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// limited asks for a session that has everything outside that one can have.
const limited = `{"version": 1, "limits": {"memory": "512MiB", "processes": 100, "cpus": 1}}`

// namedSession is how steps name one, and a control group does.
var namedSession = regexp.MustCompile(`(session |mojoup-)[a-z2-7]{12}`)

// steps notes the steps that a node takes, and acts at one of them. A step is
// named by what was done and by how often that was done before.
type steps struct {
	repo string
	at   string // the step at which to act
	act  func()

	mu    sync.Mutex // guards what follows
	taken map[string]int
	order []string
}

func (s *steps) reached(step string) {
	step = namedSession.ReplaceAllString(strings.ReplaceAll(step, s.repo, "REPO"), "${1}ID")
	s.mu.Lock()
	if s.taken == nil {
		s.taken = map[string]int{}
	}
	s.taken[step]++
	name := fmt.Sprintf("%s #%d", step, s.taken[step])
	s.order = append(s.order, name)
	s.mu.Unlock()
	if name == s.at {
		s.act()
	}
}

// list is what was taken after a step, in order and once.
func (s *steps) list(after string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.order[slices.Index(s.order, after)+1:])
}

// diesAt and the directories make this test binary a node that kills itself
// when it has reached that step.
const diesAt, diesRuntime, diesState, diesRepo = "MOJOUP_TEST_DIES_AT", "MOJOUP_TEST_RUNTIME", "MOJOUP_TEST_STATE", "MOJOUP_TEST_REPO"

// doomed serves until it reaches the step; then it is gone.
func doomed() int {
	w := world{}
	w.paths.Runtime, w.paths.State = os.Getenv(diesRuntime), os.Getenv(diesState)
	w.paths.Config = filepath.Join(w.paths.State, "none")
	e, err := doomedEngine(w.paths.State)
	if err == nil {
		var o Options
		if o, err = w.bareOptions(e); err == nil {
			o.Ready = func() { fmt.Println("ready") }
			o.Observe = (&steps{repo: os.Getenv(diesRepo), at: os.Getenv(diesAt), act: die}).reached
			var n *Node
			if n, err = New(o); err == nil {
				err = n.Serve(context.Background())
			}
		}
	}
	fmt.Println("doomed:", err)
	return 1
}

func doomedEngine(state string) (sandbox.Engine, error) {
	if enginetest.Named(os.Getenv) {
		e, err := enginetest.Open(state, os.Getenv)
		return ordinary{e}, err
	}
	return native.New(native.Options{})
}

func die() {
	_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
	select {}
}

// doomedNode starts a node in a process of its own that dies at a step. One
// that dies before it is ready is waited for.
func (w world) doomedNode(t *testing.T, step string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(append(os.Environ(), w.gateway...), diesAt+"="+step, diesRuntime+"="+w.paths.Runtime, diesState+"="+w.paths.State, diesRepo+"="+w.repo)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err == nil && line != "ready\n" {
		t.Fatalf("the node said %q", line)
	}
	return cmd
}

// TestT9_KilledAtEveryStep kills with SIGKILL the node, the client, the first
// process of the session and the one outside that stands for it, each at every
// step of a session's life, and the node at every step of the repair that
// follows (client and repair at some of them, but in make soak). A start later, or where the node lives at once, nothing is left.
// The steps are those that a whole run takes: none can be forgotten.
func TestT9_KilledAtEveryStep(t *testing.T) {
	d := trial{engine: nativeEngine(t)}
	life, repair, seed := recordSteps(t, d.engine)
	d.seed = seed
	outer := between(life, "helper started #1", "helper ended #1")
	inner := between(life, "set up #1", "helper ended #1")
	// Until then the command runs until it is ended.
	over := slices.Index(life, "before moving session ID to stopping #1")
	command := func(step string) []string {
		if at := slices.Index(life, step); at >= 0 && at < over {
			return []string{"sleep", "300"}
		}
		return []string{"true"}
	}
	deaths := []death{
		{"node", life, 0, killsNode}, {"pid 1", inner, 0, killsHelper(true)}, {"outer process", outer, 0, killsHelper(false)},
		{"client", life, 45, killsClient}, {"node again", repair, 35, killsNodeAgain},
	}
	var runs atomic.Int32
	counts := map[string]int{}
	t.Run("all", func(t *testing.T) {
		for _, f := range deaths {
			at := f.steps
			switch {
			case kerneltest.ShortOfLong():
				at = evenly(at, 3)
			case f.most > 0 && os.Getenv("MOJOUP_SOAK") == "":
				at = evenly(at, f.most)
			}
			counts[f.victim] = len(at)
			for _, step := range at {
				t.Run(f.victim+"/"+step, func(t *testing.T) {
					t.Parallel()
					// Of its own: the spares of an engine are one node's.
					mine := d
					mine.engine = nativeEngine(t)
					f.run(t, mine, step, command(step))
					runs.Add(1)
				})
			}
		}
	})
	t.Logf("counted: %d deaths and what followed, by victim: %v", runs.Load(), counts)
	if !kerneltest.ShortOfLong() && runs.Load() < atLeast {
		t.Errorf("only %d deaths were tried, not %d", runs.Load(), atLeast)
	}
}

// atLeast is how many deaths a whole run tries.
const atLeast = 200

// A death is one victim and the steps at which it is killed.
type death struct {
	victim string
	steps  []string
	most   int // of the steps, evenly, but in make soak; 0 is all
	run    func(t *testing.T, d trial, step string, command []string)
}

// evenly takes n of a list, evenly.
func evenly(list []string, n int) (out []string) {
	for i := range n {
		out = append(out, list[i*len(list)/n])
	}
	return out
}

func between(list []string, first, last string) []string {
	return list[slices.Index(list, first):slices.Index(list, last)]
}

// recordSteps are the steps of a session's life, and of a repair after a death
// in the middle of one.
func recordSteps(t *testing.T, engine sandbox.Engine) (life, repair []string, seed string) {
	w := newWorld(t)
	s := &steps{repo: w.repo}
	o := w.options(t, engine)
	o.Observe = s.reached
	r := w.serve(t, o)
	started := s.last()
	w.limited(t, r.client, "true").mustEnd(t)
	r.end()
	must(t, r.wait(t))
	life = s.list(started)
	seed = w.paths.State

	w = newWorld(t)
	w.dieInTheMiddle(t)
	s = &steps{repo: w.repo}
	o = w.options(t, engine)
	o.Observe = s.reached
	r = w.serve(t, o)
	repair = s.list("")
	r.end()
	must(t, r.wait(t))
	if len(life) < 80 || len(repair) < 40 {
		t.Fatalf("only %d and %d steps", len(life), len(repair))
	}
	return life, repair, seed
}

func (s *steps) last() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.order[len(s.order)-1]
}

// limited asks for a session that has everything outside.
func (w world) limited(t *testing.T, c *client.Client, command ...string) *asked {
	t.Helper()
	return w.ask(t, c, api.RunRequest{Command: command, PolicyName: "own", Policy: limited})
}

func (a *asked) mustEnd(t *testing.T) api.Ended {
	t.Helper()
	end, err := a.end(t)
	if err != nil || end.Problem != nil {
		t.Fatalf("it ended with %v, %v", end.Problem, err)
	}
	return end
}

// A trial is what all deaths have in common.
type trial struct {
	engine sandbox.Engine
	seed   string // a state directory, so that not each of hundreds of nodes has to make its store anew
}

func (d trial) world(t *testing.T) world {
	t.Helper()
	w := newWorld(t)
	must(t, os.CopyFS(w.paths.State, os.DirFS(d.seed)))
	must(t, os.Chmod(w.paths.State, 0o700))
	return w
}

// dieInTheMiddle has a node die while its session runs.
func (w world) dieInTheMiddle(t *testing.T) {
	t.Helper()
	node := w.doomedNode(t, "stage command #1")
	a := w.limited(t, client.New(w.paths.Socket()), "sleep", "300")
	if _, err := a.end(t); !errors.Is(err, client.ErrLost) {
		t.Fatalf("the client was told %v", err)
	}
	_ = node.Wait()
}

func killsNode(t *testing.T, d trial, step string, command []string) {
	w := d.world(t)
	before := tree(t, w.repo)
	node := w.doomedNode(t, step)
	a := w.limited(t, client.New(w.paths.Socket()), command...)
	_, _ = a.end(t) // lost, or over just before
	w.reaped(t, node)
	w.cleanAfterStart(t, d.engine, before)
}

func killsNodeAgain(t *testing.T, d trial, step string, _ []string) {
	w := d.world(t)
	before := tree(t, w.repo)
	w.dieInTheMiddle(t)
	w.reaped(t, w.doomedNode(t, step))
	w.cleanAfterStart(t, d.engine, before)
}

// reaped wants that a node has died of the step at which it was to die.
func (w world) reaped(t *testing.T, node *exec.Cmd) {
	t.Helper()
	late := time.AfterFunc(enough, func() { _ = node.Process.Signal(syscall.SIGABRT) })
	defer late.Stop()
	if err := node.Wait(); !strings.Contains(fmt.Sprint(err), "killed") {
		t.Fatalf("the node ended with %v: it never came to that step", err)
	}
}

// cleanAfterStart wants that the next start leaves nothing, says what it did,
// and can carry a session.
func (w world) cleanAfterStart(t *testing.T, engine sandbox.Engine, before []string) {
	t.Helper()
	r := w.serve(t, w.options(t, engine))
	s, err := r.client.Status(t.Context())
	must(t, err)
	if len(s.Leftovers) != 0 || len(s.Sessions) != 0 {
		t.Errorf("left %q, living %v", s.Leftovers, s.Sessions)
	}
	w.cleanBehind(t, r, engine, before)
	for _, row := range w.rows(t) {
		if row.State == session.Lost && row.Reason == "" {
			t.Errorf("%s is lost and nobody says why", row.ID)
		}
	}
}

// cleanBehind wants of a node that lives that nothing of its sessions is left,
// that it carries another one, and ends without a trace.
func (w world) cleanBehind(t *testing.T, r *running, engine sandbox.Engine, before []string) {
	t.Helper()
	w.asItWas(t, before)
	if end, out := w.whole(t, r.client, "echo", "again"); end.Code != 0 || out != "again\n" {
		t.Errorf("the next session: %+v %q", end.Problem, out)
	}
	r.end()
	must(t, r.wait(t))
	left, err := residue.Look(t.Context(), residue.Options{Paths: w.paths, OwnOnly: true, Engines: enginesWith(engine)})
	must(t, err)
	if len(left.Left) > 0 || len(left.Unknown) > 0 {
		t.Errorf("left: %+v, unknown: %q", left.Left, left.Unknown)
	}
	w.asItWas(t, before)
	for _, row := range w.rows(t) {
		if !row.State.Ended() {
			t.Errorf("session %s is %s", row.ID, row.State)
		}
	}
}

func (w world) asItWas(t *testing.T, before []string) {
	t.Helper()
	if d := cmp.Diff(before, tree(t, w.repo)); d != "" {
		t.Errorf("left in the repository (-before +after):\n%s", d)
	}
	if out := git(t, w.repo, "status", "--porcelain"); out != "" {
		t.Errorf("git shows %q", out)
	}
}

func (w world) rows(t *testing.T) []store.Session {
	t.Helper()
	rows, _ := w.kept(t)
	return rows
}

// killsClient is what the node sees of a client that is killed: its end of the
// connection closes.
func killsClient(t *testing.T, d trial, step string, command []string) {
	w := d.world(t)
	before := tree(t, w.repo)
	var a *asked
	there := make(chan struct{})
	s := &steps{repo: w.repo, at: step, act: func() { <-there; a.gone() }}
	r := w.observed(t, d.engine, s)
	a = w.limited(t, r.client, command...)
	close(there)
	_, _ = a.end(t)
	r.quiet(t)
	w.cleanBehind(t, r, d.engine, before)
	s.wasReached(t)
}

// killsHelper kills pid 1 of the session, or the process outside.
func killsHelper(inside bool) func(*testing.T, trial, string, []string) {
	return func(t *testing.T, d trial, step string, command []string) {
		w := d.world(t)
		before := tree(t, w.repo)
		var r *running
		var killed atomic.Int32
		there := make(chan struct{})
		s := &steps{repo: w.repo, at: step, act: func() {
			<-there
			for id := range r.living() {
				killed.Add(int32(killHelper(id, inside)))
			}
		}}
		r = w.observed(t, d.engine, s)
		close(there)
		end, err := w.limited(t, r.client, command...).end(t)
		if err != nil || command[0] != "true" && end.Code == 0 {
			t.Errorf("of a session whose helper was killed the client was told %+v, %v", end, err)
		}
		r.quiet(t)
		w.cleanBehind(t, r, d.engine, before)
		s.wasReached(t)
		if killed.Load() != 1 {
			t.Errorf("%d processes were killed", killed.Load())
		}
	}
}

func (w world) observed(t *testing.T, engine sandbox.Engine, s *steps) *running {
	t.Helper()
	o := w.options(t, engine)
	o.Observe = s.reached
	return w.serve(t, o)
}

func (s *steps) wasReached(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Contains(s.order, s.at) {
		t.Errorf("it never came to that step; the last was %q", s.order[len(s.order)-1])
	}
}

// living are the sessions of a node.
func (r *running) living() map[session.ID]*life {
	r.node.mu.Lock()
	defer r.node.mu.Unlock()
	return maps.Clone(r.node.live)
}

// quiet waits until no session lives.
func (r *running) quiet(t *testing.T) {
	t.Helper()
	late := time.After(enough)
	for {
		r.node.mu.Lock()
		changed, busy := r.node.changed, len(r.node.live)
		r.node.mu.Unlock()
		if busy == 0 {
			return
		}
		select {
		case <-changed:
		case <-late:
			t.Fatalf("%d sessions still live", busy)
		}
	}
}

// helpers are the processes of a session's helper, in /proc.
func helpers(id string) (dirs []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range lines {
		if line, err := os.ReadFile(file); err == nil && strings.TrimRight(string(line), "\x00") == "mojoup-child\x00"+id {
			dirs = append(dirs, filepath.Dir(file))
		}
	}
	return dirs
}

// These are said by the status of a process that is pid 1 somewhere, and of
// one that is in no process namespace but the node's.
var (
	first     = regexp.MustCompile(`(?m)^NSpid:\t\d+\t1$`)
	outermost = regexp.MustCompile(`(?m)^NSpid:\t\d+$`)
)

// killHelper kills one of the two processes of a session's helper, if it is
// there.
func killHelper(id session.ID, inside bool) (killed int) {
	for _, dir := range helpers(string(id)) {
		status, err := os.ReadFile(filepath.Join(dir, "status"))
		which := outermost // what looks at the sandbox bears its name too
		if inside {
			which = first
		}
		if err != nil || !which.Match(status) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(dir))
		if syscall.Kill(pid, syscall.SIGKILL) == nil {
			killed++
		}
	}
	return killed
}
