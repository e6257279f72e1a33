package residue

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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
	w := &witness{marks: []sandbox.Trace{{Kind: sandbox.TraceProcess, Sandbox: "x", Path: "/p", PID: pid}, {Kind: sandbox.TraceGroup, Sandbox: "x", Path: "/g"}}}
	// Its lock is unknown here, as that of a node in another place is.
	if got := found(t, config.Paths{State: t.TempDir(), Runtime: t.TempDir()}, w); got != "" {
		t.Errorf("while the node lives: %q", got)
	}
	must(t, node.Process.Kill())
	_ = node.Wait()
	if got := found(t, config.Paths{State: t.TempDir(), Runtime: t.TempDir()}, w); got != "control group x g\nprocess x p" {
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
