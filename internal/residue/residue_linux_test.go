package residue

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// witness is an engine whose marks a test chooses; what remains of an act is
// the file at its path.
type witness struct {
	sandbox.Engine
	marks []sandbox.Trace
	looks int
	fade  int // after so many looks there are no marks any more; 0 is never
}

func (w *witness) Marked(context.Context) ([]sandbox.Trace, error) {
	if w.looks++; w.fade > 0 && w.looks > w.fade {
		return nil, nil
	}
	return w.marks, nil
}

func (w *witness) Remains(_ context.Context, u sandbox.Undo) ([]sandbox.Trace, error) {
	if _, err := os.Lstat(u.Path); err != nil {
		return nil, nil
	}
	return []sandbox.Trace{{Kind: sandbox.TracePlaceholder, Sandbox: u.ID, Path: u.Path, InUse: u.Content == "in use"}}, nil
}

// a place is one node's, with a store in which sessions are written.
func place(t *testing.T) config.Paths {
	t.Helper()
	run, err := os.MkdirTemp("", "mj") // short: a socket's path is bounded
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(run) })
	return config.Paths{State: t.TempDir(), Runtime: run, Register: t.TempDir()}
}

func session1(t *testing.T, p config.Paths, id string, to session.State, undo ...store.Undo) {
	t.Helper()
	s, err := store.Open(t.Context(), p.State, store.Options{})
	must(t, err)
	defer s.Close()
	must(t, s.CreateSession(t.Context(), store.Session{ID: session.ID(id), State: session.Staging}, undo))
	if to == session.Gone {
		must(t, s.UndoAllDone(t.Context(), session.ID(id)))
		must(t, s.MoveSession(t.Context(), session.ID(id), session.Stopping, nil))
		must(t, s.MoveSession(t.Context(), session.ID(id), session.Gone, nil))
	}
}

func act(path, content string) store.Undo {
	return store.Undo{Owner: "engine:native", Undo: sandbox.Undo{Kind: "made", Path: path, Content: content, ID: "of-" + filepath.Base(path)}}
}

// found is what a look lists, each thing in a few words.
func found(t *testing.T, p config.Paths, w *witness) string {
	t.Helper()
	r, err := Look(t.Context(), Options{Paths: p, Engines: map[string]sandbox.Engine{"native": w}, Settle: 1})
	must(t, err)
	for _, line := range r.Unknown {
		t.Errorf("unknown: %s", line)
	}
	var out []string
	for _, l := range r.Left {
		out = append(out, strings.TrimSuffix(fmt.Sprintf("%s %s %s", l.Kind, l.Session, filepath.Base(l.Path)), " ."))
	}
	return strings.Join(out, "\n")
}

// What a dead node wrote down is listed as it stands: live sessions, what is
// not undone, and what was called done and is there all the same.
func TestT9_WhatADeadNodeLeft(t *testing.T) {
	p, tree := place(t), t.TempDir()
	if got := found(t, p, &witness{}); got != "" {
		t.Errorf("before anything: %s", got)
	}
	there, missing, used := filepath.Join(tree, "there"), filepath.Join(tree, "missing"), filepath.Join(tree, "used")
	for _, dir := range []string{there, used} {
		must(t, os.Mkdir(dir, 0o700))
	}
	session1(t, p, "a", session.Staging, act(missing, ""))
	session1(t, p, "b", session.Gone, act(there, ""), act(missing, ""), act(used, "in use"))
	must(t, unix.Mknod(filepath.Join(p.Runtime, "node.sock"), unix.S_IFSOCK|0o600, 0))
	must(t, os.WriteFile(filepath.Join(p.Runtime, "staged"), nil, 0o600))
	must(t, os.WriteFile(p.Lock(), nil, 0o600))
	want := "file  staged\nsocket  node.sock\nsession a\nundo a missing\nplaceholder of-there there"
	if d := cmp.Diff(want, found(t, p, &witness{})); d != "" {
		t.Errorf("(-want +got)\n%s", d)
	}
	before, err := os.ReadDir(p.State)
	must(t, err)
	found(t, p, &witness{})
	after, err := os.ReadDir(p.State)
	must(t, err)
	if len(before) != len(after) {
		t.Errorf("looking changed the state directory: %v, %v", before, after)
	}
}

// A socket of somebody else's that is only called like a node's is nothing that
// a node has left.
func TestT9_ListenersOfOthersAreNotListed(t *testing.T) {
	p, other := place(t), place(t)
	ln, err := net.Listen("unix", other.Socket())
	must(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	// Nobody answers at the name, which the kernel still shows as listened at.
	must(t, os.Remove(other.Socket()))
	must(t, unix.Mknod(other.Socket(), unix.S_IFSOCK|0o600, 0))
	if got := found(t, p, &witness{}); got != "" {
		t.Errorf("listed: %s", got)
	}
}

// Another node of the same user is known by the register, until it has left
// that or its state is gone; what it left bears its name.
func TestT9_OtherNodesAreKnown(t *testing.T) {
	other := place(t)
	p := place(t)
	p.Register = other.Register
	session1(t, other, "b", session.Staging)
	must(t, other.Enrol())
	for range 2 { // again changes nothing
		must(t, p.Enrol())
	}
	if got := found(t, p, &witness{}); got != "session b" {
		t.Errorf("with another's session: %q", got)
	}
	must(t, other.Leave())
	if got := found(t, p, &witness{}); got != "" {
		t.Errorf("after it has left: %q", got)
	}
	must(t, other.Enrol())
	must(t, os.RemoveAll(other.State))
	must(t, p.Enrol())
	if all, err := p.Places(); err != nil || len(all) != 1 {
		t.Errorf("one whose state is gone is still known: %v, %v", all, err)
	}
}

// A node that is just starting or ending does not answer, but has its lock,
// and with it what its journal calls live.
func TestT9_TheLockIsAnOwner(t *testing.T) {
	p := place(t)
	session1(t, p, "a", session.Staging, act(p.State, ""))
	w := &witness{marks: []sandbox.Trace{{Kind: sandbox.TraceGroup, Sandbox: "a", Path: "/group"}, {Kind: sandbox.TraceGroup, Sandbox: "z", Path: "/other"}}}
	lock, err := os.Create(p.Lock())
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	if got := found(t, p, w); got != "control group z other" {
		t.Errorf("while it has the lock: %q", got)
	}
	must(t, lock.Close())
	want := "control group a group\nsession a\nundo a " + filepath.Base(p.State)
	if got := found(t, p, w); !strings.HasPrefix(got, want) {
		t.Errorf("without it: %q", got)
	}
}

// A process that descends from a node which answers nothing is that node's,
// and the same process is nobody's once it is gone.
func TestT9_DescendantsAreOwned(t *testing.T) {
	if os.Getenv("BE_A_NODE") != "" {
		beANode()
	}
	p := place(t)
	node := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$")
	node.Env = append(os.Environ(), "BE_A_NODE="+p.Socket())
	out, err := node.StdoutPipe()
	must(t, err)
	must(t, node.Start())
	t.Cleanup(func() { _ = node.Process.Kill() })
	var pid int
	_, err = fmt.Fscan(bufio.NewReader(out), &pid)
	must(t, err)
	t.Cleanup(func() { _ = unix.Kill(pid, unix.SIGKILL) })
	w := &witness{marks: []sandbox.Trace{
		{Kind: sandbox.TraceProcess, Sandbox: "x", Path: "/p", PID: pid}, {Kind: sandbox.TraceGroup, Sandbox: "x", Path: "/g"},
		{Kind: sandbox.TraceGroup, Path: "/given", Holds: []int{pid}},
	}}
	// Its lock is unknown here, as that of a node in another place is.
	if got := found(t, config.Paths{State: t.TempDir(), Runtime: t.TempDir()}, w); got != "" {
		t.Errorf("while the node lives: %q", got)
	}
	must(t, node.Process.Kill())
	_ = node.Wait()
	if got := found(t, config.Paths{State: t.TempDir(), Runtime: t.TempDir()}, w); got != "control group  given\ncontrol group x g\nprocess x p" {
		t.Errorf("once it is dead: %q", got)
	}
}

// beANode listens as a node does, says nothing, and has a child.
func beANode() {
	ln, err := net.Listen("unix", os.Getenv("BE_A_NODE"))
	if err != nil {
		panic(err)
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_ = conn.Close()
		}
	}()
	child := exec.Command("sleep", "60")
	if err := child.Start(); err != nil {
		panic(err)
	}
	fmt.Println(child.Process.Pid)
	_ = child.Wait()
	os.Exit(0)
}

// What was begun in advance is in the journal too. While its node lives it is
// the node's.
func TestT9_SparesAreKnown(t *testing.T) {
	p, tree := place(t), t.TempDir()
	s, err := store.Open(t.Context(), p.State, store.Options{})
	must(t, err)
	must(t, os.Mkdir(filepath.Join(tree, "there"), 0o700))
	must(t, s.AddSpare(t.Context(), "spare-x", []store.Undo{act(filepath.Join(tree, "there"), ""), act(filepath.Join(tree, "missing"), "")}))
	must(t, s.Close())
	w := &witness{marks: []sandbox.Trace{{Kind: sandbox.TraceGroup, Sandbox: "spare-x", Path: "/group", Spare: true}}}
	lock, err := os.Create(p.Lock())
	must(t, err)
	must(t, unix.Flock(int(lock.Fd()), unix.LOCK_EX))
	if got := found(t, p, w); got != "" {
		t.Errorf("while its node lives: %s", got)
	}
	must(t, lock.Close())
	if d := cmp.Diff("control group  group\nplaceholder of-there there", found(t, p, w)); d != "" {
		t.Errorf("of a dead node (-want +got)\n%s", d)
	}
	r, err := Look(t.Context(), Options{Paths: p, Engines: map[string]sandbox.Engine{"native": w}, OwnOnly: true, Settle: 1})
	must(t, err)
	if len(r.Left) != 2 || r.Left[0].State != p.State || !strings.Contains(r.Left[0].Says, "of a sandbox that was begun in advance") {
		t.Errorf("a look for what this node has left finds %+v", r.Left)
	}
}

// Whom a dead system node served is told.
func TestT9_PeopleWhoseServiceDidNotEnd(t *testing.T) {
	p := place(t)
	must(t, os.MkdirAll(filepath.Join(p.State, config.UnfinishedName, "1000"), 0o700))
	if got := found(t, p, &witness{}); got != "undo  1000" {
		t.Errorf("listed: %q", got)
	}
}

// Somebody else's program that answers as a node does hides nothing but what is
// that user's, whatever it calls its own.
func TestT9_ForgedNodesHideTheirOwnOnly(t *testing.T) {
	if socket := os.Getenv("FORGE_A_NODE"); socket != "" {
		forgeANode(socket)
	}
	if os.Geteuid() != 0 {
		t.Skip("wanted root, who looks for everybody, found user", os.Geteuid())
	}
	const liar = 65534
	bin, run := filepath.Join(place(t).Runtime, "liar"), place(t).Runtime
	self, err := os.ReadFile(os.Args[0])
	must(t, err)
	must(t, os.WriteFile(bin, self, 0o755))
	for _, dir := range []string{filepath.Dir(bin), run} {
		must(t, os.Chmod(dir, 0o755))
	}
	must(t, os.Chown(run, liar, liar))
	cmd := exec.Command(bin, "-test.run", "^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "FORGE_A_NODE="+filepath.Join(run, config.SocketName))
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: liar, Gid: liar}}
	out, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "listens\n" {
		t.Fatalf("the liar said %q, %v", line, err)
	}
	mine, theirs := t.TempDir(), t.TempDir()
	must(t, os.Chown(theirs, liar, liar))
	w := &witness{marks: []sandbox.Trace{
		{Kind: sandbox.TraceGroup, Sandbox: "x", Path: mine}, {Kind: sandbox.TraceGroup, Sandbox: "x", Path: theirs},
		// A process of root's that descends from what the liar calls its own.
		{Kind: sandbox.TraceProcess, Sandbox: "y", Path: "/p", PID: os.Getpid()},
	}}
	want := "control group x " + filepath.Base(mine) + "\nprocess y p"
	if got := found(t, place(t), w); got != want {
		t.Errorf("listed: %q, want %q", got, want)
	}
}

// forgeANode answers that it is the parent of whoever runs the test and carries
// session x. Its lock is a file that a living process has locked.
func forgeANode(socket string) {
	lock, err := os.Create(config.Paths{Runtime: filepath.Dir(socket)}.Lock())
	if err == nil {
		err = unix.Flock(int(lock.Fd()), unix.LOCK_EX)
	}
	ln, lerr := net.Listen("unix", socket)
	if err = errors.Join(err, lerr); err != nil {
		panic(err)
	}
	fmt.Println("listens")
	_ = http.Serve(ln, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { //nolint:gosec // of a test
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"node": {"running": true, "system": true, "pid": %d}, "sessions": [{"id": "x"}, {"id": "y"}]}`, os.Getppid())
	}))
	os.Exit(0)
}

// What goes by itself is waited for.
func TestT9_WhatIsJustEndingIsNotListed(t *testing.T) {
	w := &witness{marks: []sandbox.Trace{{Kind: sandbox.TraceProcess, Sandbox: "x", Path: "/p", PID: 1 << 22}}, fade: 6}
	r, err := Look(t.Context(), Options{Paths: place(t), Engines: map[string]sandbox.Engine{"native": w}})
	must(t, err)
	if len(r.Left) > 0 || w.looks != 7 {
		t.Errorf("after %d looks %v is left", w.looks, r.Left)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
