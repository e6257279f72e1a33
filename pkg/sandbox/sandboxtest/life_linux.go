package sandboxtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// marked finds the processes of the host whose command line holds mark: the
// view of somebody who knows nothing of the engine.
func marked(t *testing.T, mark string) []string {
	t.Helper()
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline")
	must(t, err)
	if len(lines) == 0 {
		t.Fatal("no process at all")
	}
	var found []string
	for _, l := range lines {
		if text, err := os.ReadFile(l); err == nil && strings.Contains(string(text), mark) {
			found = append(found, filepath.Base(filepath.Dir(l)))
		}
	}
	return found
}

func testRemoveEndsEverything(t *testing.T, s *suite) {
	p := s.newPlace(t)
	b := s.open(t, s.spec(t, p))
	mark := "mark-" + filepath.Base(p.dir)
	// The sleeps are told apart by their argument zero; exec -a is not in sh.
	must(t, os.Symlink("/usr/bin/sleep", filepath.Join(p.repo, mark)))
	proc, line := b.start(p.repo, fmt.Sprintf(`./%[1]s 600 & setsid ./%[1]s 600 & (trap '' TERM HUP INT; ./%[1]s 600) & sh -c 'setsid ./%[1]s 600 & wait' & while [ $(cat /proc/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' | grep -c '^./%[1]s$') -lt 4 ]; do :; done; echo ready; wait`, mark))
	line()
	c := b.console("./" + mark + " 600 & echo ready; read x")
	c.expect("ready")
	if len(marked(t, mark)) < 4 {
		t.Fatalf("the processes cannot be seen: %v", marked(t, mark))
	}
	must(t, b.Remove(deadline(t)))
	if left := marked(t, mark); len(left) > 0 {
		t.Errorf("%d processes survive Remove: %v", len(left), left)
	}
	if got := b.wait(proc); got.Code != 128+9 {
		t.Errorf("the running command ended with %+v, want 137", got)
	}
	select {
	case <-b.Done():
	default:
		t.Error("Done is open after Remove")
	}
}

func testRemoveAgain(t *testing.T, s *suite) {
	_, b := s.plain(t)
	_, line := b.start("/", "echo ready; sleep 600")
	line()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			if err := b.Remove(deadline(t)); err != nil {
				t.Errorf("Remove: %v", err)
			}
		})
	}
	all.Wait()
	if err := b.Remove(deadline(t)); err != nil {
		t.Errorf("another Remove: %v", err)
	}
	<-b.Done()
}

func testGone(t *testing.T, s *suite) {
	_, b := s.plain(t)
	select {
	case <-b.Done():
		t.Fatal("Done is closed before Remove")
	default:
	}
	must(t, b.Remove(deadline(t)))
	if _, err := b.try(shell("/", "true"), nil); !isGone(err) {
		t.Errorf("Exec: got %v, want ErrGone", err)
	}
	if _, err := b.Check(deadline(t)); !isGone(err) {
		t.Errorf("Check: got %v, want ErrGone", err)
	}
}

func testCancelled(t *testing.T, s *suite) {
	p := s.newPlace(t)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	spec := s.spec(t, p)
	if made, err := s.newEngine(t).Prepare(over, spec); !errors.Is(err, context.Canceled) {
		t.Errorf("Prepare: got %v, %v", made, err)
	}
	b := s.open(t, spec) // under the same ID: nothing was left
	if _, err := b.Exec(over, shell("/", "true"), sandbox.Stdio{}); !errors.Is(err, context.Canceled) {
		t.Errorf("Exec: got %v", err)
	}
	proc, line := b.start("/", "echo ready; exec sleep 600")
	line()
	if _, err := proc.Wait(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Wait: got %v", err)
	}
	select {
	case <-b.Done():
		t.Error("a cancelled Wait ended the sandbox")
	default:
	}
	must(t, proc.Signal(os.Kill))
	if got := b.wait(proc); got.Code != 137 {
		t.Errorf("after a cancelled Wait: %+v", got)
	}
	// Exec's context is of the start, not of the life.
	brief, cancel := context.WithCancel(t.Context())
	proc, err := b.Exec(brief, shell("/", "read x; exit 3"), sandbox.Stdio{Stdin: waitFor(brief)})
	must(t, err)
	cancel()
	if got := b.wait(proc); got.Code != 3 {
		t.Errorf("Exec's context ended the command: %+v", got)
	}
}

// waitFor is an input that ends when ctx does.
func waitFor(ctx context.Context) readerFunc {
	return func([]byte) (int, error) { <-ctx.Done(); return 0, errors.New("over") }
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

func testInvalidSpecs(t *testing.T, s *suite) {
	type change func(*sandbox.Spec)
	bind := func(m sandbox.Mount) change {
		return func(s *sandbox.Spec) { s.Mounts = append(s.Mounts, m) }
	}
	guard := func(p sandbox.Protection) change {
		return func(s *sandbox.Spec) { s.Protect = append(s.Protect, p) }
	}
	always := map[string]change{
		"zero":          func(s *sandbox.Spec) { *s = sandbox.Spec{} },
		"no id":         func(s *sandbox.Spec) { s.ID = "" },
		"long id":       func(s *sandbox.Spec) { s.ID = strings.Repeat("a", 33) },
		"path id":       func(s *sandbox.Spec) { s.ID = "../x" },
		"upper id":      func(s *sandbox.Spec) { s.ID = "Abc" },
		"negative uid":  func(s *sandbox.Spec) { s.Identity.UID = -1 },
		"negative gid":  func(s *sandbox.Spec) { s.Identity.GID = -1 },
		"env no equals": func(s *sandbox.Spec) { s.Env = append(s.Env, "NAME") },
		"env no name":   func(s *sandbox.Spec) { s.Env = append(s.Env, "=value") },
		"env zero byte": func(s *sandbox.Spec) { s.Env = append(s.Env, "A=b\x00c") },
	}
	confining := map[string]change{
		"no proxy":            func(s *sandbox.Spec) { s.Proxy = "" },
		"proxy not loopback":  func(s *sandbox.Spec) { s.Proxy = "192.0.2.1:80" },
		"proxy by name":       func(s *sandbox.Spec) { s.Proxy = "localhost:80" },
		"relative target":     bind(sandbox.Mount{Kind: sandbox.Scratch, Target: "x"}),
		"unclean target":      bind(sandbox.Mount{Kind: sandbox.Scratch, Target: "/x/../etc"}),
		"relative source":     bind(sandbox.Mount{Kind: sandbox.Bind, Source: "usr", Target: "/x"}),
		"unclean source":      bind(sandbox.Mount{Kind: sandbox.Bind, Source: "/usr/../etc", Target: "/x"}),
		"unknown mount kind":  bind(sandbox.Mount{Kind: 99, Source: "/usr", Target: "/x"}),
		"unknown access":      bind(sandbox.Mount{Kind: sandbox.Bind, Source: "/usr", Target: "/x", Access: 99}),
		"zero byte in target": bind(sandbox.Mount{Kind: sandbox.Scratch, Target: "/x\x00y"}),
		"unknown guard":       guard(sandbox.Protection{Path: "/usr/x", Guard: 99}),
		"relative protection": guard(sandbox.Protection{Path: "x"}),
		"unclean protection":  guard(sandbox.Protection{Path: "/usr/../x"}),
	}
	for name, c := range always {
		t.Run(name, func(t *testing.T) { s.refuses(t, c) })
	}
	if !s.options.Confines {
		return
	}
	for name, c := range confining {
		t.Run(name, func(t *testing.T) { s.refuses(t, c) })
	}
}

// refuses wants that Prepare makes nothing of the changed Spec.
func (s *suite) refuses(t *testing.T, change func(*sandbox.Spec)) {
	t.Helper()
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	before := tree(t, p.dir)
	change(&spec)
	made, err := s.newEngine(t).Prepare(deadline(t), spec)
	if err == nil {
		_ = made.Remove(deadline(t))
		t.Error("accepted")
	}
	if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
		t.Errorf("files (-before +after):\n%s", diff)
	}
}

// tree lists every path below dir with kind, mode and content.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		all[path] = info.Mode().String()
		if info.Mode().IsRegular() {
			content, err := os.ReadFile(path)
			all[path] += " " + string(content)
			return err
		}
		return nil
	})
	must(t, err)
	return all
}

func testUndoSweep(t *testing.T, s *suite) {
	p := s.newPlace(t)
	spec := s.spec(t, p)
	spec.Protect = p.mainTree(t)
	engine := s.newEngine(t)
	before := tree(t, p.dir)
	undo := engine.Undo(spec)
	if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
		t.Errorf("Undo changed files (-before +after):\n%s", diff)
	}
	sweep := func(when string) {
		t.Helper()
		for _, u := range undo {
			if did, err := engine.Sweep(deadline(t), u); err != nil {
				t.Errorf("Sweep of %+v %s: %v (%s)", u, when, err, did)
			} else if when != "after Remove" {
				continue
			} else if did != "" {
				t.Errorf("Sweep of %+v %s found %q", u, when, did)
			}
		}
		if diff := cmp.Diff(before, tree(t, p.dir)); diff != "" {
			t.Errorf("files %s (-before +after):\n%s", when, diff)
		}
	}
	sweep("before Prepare")
	made, err := engine.Prepare(deadline(t), spec)
	must(t, err)
	if l := made.Listener(); l != nil {
		must(t, l.Close())
	}
	must(t, made.Remove(deadline(t)))
	sweep("after Remove")
	sweep("after Remove")
	if _, err := engine.Sweep(deadline(t), sandbox.Undo{Kind: "of nobody"}); err == nil {
		t.Error("Sweep accepted a kind that it does not know")
	}
}

func testCheck(t *testing.T, s *suite) {
	_, b := s.plain(t)
	facts, err := b.Check(deadline(t))
	must(t, err)
	if len(facts) == 0 {
		t.Fatal("no facts")
	}
	seen := map[string]bool{}
	held := 0
	for _, f := range facts {
		t.Logf("%-24s %-9s %s", f.Name, f.Strength, f.Detail)
		if f.Name == "" || f.Detail == "" || seen[f.Name] {
			t.Errorf("nameless, unexplained or doubled: %+v", f)
		}
		seen[f.Name] = true
		switch f.Strength {
		case sandbox.Held:
			held++
		case sandbox.Weaker, sandbox.Absent:
		default:
			t.Errorf("unknown strength: %+v", f)
		}
	}
	if (held > 0) != s.options.Confines {
		t.Errorf("%d protections are said to be enforced", held)
	}
}
