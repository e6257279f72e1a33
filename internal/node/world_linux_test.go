package node

import (
	"context"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
)

// enough is longer than anything here may take.
const enough = 2 * time.Minute

// world is the directories of one node, and a repository.
type world struct {
	paths config.Paths
	repo  string
	stdin io.Reader // of what is asked for; nil is its end at once
	// gateway is where a doomed node finds one, or nil.
	gateway []string
}

func newWorld(t *testing.T) world {
	t.Helper()
	run, err := os.MkdirTemp("", "mj") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	dir := t.TempDir()
	w := world{
		paths: config.Paths{Config: filepath.Join(dir, "node.toml"), State: filepath.Join(dir, "state"), Runtime: filepath.Join(run, "r")},
		repo:  filepath.Join(dir, "repo"),
	}
	git(t, dir, "init", "-q", w.repo)
	return w
}

func git(t *testing.T, dir string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("git %s: %v: %s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// able is the report of a machine on which the native engine can run.
func able(context.Context, capability.Engine) capability.Report {
	var r capability.Report
	for _, name := range []string{capability.NameSystem, capability.NameHelper, capability.NameLandlock, capability.NameListener, capability.NameNamespaces} {
		r.Checks = append(r.Checks, capability.Check{Name: name, State: capability.OK, Engines: []string{"native"}})
	}
	return r
}

// brisk ends things fast.
var brisk = Times{HangUp: 200 * time.Millisecond, Remove: 3 * time.Second, Patience: 500 * time.Millisecond}

func (w world) options(t *testing.T, e sandbox.Engine) Options {
	t.Helper()
	o, err := w.bareOptions(e)
	if err != nil {
		t.Fatal(err)
	}
	o.Logger = slog.New(slog.NewTextHandler(saidUntilOver(t), nil))
	return o
}

// saidUntilOver is a test's output, as long as there is one: a call that a node
// has left behind, see bounded, may say something yet.
func saidUntilOver(t *testing.T) io.Writer {
	said := &untilOver{to: t.Output()}
	t.Cleanup(func() {
		said.mu.Lock()
		defer said.mu.Unlock()
		said.to = io.Discard
	})
	return said
}

type untilOver struct {
	mu sync.Mutex
	to io.Writer
}

func (o *untilOver) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.to.Write(p)
}

// noPage keeps nodes of tests from a place that they would all want.
var noPage = []string{"MOJOUP_NODE_CONSOLE_LISTEN=off"}

func (w world) bareOptions(e sandbox.Engine) (Options, error) {
	origin := config.Origin{File: w.paths.Config, Environ: noPage}
	if e.Name() == "docker" {
		origin.Environ = append(slices.Clip(noPage), "MOJOUP_NODE_SANDBOX_ENGINE=docker")
	}
	settings, err := origin.Load()
	o := Options{
		Paths: w.paths, Settings: settings, Follow: origin.Follow(settings).Now, Version: "test",
		Engines: enginesWith(e), Examine: able,
	}
	if e.Name() == "docker" {
		o.Examine = ableDocker
	}
	return o, err
}

// enginesWith are the engines of a node beside the one that is tried, by name.
func enginesWith(e sandbox.Engine) map[string]sandbox.Engine {
	all := map[string]sandbox.Engine{e.Name(): e, "process": process.New(process.Options{})}
	if o, ok := e.(ordinary); ok {
		all["native"] = o.Native
	}
	return all
}

func nativeEngine(t *testing.T) sandbox.Engine {
	t.Helper()
	kerneltest.Require(t, "user namespaces", child.TryNamespaces(t.Context()))
	e, err := native.New(native.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = e.Close() })
	return e
}

// running is a node that serves.
type running struct {
	node   *Node
	client *client.Client
	end    context.CancelFunc
	over   chan error // gives what Serve returned, once
}

func (w world) serve(t *testing.T, o Options) *running {
	t.Helper()
	ready := make(chan struct{})
	o.Ready = func() { close(ready) }
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{node: n, client: client.New(w.paths.Socket()), end: cancel, over: make(chan error, 1)}
	go func() { r.over <- n.Serve(ctx) }()
	select {
	case <-ready:
	case err := <-r.over:
		t.Fatalf("the node did not start: %v", err)
	}
	t.Cleanup(func() { cancel(); _ = r.wait(t) })
	return r
}

// wait returns what Serve returned.
func (r *running) wait(t *testing.T) error {
	t.Helper()
	select {
	case err := <-r.over:
		r.over <- err
		return err
	case <-time.After(enough):
		t.Fatal("the node does not end")
		return nil
	}
}

// asked is one session that somebody asked for.
type asked struct {
	gone   context.CancelFunc
	ended  chan api.Ended
	failed chan error
	out    *lines
}

// lines is output that tests wait for.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
	more chan struct{}
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.text.Write(p)
	select {
	case l.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// await waits until something has been written.
func (l *lines) await(t *testing.T, want string) {
	t.Helper()
	late := time.After(enough)
	for !strings.Contains(l.String(), want) {
		select {
		case <-l.more:
		case <-late:
			t.Fatalf("no %q in %q", want, l.String())
		}
	}
}

// ask asks for a session and returns at once.
func (w world) ask(t *testing.T, c *client.Client, req api.RunRequest) *asked {
	t.Helper()
	if req.Directory == "" {
		req.Directory = w.repo
	}
	if req.Env == nil {
		req.Env = plan.CallerEnv(os.Environ())
	}
	ctx, cancel := context.WithCancel(context.Background())
	a := &asked{gone: cancel, ended: make(chan api.Ended, 1), failed: make(chan error, 1), out: &lines{more: make(chan struct{}, 1)}}
	done := make(chan struct{})
	go func() {
		defer close(done)
		end, err := c.Run(ctx, req, client.Streams{Stdin: w.stdin, Stdout: a.out, Stderr: a.out})
		a.ended <- end
		a.failed <- err
	}()
	t.Cleanup(func() { cancel(); <-done })
	return a
}

func (a *asked) end(t *testing.T) (api.Ended, error) {
	t.Helper()
	select {
	case e := <-a.ended:
		return e, <-a.failed
	case <-time.After(enough):
		t.Fatal("the session does not end")
		return api.Ended{}, nil
	}
}

// whole runs a command to its end.
func (w world) whole(t *testing.T, c *client.Client, argv ...string) (api.Ended, string) {
	t.Helper()
	a := w.ask(t, c, api.RunRequest{Command: argv})
	e, err := a.end(t)
	if err != nil {
		t.Fatal(err)
	}
	return e, a.out.String()
}

// kept reads what a node left in its store.
func (w world) kept(t *testing.T) ([]store.Session, []store.JournalEntry) {
	t.Helper()
	s, err := store.Open(t.Context(), w.paths.State, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	all, err := s.Sessions(t.Context(), store.Filter{})
	if err != nil {
		t.Fatal(err)
	}
	pending, err := s.Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return all, pending
}

// stub is an engine that makes ordinary processes and calls itself native, so
// that tests can stand at each of its steps.
type stub struct {
	sandbox.Engine
	at func(ctx context.Context, step string) error // called when a step begins
	ln func() net.Listener                          // the way out, or nil

	mu      sync.Mutex // guards what follows
	made    int
	removed int
	swept   int
}

func newStub() *stub {
	return &stub{Engine: process.New(process.Options{}), at: func(context.Context, string) error { return nil }}
}

func (s *stub) Name() string { return "native" }
func (s *stub) Undo(spec sandbox.Spec) []sandbox.Undo {
	return []sandbox.Undo{{Kind: "stub", ID: spec.ID}}
}
func (s *stub) Sweep(ctx context.Context, _ sandbox.Undo) (string, error) {
	if err := s.at(ctx, "sweep"); err != nil {
		return "", err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept++
	return "", nil
}

func (s *stub) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := s.at(ctx, "prepare"); err != nil {
		return nil, err
	}
	spec.Env = append(spec.Env, "PATH="+os.Getenv("PATH"))
	box, err := s.Engine.Prepare(context.WithoutCancel(ctx), spec)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	b := &stubBox{Sandbox: box, s: s}
	if s.ln != nil {
		b.ln = s.ln()
	}
	return b, nil
}

func (s *stub) counts() (made, removed int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made, s.removed
}

type stubBox struct {
	sandbox.Sandbox
	s  *stub
	ln net.Listener
}

func (b *stubBox) Listener() net.Listener { return b.ln }
func (b *stubBox) Check(ctx context.Context) (sandbox.Enforced, error) {
	if err := b.s.at(ctx, "check"); err != nil {
		return nil, err
	}
	return b.Sandbox.Check(ctx)
}
func (b *stubBox) Exec(ctx context.Context, c sandbox.Command, o sandbox.Stdio) (sandbox.Process, error) {
	if err := b.s.at(ctx, "exec"); err != nil {
		return nil, err
	}
	p, err := b.Sandbox.Exec(ctx, c, o)
	if err != nil {
		return nil, err
	}
	return &stubProcess{Process: p, s: b.s}, b.s.at(ctx, "executed")
}
func (b *stubBox) Remove(ctx context.Context) error {
	if err := b.s.at(ctx, "remove"); err != nil {
		return err
	}
	err := b.Sandbox.Remove(ctx)
	b.s.mu.Lock()
	defer b.s.mu.Unlock()
	b.s.removed++
	return err
}

type stubProcess struct {
	sandbox.Process
	s *stub
}

func (p *stubProcess) Wait(ctx context.Context) (sandbox.Exit, error) {
	if err := p.s.at(ctx, "wait"); err != nil {
		return sandbox.Exit{}, err
	}
	return p.Process.Wait(ctx)
}

// askWith asks for a session whose output goes elsewhere; the channel is
// closed when the client has returned.
func (w world) askWith(t *testing.T, c *client.Client, req api.RunRequest, out io.Writer) <-chan struct{} {
	t.Helper()
	req.Directory, req.Env = w.repo, plan.CallerEnv(os.Environ())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_, _ = c.Run(context.Background(), req, client.Streams{Stdout: out, Stderr: out})
	}()
	return over
}

// testSettings are all at their defaults.
func testSettings(t *testing.T) *config.Config {
	t.Helper()
	c, err := config.Origin{}.Load()
	must(t, err)
	return c
}
