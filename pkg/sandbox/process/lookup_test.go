//go:build linux

package process

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func TestLookup(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a/tool": 0o755, "b/tool": 0o755, "a/dull": 0o644, "b/sharp": 0o755, "a/sharp": 0o644} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	env := []string{"PATH=/nowhere", "PATH=" + dir + "/a:" + dir + "/b"}
	for _, c := range []struct {
		argv0, dir, want string
		env              []string
		code             int
	}{
		{argv0: "tool", env: env, want: dir + "/a/tool"},
		{argv0: "sharp", env: env, want: dir + "/b/sharp"},
		{argv0: "dull", env: env, code: 126},
		{argv0: "none", env: env, code: 127},
		{argv0: "tool", env: nil, code: 127},
		{argv0: "tool", env: []string{"PATH=a:"}, dir: dir, want: "./a/tool"},
		{argv0: "tool", env: []string{"PATH=:x"}, dir: dir + "/b", want: "./tool"},
		{argv0: "./tool", dir: dir + "/a", want: "./tool"},
		{argv0: "a/dull", dir: dir, code: 126},
		{argv0: "./a", dir: dir, code: 126},
		{argv0: "a/tool/x", dir: dir, code: 127},
	} {
		got, err := lookup(c.argv0, c.dir, c.env)
		var failed *sandbox.ExecError
		code := 0
		if errors.As(err, &failed) {
			code = failed.Code
		}
		if got != c.want || code != c.code {
			t.Errorf("%s in %q of %q: got %q, code %d (%v), want %q, code %d", c.argv0, c.dir, c.env, got, code, err, c.want, c.code)
		}
	}
}

func TestMerge(t *testing.T) {
	got := merge([]string{"A=1", "B=2", "A=3"}, []string{"B=4=5", "C="})
	if diff := cmp.Diff([]string{"A=3", "B=4=5", "C="}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if merge(nil, nil) == nil {
		t.Error("nil would mean the node's own environment")
	}
}

func TestBelonging(t *testing.T) {
	all := []stat{
		{pid: 1, session: 1},
		{pid: 10, parent: 1, session: 10, dead: true},   // the command, ended
		{pid: 11, parent: 1, session: 10},               // left behind in its session
		{pid: 12, parent: 11, session: 12},              // has opened a session
		{pid: 13, parent: 1, session: 12},               // left behind in that one
		{pid: 14, parent: 13, session: 14},              // and below it
		{pid: 20, parent: 1, session: 20},               // foreign
		{pid: 21, parent: 20, session: 20, dead: false}, // foreign
	}
	var got []int
	for _, s := range belonging(all, map[int]bool{10: true}) {
		got = append(got, s.pid)
	}
	if diff := cmp.Diff([]int{11, 12, 13, 14}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestIdentityOfAnother(t *testing.T) {
	spec := sandbox.Spec{ID: "a", Identity: sandbox.Identity{UID: 1001, GID: 1001}}
	var wrong *IdentityError
	if err := validate(spec, 1000); !errors.As(err, &wrong) || wrong.Hint() == "" {
		t.Errorf("got %v", err)
	}
	if err := validate(spec, 0); err != nil {
		t.Errorf("for root: %v", err)
	}
}

// An input that is never read from must not keep the ended command's number.
func TestEndedCommandIsCollected(t *testing.T) {
	made, err := New(Options{}).Prepare(t.Context(), sandbox.Spec{ID: "a", Env: []string{"PATH=/usr/bin:/bin"}, Identity: sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}})
	if err != nil {
		t.Fatal(err)
	}
	b := made.(*box)
	held, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", "sleep 600 & exit 0"}}, sandbox.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		p, err := b.Exec(t.Context(), sandbox.Command{Argv: []string{"true"}}, sandbox.Stdio{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := held.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(b.commands); n != 1 {
		t.Errorf("%d commands are uncollected, want only the one with a child left", n)
	}
	if err := made.Remove(context.Background()); err != nil {
		t.Fatal(err)
	}
	if len(b.commands) != 0 {
		t.Error("a command stays uncollected after Remove")
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("7 (a) b) c (d) S 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"))
	f.Add([]byte("7 () S"))
	f.Add([]byte(""))
	if line, err := os.ReadFile("/proc/self/stat"); err == nil {
		f.Add(line)
	} else {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := readStat(line)
		if err != nil && s != (stat{}) {
			t.Errorf("refused, yet returned %+v", s)
		}
	})
}

func TestStatOfOddName(t *testing.T) {
	got, err := readStat([]byte("7 (a) b) c (d) Z 1 7 9 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 4242 0 0"))
	if want := (stat{pid: 7, parent: 1, session: 9, start: "4242", dead: true}); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
}
