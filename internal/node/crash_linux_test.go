package node

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
)

// crashAt and the directories make this test binary a node that kills itself
// when a session reaches that step.
const crashAt, crashRuntime, crashState = "MOJOUP_TEST_CRASH", "MOJOUP_TEST_RUNTIME", "MOJOUP_TEST_STATE"

func TestMain(m *testing.M) {
	if os.Getenv(crashAt) != "" {
		os.Exit(doomed())
	}
	os.Exit(m.Run())
}

// doomed serves until a session reaches the step; then it is gone.
func doomed() int {
	e, err := native.New(native.Options{})
	if err == nil {
		w := world{}
		w.paths.Runtime, w.paths.State = os.Getenv(crashRuntime), os.Getenv(crashState)
		w.paths.Config = filepath.Join(w.paths.State, "none")
		var o Options
		if o, err = w.bareOptions(&suicidal{Engine: e, step: os.Getenv(crashAt)}); err == nil {
			o.Ready = func() { fmt.Println("ready") }
			var n *Node
			if n, err = New(o); err == nil {
				err = n.Serve(context.Background())
			}
		}
	}
	fmt.Println("doomed:", err)
	return 1
}

// suicidal is the native engine in a node that dies at one step.
type suicidal struct {
	sandbox.Engine
	step string
}

func (s *suicidal) die(step string) {
	if step == s.step {
		_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		select {}
	}
}

func (s *suicidal) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	s.die("created")
	box, err := s.Engine.Prepare(ctx, spec)
	s.die("prepared")
	return &suicidalBox{box, s}, err
}

type suicidalBox struct {
	sandbox.Sandbox
	s *suicidal
}

func (b *suicidalBox) Check(ctx context.Context) (sandbox.Enforced, error) {
	e, err := b.Sandbox.Check(ctx)
	b.s.die("checked")
	return e, err
}

func (b *suicidalBox) Exec(ctx context.Context, c sandbox.Command, o sandbox.Stdio) (sandbox.Process, error) {
	p, err := b.Sandbox.Exec(ctx, c, o)
	b.s.die("started")
	return p, err
}

func (b *suicidalBox) Remove(ctx context.Context) error {
	b.s.die("removing")
	err := b.Sandbox.Remove(ctx)
	b.s.die("removed")
	return err
}

// TestKilledAtEveryStep kills a node with SIGKILL at every step of a session's
// life: the next start leaves nothing of it, and says what it did (T9).
func TestKilledAtEveryStep(t *testing.T) {
	engine := nativeEngine(t)
	for _, step := range []string{"created", "prepared", "checked", "started", "running", "removing", "removed"} {
		t.Run(step, func(t *testing.T) { killedAt(t, engine, step) })
	}
}

func killedAt(t *testing.T, engine sandbox.Engine, step string) {
	w := newWorld(t)
	before := tree(t, w.repo)
	node := w.doomedNode(t, step)
	c := client.New(w.paths.Socket())
	command := []string{"sh", "-c", "echo up; exec sleep 300"}
	if strings.HasPrefix(step, "remov") {
		command = []string{"true"}
	}
	a := w.ask(t, c, api.RunRequest{
		Command: command, PolicyName: "own",
		Policy: `{"version": 1, "limits": {"memory": "512MiB", "processes": 100, "cpus": 1}}`,
	})
	if step == "running" {
		a.out.await(t, "up")
		must(t, node.Process.Kill())
	}
	if _, err := a.end(t); !errors.Is(err, client.ErrLost) {
		t.Fatalf("the client was told %v", err)
	}
	_ = node.Wait()
	id := w.onlySession(t)
	groups := controlGroups(engine, id)
	if step == "running" && len(groups) != len(there(groups)) {
		t.Errorf("the dead node left the groups %q, not %q", there(groups), groups)
	}
	if step == "running" && cmp.Equal(before, tree(t, w.repo)) {
		t.Error("the dead node left nothing in the repository: there is nothing to prove")
	}
	if out := git(t, w.repo, "status", "--porcelain"); out != "" {
		t.Errorf("git shows %q before the repair", out)
	}

	r := w.serve(t, w.options(t, engine))
	s, err := r.client.Status(t.Context())
	must(t, err)
	said := strings.Join(s.Repaired, "\n")
	if !strings.Contains(said, "now lost") || len(s.Leftovers) != 0 {
		t.Errorf("said %q, left %q", said, s.Leftovers)
	}
	got, err := r.client.Session(t.Context(), string(id))
	if err != nil || got.State != string(session.Lost) || got.Reason == "" {
		t.Errorf("the session is %+v, %v", got, err)
	}
	if d := cmp.Diff(before, tree(t, w.repo)); d != "" {
		t.Errorf("left in the repository (-before +after):\n%s", d)
	}
	if out := git(t, w.repo, "status", "--porcelain"); out != "" {
		t.Errorf("git shows %q", out)
	}
	if left := helpers(t, string(id)); len(left) > 0 {
		t.Errorf("processes are left: %q", left)
	}
	if left := there(groups); len(left) > 0 {
		t.Errorf("control groups are left: %q", left)
	}
	if end, out := w.whole(t, r.client, "sh", "-c", "echo again"); end.Code != 0 || out != "again\n" {
		t.Errorf("the next session: %+v %q", end.Problem, out)
	}
	r.end()
	must(t, r.wait(t))
	if _, err := os.Lstat(w.paths.Socket()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left: %v", err)
	}
	if _, pending := w.kept(t); len(pending) != 0 {
		t.Errorf("still to undo: %v", pending)
	}
}

// controlGroups are those that the session's sandbox would have; none where
// the node may write none.
func controlGroups(e sandbox.Engine, id session.ID) (dirs []string) {
	for _, u := range e.Undo(sandbox.Spec{ID: string(id), Limits: sandbox.Limits{Memory: 1, Processes: 1, CPUs: 1}}) {
		if u.Kind == "native-group" {
			dirs = append(dirs, u.Path)
		}
	}
	return dirs
}

func there(paths []string) (out []string) {
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}

// doomedNode starts a node in a process of its own that dies at a step.
func (w world) doomedNode(t *testing.T, step string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), crashAt+"="+step, crashRuntime+"="+w.paths.Runtime, crashState+"="+w.paths.State)
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || line != "ready\n" {
		t.Fatalf("the node said %q, %v", line, err)
	}
	return cmd
}

func (w world) onlySession(t *testing.T) session.ID {
	t.Helper()
	rows, _ := w.kept(t)
	if len(rows) != 1 || !rows[0].State.Live() {
		t.Fatalf("in the store: %+v", rows)
	}
	return rows[0].ID
}

// tree lists everything below dir.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		out = append(out, path+" "+d.Type().String())
		return err
	}))
	return out
}

// helpers are the processes of one sandbox: the outer helper, pid 1, and what
// has its name in the environment or command line.
func helpers(t *testing.T, id string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	var out []string
	for _, path := range lines {
		if line, err := os.ReadFile(path); err == nil && strings.Contains(string(line), "mojoup-child\x00"+id) {
			out = append(out, path)
		}
	}
	return out
}

// B99: two nodes that start at the same moment are one daemon and one clear
// refusal, however the race goes.
func TestB99TwoStarts(t *testing.T) {
	for range 10 {
		w := newWorld(t)
		over := make(chan error, 2)
		ready := make(chan struct{}, 2)
		ctx, cancel := context.WithCancel(t.Context())
		for range 2 {
			o := w.options(t, newStub())
			o.Ready = func() { ready <- struct{}{} }
			n, err := New(o)
			must(t, err)
			go func() { over <- n.Serve(ctx) }()
		}
		<-ready
		if err := <-over; !errors.Is(err, ErrRunning) {
			t.Errorf("the second one said %v", err)
		}
		if _, err := client.New(w.paths.Socket()).Status(t.Context()); err != nil {
			t.Errorf("the first one does not answer: %v", err)
		}
		cancel()
		must(t, <-over)
	}
}

// B99: a dead node's socket is cleared by the start; anything else in its
// place is not touched.
func TestB99WhatLiesInTheWay(t *testing.T) {
	w := newWorld(t)
	must(t, os.MkdirAll(w.paths.Runtime, 0o700))
	ln, err := net.Listen("unix", w.paths.Socket())
	must(t, err)
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	must(t, ln.Close())
	r := w.serve(t, w.options(t, newStub()))
	if _, err := r.client.Status(t.Context()); err != nil {
		t.Errorf("behind a stale socket: %v", err)
	}
	r.end()
	must(t, r.wait(t))

	must(t, os.WriteFile(w.paths.Socket(), []byte("mine"), 0o600))
	n, err := New(w.options(t, newStub()))
	must(t, err)
	if err := n.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), "is in the way") {
		t.Errorf("with a file in the way: %v", err)
	}
	if b, err := os.ReadFile(w.paths.Socket()); err != nil || string(b) != "mine" {
		t.Errorf("the file is %q, %v", b, err)
	}
}

// A runtime directory of somebody else is refused: whoever owns it could put
// a socket of their own there.
func TestRuntimeDirectoryOfSomebodyElse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("wanted root, which can make such a directory")
	}
	w := newWorld(t)
	must(t, os.MkdirAll(w.paths.Runtime, 0o700))
	must(t, os.Chown(w.paths.Runtime, 1000, 1000))
	n, err := New(w.options(t, newStub()))
	must(t, err)
	if err := n.Serve(t.Context()); err == nil || !strings.Contains(err.Error(), w.paths.Runtime) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(w.paths.State); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a refused start made the state directory: %v", err)
	}
}
