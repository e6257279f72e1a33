package node

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// notesSweeps is the native engine, and which acts it was asked for.
type notesSweeps struct {
	sandbox.Engine
	sandbox.Mortal
	kinds []string
}

func (n *notesSweeps) Sweep(ctx context.Context, u sandbox.Undo) (string, error) {
	if !strings.HasPrefix(u.ID, "spare-") { // of those nobody knows which start made them
		n.kinds = append(n.kinds, u.Kind)
	}
	return n.Engine.Sweep(ctx, u)
}

// TestB62_AfterAReboot: of a session that ran when the machine was started anew
// no process is looked for, because what bears that name now is not it; its
// held paths are taken away, it is shown as lost and why, nothing is started
// again, and the repository is as it was. Of one whose node died in this start
// of the machine processes are looked for.
func TestB62_AfterAReboot(t *testing.T) {
	for _, boot := range []string{"", "anotherstartofthemachine"} {
		w := newWorld(t)
		before := tree(t, w.repo)
		w.dieInTheMiddle(t)
		engine := nativeEngine(t)
		if boot != "" {
			w.restartMachine(t, engine)
		}
		noted := &notesSweeps{Engine: engine, Mortal: engine.(sandbox.Mortal)}
		o := w.options(t, noted)
		o.Boot = boot
		r := w.serve(t, o)
		w.asItWas(t, before)
		looked := slices.Contains(noted.kinds, "native-helper")
		if files := slices.Contains(noted.kinds, "native-dir"); !files || looked != (boot == "") {
			t.Errorf("boot %q: asked for %v", boot, noted.kinds)
		}
		s, err := r.client.Status(t.Context())
		must(t, err)
		rows := w.rowsOf(t, r)
		want := "the node died while it ran"
		if boot != "" {
			want = "the machine was started anew while it ran"
		}
		if len(rows) != 1 || rows[0].State != session.Lost || rows[0].Reason != want || len(s.Sessions) != 0 || len(s.Leftovers) != 0 {
			t.Errorf("boot %q: %+v, living %v, left %q", boot, rows, s.Sessions, s.Leftovers)
		}
		if said := strings.Join(s.Repaired, "\n"); boot != "" && !strings.Contains(said, "when the machine was started anew, now lost") {
			t.Errorf("said %q", said)
		}
		w.cleanBehind(t, r, engine, before)
	}
}

// restartMachine ends what a new start of the machine ends, and nothing else.
func (w world) restartMachine(t *testing.T, engine sandbox.Engine) {
	t.Helper()
	_, pending := w.kept(t)
	for _, e := range pending {
		if engine.(sandbox.Mortal).EndsWithBoot(e.Undo.Undo) {
			_, err := engine.Sweep(t.Context(), e.Undo.Undo)
			must(t, err)
		}
	}
}

func (w world) rowsOf(t *testing.T, r *running) []store.Session {
	t.Helper()
	rows, err := r.node.store.Sessions(t.Context(), store.Filter{})
	must(t, err)
	return rows
}

// TestB62_WhichStart: one that has no name is never taken for another.
func TestB62_WhichStart(t *testing.T) {
	got := map[string]bool{}
	for _, c := range []struct{ key, boot string }{{"a.x", "a"}, {"a.x", "b"}, {"x", "b"}, {".x", "b"}, {"a.x", ""}} {
		got[c.key+" "+c.boot] = earlier(c.key, c.boot)
	}
	if d := cmp.Diff(map[string]bool{"a.x a": false, "a.x b": true, "x b": false, ".x b": false, "a.x ": false}, got); d != "" {
		t.Error(d)
	}
	if id := bootID(); len(id) != 32 || earlier(keyOf(id, "x"), id) {
		t.Errorf("this start is called %q", id)
	}
}

// TestVerdictThatWasNotFoundOutIsAskedForAgain, once; one that was is not.
func TestVerdictThatWasNotFoundOutIsAskedForAgain(t *testing.T) {
	for state, want := range map[capability.State]int{capability.OK: 1, capability.Unknown: 2} {
		w, asked := newWorld(t), 0
		o := w.options(t, newStub())
		o.Examine = func(ctx context.Context, e capability.Engine) capability.Report {
			r := able(ctx, e)
			if asked++; asked == 1 {
				r.Checks[0].State = state
			}
			return r
		}
		r := w.serve(t, o)
		<-r.node.examined
		if asked != want {
			t.Errorf("after %s it asked %d times", state, asked)
		}
		if end, _ := w.whole(t, r.client, "true"); end.Problem != nil {
			t.Errorf("after %s: %v", state, end.Problem)
		}
	}
}
