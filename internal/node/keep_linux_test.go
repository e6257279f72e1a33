package node

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// awaitSpares waits until the store has so many spares and returns them.
func awaitSpares(t *testing.T, s *store.Store, n int) []store.Spare {
	t.Helper()
	for due := time.Now().Add(enough); ; {
		got, err := s.Spares(t.Context())
		must(t, err)
		if len(got) == n {
			return got
		}
		if time.Now().After(due) {
			t.Fatalf("there are %d spares, not %d: %+v", len(got), n, got)
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-t.Context().Done():
			t.Fatal("over")
		}
	}
}

// TestKilledWithSpares kills a node with SIGKILL that has one spare which a
// session uses and one that nobody does: the next start leaves nothing of
// them, and says what it did (T9).
func TestKilledWithSpares(t *testing.T) {
	engine := nativeEngine(t)
	w := newWorld(t)
	before := tree(t, w.repo)
	node := w.doomedNode(t, "never")
	c := client.New(w.paths.Socket())
	s, err := store.Open(t.Context(), w.paths.State, store.Options{})
	must(t, err)
	first := w.ask(t, c, api.RunRequest{Command: []string{"true"}, PolicyName: "own", Policy: limited})
	if end, err := first.end(t); err != nil || end.Code != 0 {
		t.Fatalf("the first session: %+v, %v", end, err)
	}
	waiting := awaitSpares(t, s, 1)
	// Noted is before made, and made is before it waits: who comes in between
	// starts without it.
	for due := time.Now().Add(time.Minute); len(helpers(waiting[0].ID)) < 2; {
		if time.Now().After(due) {
			t.Fatalf("%s is not made", waiting[0].ID)
		}
	}
	var second *asked
	for used := false; !used; {
		second = w.ask(t, c, api.RunRequest{Command: []string{"sh", "-c", "echo up; exec sleep 300"}, PolicyName: "own", Policy: limited})
		second.out.await(t, "up")
		// Its first process has the session's name now.
		used = len(helpers(waiting[0].ID)) == 1
	}
	spares := awaitSpares(t, s, 2)
	var groups []string
	for _, one := range spares {
		for due := time.Now().Add(enough); len(helpers(one.ID)) == 0; {
			if time.Now().After(due) {
				t.Fatalf("nothing runs of %s", one.ID)
			}
		}
		for _, u := range one.Undo {
			if u.Path != "" {
				groups = append(groups, u.Path)
			}
		}
	}
	must(t, node.Process.Kill())
	_, _ = second.end(t)
	_ = node.Wait()
	if os.Geteuid() == 0 && len(there(groups)) == 0 {
		t.Error("the dead node left no control group: there is nothing to prove")
	}
	must(t, s.Close())

	done, left, err := CleanUp(t.Context(), w.paths, map[string]sandbox.Engine{"native": engine})
	must(t, err)
	if len(left) > 0 || len(groups) > 0 && !strings.Contains(strings.Join(done, "\n"), "a sandbox made in advance: ") {
		t.Errorf("done %q, left %q", done, left)
	}
	for _, one := range spares {
		if got := helpers(one.ID); len(got) > 0 {
			t.Errorf("processes are left: %q", got)
		}
	}
	if got := there(groups); len(got) > 0 {
		t.Errorf("control groups are left: %q", got)
	}
	r := w.serve(t, w.options(t, engine))
	if end, out := w.whole(t, r.client, "sh", "-c", "echo again"); end.Code != 0 || out != "again\n" {
		t.Errorf("the next session: %+v %q", end.Problem, out)
	}
	r.end()
	must(t, r.wait(t))
	if s, err = store.Open(t.Context(), w.paths.State, store.Options{}); err != nil {
		t.Fatal(err)
	}
	awaitSpares(t, s, 0) // an orderly end leaves none either
	must(t, s.Close())
	if after := tree(t, w.repo); len(after) != len(before) {
		t.Errorf("left in the repository: %v, was %v", after, before)
	}
}

// there are those of these paths that exist.
func there(paths []string) (out []string) {
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil {
			out = append(out, p)
		}
	}
	return out
}
