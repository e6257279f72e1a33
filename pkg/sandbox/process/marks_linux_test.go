package process

import (
	"os"
	"slices"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestT9_OrdinaryProcessesBearAMark, and so does what they start and leave.
func TestT9_OrdinaryProcessesBearAMark(t *testing.T) {
	e := New(Options{})
	const id = "marked-1"
	box, err := e.Prepare(t.Context(), sandbox.Spec{ID: id, Identity: sandbox.Identity{UID: os.Getuid(), GID: os.Getgid()}, Env: []string{"PATH=/usr/bin:/bin", Variable + "=" + id}})
	if err != nil {
		t.Fatal(err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	p, err := box.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "sleep 100 & echo up; wait"}}, sandbox.Stdio{Stdout: w})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = r.Read(make([]byte, 2))
	if n := count(t, e, id); n != 2 {
		t.Errorf("%d processes bear the mark of a shell and its child", n)
	}
	if err := box.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, _ = p.Wait(t.Context())
	if n := count(t, e, id); n != 0 {
		t.Errorf("afterwards %d processes bear the mark", n)
	}
}

func count(t *testing.T, e *Engine, id string) int {
	t.Helper()
	all, err := e.Marked(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return len(slices.DeleteFunc(all, func(m sandbox.Trace) bool { return m.Sandbox != id }))
}
