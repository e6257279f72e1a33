package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// gate is where a stub waits in one of its steps.
type gate struct {
	step    string
	deaf    bool // to its context
	reached chan struct{}
	open    chan struct{}
}

func newGate(step string, deaf bool) *gate {
	return &gate{step: step, deaf: deaf, reached: make(chan struct{}, 1), open: make(chan struct{})}
}

func (g *gate) at(ctx context.Context, step string) error {
	if step != g.step {
		return nil
	}
	select {
	case g.reached <- struct{}{}:
	default:
	}
	if g.deaf {
		<-g.open
		return nil
	}
	select {
	case <-g.open:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// TestB63EveryStateHasAWayOut ends sessions in each of their states, in each
// way, by an engine that obeys its context and by one that never comes back:
// each is over in a bounded time, in the store too, and so is the node.
func TestB63EveryStateHasAWayOut(t *testing.T) {
	t.Parallel()
	ways := map[string]func(t *testing.T, r *running, a *asked, id string){
		"stopped":  func(t *testing.T, r *running, _ *asked, id string) { must(t, r.client.Stop(t.Context(), id)) },
		"shutdown": func(t *testing.T, r *running, _ *asked, _ string) { must(t, r.client.Shutdown(t.Context())) },
		"gone":     func(_ *testing.T, _ *running, a *asked, _ string) { a.gone() },
		"told":     func(_ *testing.T, r *running, _ *asked, _ string) { r.end() }, // as by SIGTERM
	}
	for _, step := range []string{"prepare", "check", "exec", "wait", "remove"} {
		for _, deaf := range []bool{false, true} {
			for way, end := range ways {
				name := step + "/" + way
				if deaf {
					name += "/deaf"
				}
				t.Run(name, func(t *testing.T) {
					t.Parallel()
					endAt(t, step, deaf, end)
				})
			}
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func endAt(t *testing.T, step string, deaf bool, end func(*testing.T, *running, *asked, string)) {
	w, e, g := newWorld(t), newStub(), newGate(step, deaf)
	e.at = g.at
	o := w.options(t, e)
	o.Times = brisk
	if step == "remove" {
		o.Times.Remove = 300 * time.Millisecond
	}
	r := w.serve(t, o)
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "trap '' TERM HUP; if [ $0 = remove ]; then exit 0; fi; while :; do sleep 0.05; done", step}})
	select {
	case <-g.reached:
	case end := <-a.ended:
		t.Fatalf("ended before: %+v %+v", end, end.Problem)
	case <-time.After(enough):
		t.Fatal("step not reached")
	}
	live, err := r.client.Sessions(t.Context(), false)
	if err != nil || len(live) != 1 {
		t.Fatalf("live sessions: %v, %v", live, err)
	}
	begun := time.Now()
	end(t, r, a, live[0].ID)
	_, _ = a.end(t)
	r.end() // a node that is told to end does so, whatever hangs in it
	if err := r.wait(t); err != nil {
		t.Errorf("the node ended with %v", err)
	}
	if took := time.Since(begun); took > enough {
		t.Errorf("took %s", took)
	}
	close(g.open)
	rows, pending := w.kept(t)
	if len(rows) != 1 || !rows[0].State.Ended() {
		t.Fatalf("in the store: %+v", rows)
	}
	if torn := step == "remove"; torn != (rows[0].State == session.Failed) {
		t.Errorf("state %s, reason %q", rows[0].State, rows[0].Reason)
	}
	if rows[0].State == session.Failed && len(pending) == 0 {
		t.Error("what was not removed is not in the journal")
	}
	if rows[0].State == session.Gone && len(pending) != 0 {
		t.Errorf("still to undo: %v", pending)
	}
	if step != "remove" || deaf { // else it was given up, as told
		awaitRemoved(t, e)
	}
}

// awaitRemoved waits until every sandbox that was made has been removed, if
// only late.
func awaitRemoved(t *testing.T, e *stub) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(enough); ; {
		if made, removed := e.counts(); removed >= made {
			return
		}
		select {
		case <-tick.C:
		case <-late:
			made, removed := e.counts()
			t.Fatalf("%d made, %d removed", made, removed)
		}
	}
}

// What cannot be removed is shown, and tried again by the next start.
func TestB63WhatIsLeftIsShownAndSweptLater(t *testing.T) {
	t.Parallel()
	w, e, g := newWorld(t), newStub(), newGate("remove", true)
	e.at = g.at
	o := w.options(t, e)
	o.Times = Times{HangUp: 200 * time.Millisecond, Remove: 300 * time.Millisecond, Patience: 200 * time.Millisecond}
	r := w.serve(t, o)
	end, _ := w.whole(t, r.client, "sh", "-c", "exit 7")
	if end.Code != 7 || end.Problem != nil {
		t.Errorf("the command's own code is lost: %+v", end)
	}
	if !strings.Contains(strings.Join(end.Notices, "\n"), "it does not answer") {
		t.Errorf("notices %q", end.Notices)
	}
	s, err := r.client.Status(t.Context())
	if err != nil || len(s.Leftovers) != 1 || len(s.Sessions) != 0 {
		t.Fatalf("status %+v, %v", s, err)
	}
	r.node.sweepLeftovers(t.Context())
	if s, err = r.client.Status(t.Context()); err != nil || len(s.Leftovers) != 0 {
		t.Errorf("after sweeping: %q, %v", s.Leftovers, err)
	}
	close(g.open)
}

// B57, B59: a start that fails leaves nothing pending, and the next one works.
// TestWhatTakesLongIsTold: an engine that fetches an image says so to who waits.
func TestWhatTakesLongIsTold(t *testing.T) {
	t.Parallel()
	w, e := newWorld(t), newStub()
	e.at = func(ctx context.Context, step string) error {
		if step == "prepare" {
			sandbox.Tell(ctx, "fetching the image: 1 of 2 layers")
		}
		return nil
	}
	r := w.serve(t, w.options(t, e))
	var told []string
	end, err := r.client.Run(t.Context(), api.RunRequest{Directory: w.repo, Env: plan.CallerEnv(os.Environ()), Command: []string{"true"}},
		client.Streams{Stdout: io.Discard, Stderr: io.Discard, Notice: func(line string) { told = append(told, line) }})
	if err != nil || end.Code != 0 || !slices.Contains(told, "fetching the image: 1 of 2 layers") {
		t.Errorf("%+v, %v; told %q", end, err, told)
	}
}

func TestB57FailedStart(t *testing.T) {
	t.Parallel()
	for _, step := range []string{"prepare", "check", "exec"} {
		t.Run(step, func(t *testing.T) {
			t.Parallel()
			w, e := newWorld(t), newStub()
			fail := true
			e.at = func(_ context.Context, s string) error {
				if fail && s == step {
					return os.ErrInvalid
				}
				return nil
			}
			r := w.serve(t, w.options(t, e))
			end, _ := w.whole(t, r.client, "true")
			if end.Code != 125 || end.Problem == nil || !strings.Contains(end.Problem.Sentence, "starting the sandbox: ") {
				t.Errorf("%+v %+v", end, end.Problem)
			}
			fail = false
			if end, _ = w.whole(t, r.client, "true"); end.Code != 0 {
				t.Errorf("the retry: %+v", end.Problem)
			}
			r.end()
			must(t, r.wait(t))
			rows, pending := w.kept(t)
			if len(rows) != 2 || rows[1].State != session.Failed || rows[0].State != session.Gone || len(pending) != 0 {
				t.Errorf("kept %+v, pending %v", rows, pending)
			}
		})
	}
}

// A client that takes nothing, as when it is suspended, does not hold up the
// end of its session.
func TestB63ClientThatTakesNothing(t *testing.T) {
	t.Parallel()
	for _, tty := range []bool{false, true} {
		t.Run(fmt.Sprintf("terminal %v", tty), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			o := w.options(t, newStub())
			o.Times = brisk
			r := w.serve(t, o)
			stuck := &stuckWriter{reached: make(chan struct{}), open: make(chan struct{})}
			req := api.RunRequest{Command: []string{"sh", "-c", "while :; do echo yyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyyy; done"}}
			if tty {
				req.Terminal = &api.Size{Columns: 80, Rows: 24}
			}
			over := w.askWith(t, r.client, req, stuck)
			<-stuck.reached
			live, err := r.client.Sessions(t.Context(), false)
			if err != nil || len(live) != 1 {
				t.Fatalf("%v, %v", live, err)
			}
			must(t, r.client.Stop(t.Context(), live[0].ID))
			r.end()
			must(t, r.wait(t))
			rows, pending := w.kept(t)
			if len(rows) != 1 || rows[0].State != session.Gone || rows[0].Reason != errStopped.Error() || len(pending) != 0 {
				t.Errorf("%+v, %v", rows, pending)
			}
			close(stuck.open)
			<-over
		})
	}
}

type stuckWriter struct {
	reached chan struct{}
	open    chan struct{}
	once    bool
}

func (s *stuckWriter) Write(p []byte) (int, error) {
	if !s.once {
		s.once = true
		close(s.reached)
	}
	<-s.open
	return len(p), nil
}

// The wall limit of a policy is the node's to carry out, with SIGTERM first.
func TestWallLimit(t *testing.T) {
	t.Parallel()
	for _, engine := range []string{"native", "off"} {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			r := w.serve(t, w.options(t, newStub()))
			a := w.ask(t, r.client, api.RunRequest{
				Command: []string{"sh", "-c", "trap 'echo term; exit 3' TERM; echo up; while :; do sleep 0.05; done"}, Engine: engine, WholeEnv: os.Environ(),
				PolicyName: "own", Policy: `{"version": 1, "limits": {"wall": "1s"}}`,
			})
			end, err := a.end(t)
			if err != nil || end.Code != 125 || end.Problem == nil || end.Problem.Sentence != "the session was ended: it reached its time limit of 1s" {
				t.Errorf("%+v %+v, %v", end, end.Problem, err)
			}
			if !strings.Contains(a.out.String(), "term\n") {
				t.Errorf("the command heard %q", a.out.String())
			}
			past, err := r.client.Sessions(t.Context(), true)
			if err != nil || len(past) == 0 {
				t.Fatal(err)
			}
			if f := past[0].Enforced[len(past[0].Enforced)-1]; f.Name != "time limit" || f.Strength != "enforced" {
				t.Errorf("shown as %+v", f)
			}
			r.end()
			must(t, r.wait(t))
		})
	}
}

// TestEveryVerdictIsKept has programs ask the way out from many connections
// while the node is told to end: whatever they got an answer to is in the
// store when the node has gone.
func TestEveryVerdictIsKept(t *testing.T) {
	w, e := newWorld(t), newStub()
	ways := make(chan net.Listener, 1)
	e.ln = func() net.Listener {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		ways <- ln
		return ln
	}
	o := w.options(t, e)
	o.Times = brisk
	r := w.serve(t, o)
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "echo up; exec sleep 300"}})
	a.out.await(t, "up")
	addr := (<-ways).Addr().String()

	var answered atomic.Int64
	var askers sync.WaitGroup
	stop := make(chan struct{})
	for range 8 {
		askers.Go(func() {
			for {
				if denied(addr) {
					answered.Add(1)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
	}
	for answered.Load() < 200 {
		runtime.Gosched()
	}
	r.end()
	must(t, r.wait(t))
	close(stop)
	askers.Wait()
	_, _ = a.end(t)
	rows, _ := w.kept(t)
	if len(rows) != 1 || int64(rows[0].Denied) < answered.Load() {
		t.Errorf("%d denials were answered, the store has %+v", answered.Load(), rows)
	}
}

// denied asks the way out for something and reports whether it was answered.
func denied(addr string) bool {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return false
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(enough))
	if _, err := io.WriteString(conn, "GET http://evil.x.example/ HTTP/1.1\r\nHost: evil.x.example\r\n\r\n"); err != nil {
		return false
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	return err == nil && resp.StatusCode == http.StatusForbidden
}

// A lingering node ends by itself after its last session and not before.
func TestLinger(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options(t, newStub())
	o.Linger = 3 * time.Second // in which a slow machine, too, has asked for the session
	r := w.serve(t, o)
	begun := time.Now()
	if end, _ := w.whole(t, r.client, "sleep", "3.3"); end.Code != 0 {
		t.Errorf("a session longer than that: %+v", end.Problem)
	}
	must(t, r.wait(t))
	if took := time.Since(begun); took < 6300*time.Millisecond {
		t.Errorf("it ended %s after the start", took)
	}
}

// TestLingersUntilAllIsUndone: what the end of the last session left is tried
// again before a lingering node ends, at once and then again, since no next
// start may come for long.
func TestLingersUntilAllIsUndone(t *testing.T) {
	t.Parallel()
	w, engine := newWorld(t), newStub()
	var sweeps atomic.Int32
	engine.at = func(_ context.Context, step string) error {
		if step == "remove" || step == "sweep" && sweeps.Add(1) < 3 {
			return errors.New("not now")
		}
		return nil
	}
	o := w.options(t, engine)
	o.Linger = 3 * time.Second // in which a slow machine, too, has asked for the session
	r := w.serve(t, o)
	if end, _ := w.whole(t, r.client, "true"); len(end.Notices) == 0 {
		t.Error("nobody is told that something is left")
	}
	must(t, r.wait(t))
	if _, pending := w.kept(t); len(pending) != 0 || sweeps.Load() != 3 {
		t.Errorf("after %d tries %+v is left", sweeps.Load(), pending)
	}
}

// TestWholeLife follows one real session through every answer of the node.
func TestWholeLife(t *testing.T) {
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	typed, typing := io.Pipe()
	w.stdin = typed
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "echo up; read line; exit 9"}})
	a.out.await(t, "up")
	s, err := r.client.Status(t.Context())
	must(t, err)
	if len(s.Sessions) != 1 || s.Sessions[0].State != "running" || !s.Sessions[0].Sandboxed || s.Sessions[0].Repository != w.repo {
		t.Errorf("status shows %+v", s.Sessions)
	}
	must(t, typing.Close())
	end, err := a.end(t)
	if err != nil || end.Code != 9 || end.Problem != nil || len(end.Notices) != 0 {
		t.Errorf("%+v %v", end, err)
	}
	past, err := r.client.Sessions(t.Context(), true)
	must(t, err)
	one := past[0]
	if one.State != "gone" || one.ExitCode == nil || *one.ExitCode != 9 || one.Ended.IsZero() || len(one.Enforced) == 0 {
		t.Errorf("afterwards: %+v", one)
	}
	var names []string
	for _, st := range one.Stages {
		names = append(names, st.Name)
	}
	if d := cmp.Diff([]string{"look", "policy", "verdict", "plan", "journal", "sandbox", "self-check", "command"}, names); d != "" {
		t.Errorf("stages: %s", d)
	}
	if left := helpers(one.ID); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
}

// B100: limits that this engine cannot hold are shown as that, wherever the
// session is shown.
func TestB100LimitsAreShownAsTheyAre(t *testing.T) {
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	a := w.ask(t, r.client, api.RunRequest{
		Command: []string{"true"}, PolicyName: "own",
		Policy: `{"version": 1, "limits": {"wall": "8h", "processes": 64, "cpus": 1, "memory": "1GiB"}}`,
	})
	if end, err := a.end(t); err != nil || end.Code != 0 {
		t.Fatalf("%+v %v", end.Problem, err)
	}
	past, err := r.client.Sessions(t.Context(), true)
	must(t, err)
	got := map[string]string{}
	for _, f := range past[0].Enforced {
		got[f.Name] = f.Strength
		if f.Strength != "enforced" && f.Detail == "none was asked for" {
			delete(got, f.Name)
		}
	}
	for name, want := range map[string][]string{"time limit": {"enforced"}, "process limit": {"enforced", "absent"}, "memory limit": {"enforced", "weaker"}, "processor limit": {"enforced", "weaker"}} {
		if !slices.Contains(want, got[name]) {
			t.Errorf("%s: %q of %v", name, got[name], got)
		}
	}
}

// node.policy.trust ceiling is refused with the command to type, always asks
// nobody, and ask asks.
func TestTrust(t *testing.T) {
	for trust, want := range map[string]string{
		"ask":     "the policy of REPO asks for what nobody has approved yet",
		"ceiling": "node.policy.trust ceiling is not part of this version yet",
		"always":  "",
	} {
		w := newWorld(t)
		must(t, os.Mkdir(filepath.Join(w.repo, ".mojoup"), 0o755))
		must(t, os.WriteFile(filepath.Join(w.repo, ".mojoup", "policy.json"), []byte(`{"version": 1, "network": {"rules": [{"hosts": ["a.x.example"]}]}}`), 0o644))
		o := w.options(t, newStub())
		var err error
		o.Settings, err = config.Origin{Environ: append(noPage, "MOJOUP_NODE_POLICY_TRUST="+trust)}.Load()
		must(t, err)
		r := w.serve(t, o)
		end, _ := w.whole(t, r.client, "true")
		got := ""
		if end.Problem != nil {
			got = strings.ReplaceAll(end.Problem.Sentence, w.repo, "REPO")
		}
		if got != want || (end.Code == 125) != (want != "") {
			t.Errorf("%s: %d %q", trust, end.Code, got)
		}
		r.end()
		must(t, r.wait(t))
	}
}

// A client that goes at the very moment at which its command begins: the
// command is told like any other.
func TestClientGoneAsTheCommandBegins(t *testing.T) {
	w, e := newWorld(t), newStub()
	begun := make(chan struct{})
	e.at = func(ctx context.Context, step string) error {
		if step == "executed" {
			if ctx.Done() != nil { // an engine would take it for refused, and kill it unheard
				t.Error("the start of a command can be broken off")
			}
			close(begun)
		}
		return nil
	}
	r := w.serve(t, w.options(t, e))
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", "trap 'echo hup >heard; exit' HUP; echo >up; while :; do sleep 0.05; done"}})
	<-begun
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for up := false; !up; <-tick.C {
		_, err := os.Stat(filepath.Join(w.repo, "up"))
		up = err == nil
	}
	a.gone()
	for live := []api.Session{{}}; len(live) > 0; <-tick.C {
		var err error
		live, err = r.client.Sessions(t.Context(), false)
		must(t, err)
	}
	if b, err := os.ReadFile(filepath.Join(w.repo, "heard")); err != nil || string(b) != "hup\n" {
		t.Errorf("the command heard %q, %v", b, err)
	}
}

// TestD24_ProfilesAreNoRepository: what a profile names as a command runs outside,
// so that no session may write one.
func TestD24_ProfilesAreNoRepository(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, newStub()))
	profiles := filepath.Join(filepath.Dir(w.paths.Config), "tools")
	must(t, os.MkdirAll(filepath.Join(profiles, "deep"), 0o700))
	for _, dir := range []string{profiles, filepath.Join(profiles, "deep")} {
		git(t, dir, "init", "-q")
		end, err := r.client.Run(t.Context(), api.RunRequest{Directory: dir, Env: plan.CallerEnv(os.Environ()), Command: []string{"true"}}, client.Streams{Stdout: io.Discard, Stderr: io.Discard})
		if err != nil || end.Problem == nil || !strings.Contains(end.Problem.Sentence, "which belongs to the node") {
			t.Errorf("%s: %+v, %v", dir, end, err)
		}
	}
}
