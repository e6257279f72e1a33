package node

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// A lost tree is a linked work tree that goes while a session starts in it.
type lostTree struct {
	world
	main      string   // the repository that it is linked to
	alone     []string // all that is in there without it
	linked    []string // and with it
	vanishing func()
	says      string
	gone      bool // its directory; else there is an empty one
}

// losing makes a work tree that is to go in one of three ways.
func losing(t *testing.T, w world, how string) *lostTree {
	t.Helper()
	l := &lostTree{world: w, main: w.repo, gone: true, says: " no longer exists: it was removed while the session started"}
	l.committed(t)
	l.alone = tree(t, l.main)
	l.repo = filepath.Join(filepath.Dir(l.main), "tree")
	git(t, l.main, "worktree", "add", "-q", "--detach", l.repo)
	l.linked = tree(t, l.main)
	switch how {
	case "removed":
		l.vanishing = func() { must(t, os.RemoveAll(l.repo)) }
	case "removed by git":
		l.vanishing = func() { git(t, l.main, "worktree", "remove", "--force", l.repo) }
		l.linked = l.alone
	case "replaced":
		l.says, l.gone = " is not what it was: it was replaced while the session started", false
		l.vanishing = func() {
			must(t, os.Rename(l.repo, l.repo+".old")) // until the new one is there, or it may have the same number
			must(t, os.Mkdir(l.repo, 0o777))
			must(t, os.RemoveAll(l.repo+".old"))
		}
	}
	return l
}

var waysToGo = []string{"removed", "removed by git", "replaced"}

// refused wants one sentence that names the tree, that nothing of the session is
// left or made, and that the only slot is free for the next one.
func (l *lostTree) refused(t *testing.T, r *running, engine sandbox.Engine) {
	t.Helper()
	end, err := l.limited(t, r.client, "echo", "never").end(t)
	if err != nil || end.Problem == nil || end.Problem.Sentence != l.repo+l.says || end.Code != 125 {
		t.Errorf("it ended with %d, %+v, %v", end.Code, end.Problem, err)
	}
	r.quiet(t)
	inside, err := os.ReadDir(l.repo)
	if l.gone != os.IsNotExist(err) || len(inside) > 0 {
		t.Errorf("in its place there is %v, %v", inside, err)
	}
	if d := cmp.Diff(l.linked, tree(t, l.main)); d != "" {
		t.Errorf("left in the repository (-before +after):\n%s", d)
	}
	if !l.gone {
		must(t, os.Remove(l.repo))
	}
	git(t, l.main, "worktree", "prune")
	w := l.world
	w.repo = l.main
	w.cleanBehind(t, r, engine, l.alone)
}

// TestB54_GoneWhileStarting has the work tree go at steps of a start, in make
// soak at all of them.
func TestB54_GoneWhileStarting(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := &steps{repo: filepath.Dir(w.repo)}
	whole := losing(t, w, "")
	r := whole.observed(t, nativeEngine(t), s)
	started := s.last()
	whole.limited(t, r.client, "true").mustEnd(t)
	r.end()
	must(t, r.wait(t))
	life := s.list(started)
	life = life[slices.Index(life, "stage look #1")+1 : slices.Index(life, "stage command #1")]
	at := life
	if os.Getenv("MOJOUP_SOAK") == "" {
		// What is looked at last is lost last: nothing but that look says so.
		at = append(evenly(life, 5), "set up #1", "after moving session ID to running #1")
	}
	for _, how := range waysToGo {
		for _, step := range at {
			t.Run(how+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.atMost(t, 1)
				l, engine := losing(t, w, how), nativeEngine(t)
				s := &steps{repo: filepath.Dir(l.main), at: step, act: l.vanishing}
				r := l.observed(t, engine, s)
				l.refused(t, r, engine)
				s.wasReached(t)
			})
		}
	}
}

const betweenLooks = "after the gateway has looked"

// TestB54_GoneWhileStarting_Docker is the same on engine docker, where the last
// moment is that between the gateway's look at what is to be mounted and Docker's.
func TestB54_GoneWhileStarting_Docker(t *testing.T) {
	asRoot(t)
	for _, how := range waysToGo {
		for _, step := range []string{"stage plan #1", "staged #1", betweenLooks, "sealed #1"} {
			t.Run(how+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.atMost(t, 1)
				l := losing(t, w, how)
				var lost atomic.Bool
				d := enginetest.Start(t, enginetest.Options{Faults: enginetest.Faults{Network: func() error {
					if step == betweenLooks && !lost.Swap(true) {
						l.vanishing()
					}
					return nil
				}}})
				must(t, filepath.WalkDir(l.main, forAll))
				var engine ordinary
				l.world, engine = l.at(t, d)
				s := &steps{repo: filepath.Dir(l.main), at: step, act: l.vanishing}
				r := l.observed(t, engine, s)
				l.refused(t, r, engine)
				l.noneAtGateway(t, engine)
				if step != betweenLooks {
					s.wasReached(t)
				} else if !lost.Load() {
					t.Error("no container was asked for")
				}
			})
		}
	}
}

// TestB54_ProtectedPathGoneWhileStarting: what a start was to protect may go
// meanwhile, as an editor's settings with the editor. That ends in a sentence
// which names it, not in one of a sandbox that does not hold, and the next start is
// as any other.
func TestB54_ProtectedPathGoneWhileStarting(t *testing.T) {
	t.Parallel()
	for name, path := range map[string]string{"settings": ".vscode", "hooks": ".git/hooks", "nested": "sub"} {
		for _, step := range []string{"stage plan #1", "held REPO/.zed #1", "set up #1"} {
			t.Run(name+"/"+step, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.atMost(t, 1)
				must(t, os.MkdirAll(filepath.Join(w.repo, ".vscode"), 0o755))
				must(t, os.MkdirAll(filepath.Join(w.repo, ".git/hooks"), 0o755))
				git(t, w.repo, "init", "-q", "sub")
				must(t, os.MkdirAll(filepath.Join(w.repo, ".git/info"), 0o755))
				must(t, os.WriteFile(filepath.Join(w.repo, ".git/info/exclude"), []byte("sub\n"), 0o644))
				gone := filepath.Join(w.repo, path)
				engine := nativeEngine(t)
				s := &steps{repo: w.repo, at: step, act: func() { must(t, os.RemoveAll(gone)) }}
				r := w.observed(t, engine, s)
				end, err := w.limited(t, r.client, "true").end(t)
				if err != nil || end.Problem == nil || end.Problem.Sentence != gone+" no longer exists: it was removed while the session started, which was to protect it" || end.Problem.Hint != "start the session again" {
					t.Errorf("it ended with %d, %+v, %v", end.Code, end.Problem, err)
				}
				r.quiet(t)
				w.cleanBehind(t, r, engine, tree(t, w.repo))
				if _, err := os.Lstat(gone); !os.IsNotExist(err) {
					t.Errorf("%s is there again: %v", path, err)
				}
				s.wasReached(t)
			})
		}
	}
}

// TestB54_ProtectedPathReplacedWhileStarting: another one in the place of what is
// protected has no mount on it. It may come at any step, and be missing for as long
// as it takes to begin to watch; no command runs with it.
func TestB54_ProtectedPathReplacedWhileStarting(t *testing.T) {
	t.Parallel()
	const watched = "stage sandbox #1"
	for name, path := range map[string]string{"settings": ".vscode", "file": ".mcp.json", "hooks": ".git/hooks", "hidden": "kept.env"} {
		for _, at := range [][2]string{
			{"set up #1", "set up #1"}, {"set up #1", watched}, {watched, watched}, {"after moving session ID to running #1", "after moving session ID to running #1"},
		} {
			t.Run(name+"/"+at[0]+"/"+at[1], func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				must(t, os.MkdirAll(filepath.Join(w.repo, ".vscode"), 0o755))
				must(t, os.MkdirAll(filepath.Join(w.repo, ".git/hooks"), 0o755))
				must(t, os.WriteFile(filepath.Join(w.repo, ".mcp.json"), []byte("{}\n"), 0o644))
				must(t, os.WriteFile(filepath.Join(w.repo, "kept.env"), []byte("k"), 0o600))
				it, aside := filepath.Join(w.repo, path), filepath.Join(t.TempDir(), "aside")
				must(t, os.MkdirAll(filepath.Dir(aside), 0o755))
				engine := nativeEngine(t)
				back := &steps{repo: w.repo, at: at[1], act: func() {
					info, err := os.Lstat(aside)
					must(t, err)
					if info.IsDir() {
						must(t, os.Mkdir(it, 0o755))
						return
					}
					must(t, os.WriteFile(it, []byte("{}\n"), 0o644))
				}}
				away := &steps{repo: w.repo, at: at[0], act: func() { must(t, os.Rename(it, aside)) }}
				o := w.options(t, engine)
				o.Observe = func(step string) { away.reached(step); back.reached(step) }
				r := w.serve(t, o)
				a := w.ask(t, r.client, api.RunRequest{
					Command: []string{"sh", "-c", "echo ran; echo x >>" + path + " || echo x >" + path + "/x; cat kept.env"}, PolicyName: "own", Policy: `{"version": 1, "files": {"hide": ["kept.env"]}}`,
				})
				end, err := a.end(t)
				must(t, err)
				out := a.out.String()
				if end.Problem == nil || !strings.HasPrefix(end.Problem.Sentence, it+" is not what it was: it was replaced while the session started, which was to ") || end.Problem.Hint != "start the session again" || strings.Contains(out, "ran") {
					t.Errorf("it ended with %d, %+v, %q", end.Code, end.Problem, out)
				}
				r.quiet(t)
			})
		}
	}
}

// TestUnwatchedIsSaid: where the kernel watches nothing any more for this user,
// the session is told, and no fact claims what nobody would notice the end of.
func TestUnwatchedIsSaid(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	must(t, r.node.guards.Close())
	a := w.ask(t, r.client, api.RunRequest{Command: []string{"true"}})
	end, err := a.end(t)
	must(t, err)
	if end.Code != 0 || len(end.Notices) != 1 || !strings.Contains(end.Notices[0], "cannot be watched: nobody will say so if a program of the host replaces what is protected") {
		t.Errorf("it ended with %d, %q", end.Code, end.Notices)
	}
	rows, _ := w.kept(t)
	for _, name := range []string{sandbox.FactPaths, sandbox.FactGit, sandbox.FactSettings} {
		if !slices.ContainsFunc(rows[0].Enforced, func(f sandbox.Fact) bool {
			return f.Name == name && f.Strength == sandbox.Weaker && strings.Contains(f.Detail, "cannot be watched")
		}) {
			t.Errorf("%s is not weaker in %+v", name, rows[0].Enforced)
		}
	}
	for err, want := range map[error]string{syscall.ENOSPC: "max_user_watches", syscall.EMFILE: "max_user_instances", syscall.EACCES: "permission denied"} {
		if got := unwatchable(err); !strings.Contains(got, want) {
			t.Errorf("%v: %q", err, got)
		}
	}
}

// TestB54_NothingIsSaidOfWhatStands: what a session comes upon in a tree that
// stands keeps its own sentence.
func TestB54_NothingIsSaidOfWhatStands(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	r := w.serve(t, w.options(t, nativeEngine(t)))
	end, out := w.whole(t, r.client, "no-such-program")
	if end.Problem == nil || strings.Contains(end.Problem.Sentence, "no longer exists") || !strings.Contains(end.Problem.Sentence, "no-such-program") {
		t.Errorf("%+v %q", end.Problem, out)
	}
}

// TestPathsOfASandboxOnTheHost: a path lies where the last mount above it has it.
func TestPathsOfASandboxOnTheHost(t *testing.T) {
	t.Parallel()
	spec := sandbox.Spec{Mounts: []sandbox.Mount{
		{Kind: sandbox.Bind, Source: "/", Target: "/"}, {Kind: sandbox.Bind, Source: "/srv/repo", Target: "/desk"},
		{Kind: sandbox.Scratch, Target: "/desk/tmp"}, {Kind: sandbox.Text, Target: "/desk/text"},
	}}
	for path, want := range map[string]string{
		"/desk": "/srv/repo", "/desk/.git": "/srv/repo/.git", "/deskshop": "/deskshop", "/desk/tmp/x": "", "/desk/tmpx": "/srv/repo/tmpx", "/desk/text": "/srv/repo/text",
	} {
		if got := onHost(spec, path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
