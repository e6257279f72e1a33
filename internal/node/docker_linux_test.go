package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// sessionUser is who sessions on engine docker run as here: a gateway refuses
// root, which these tests are.
const sessionUser = 1000

// ordinary makes every sandbox one of an ordinary user.
type ordinary struct{ *enginetest.Engine }

func (o ordinary) Prepare(ctx context.Context, s sandbox.Spec) (sandbox.Sandbox, error) {
	s.Identity = sandbox.Identity{UID: sessionUser, GID: sessionUser}
	return o.Engine.Prepare(ctx, s)
}

// ableDocker is the report of a machine on which engine docker can run.
func ableDocker(ctx context.Context, e capability.Engine) capability.Report {
	r := able(ctx, e)
	for i := range r.Checks {
		r.Checks[i].Engines = append(r.Checks[i].Engines, "docker")
	}
	for _, name := range []string{
		capability.NameUser, capability.NameDocker, capability.NameCLI, capability.NameGateway, capability.NameAnswer, capability.NameImage, capability.NameBinds, capability.NameReach,
	} {
		r.Checks = append(r.Checks, capability.Check{Name: name, State: capability.OK, Engines: []string{"docker"}})
	}
	return r
}

// gateway is the real one that MOJOUP_TEST_GATEWAY names, else a double.
func gateway(t *testing.T) enginetest.Place {
	t.Helper()
	asRoot(t)
	return enginetest.Somewhere(t)
}

func asRoot(t *testing.T) {
	t.Helper()
	kerneltest.Long(t)
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can speak to Docker and act for another user")
	}
}

// at makes the world of a node whose sessions run at a gateway.
func (w world) at(t *testing.T, d interface {
	Env() []string
	Getenv(string) string
}) (world, ordinary) {
	t.Helper()
	w.gateway = d.Env()
	// The session's user is not the one that made the repository.
	must(t, filepath.WalkDir(w.repo, forAll))
	e, err := enginetest.Open(w.paths.State, d.Getenv)
	must(t, err)
	t.Cleanup(func() { _ = e.Close() })
	return w, ordinary{e}
}

// forAll lets everybody read and write.
func forAll(path string, e fs.DirEntry, err error) error {
	if err != nil {
		return err
	}
	return os.Chmod(path, map[bool]fs.FileMode{true: 0o777, false: 0o666}[e.IsDir()])
}

// TestT9_KilledAtEveryStep_Docker kills the node with SIGKILL at the steps of a
// session's life on engine docker, in make soak at all of them, else at the
// engine's own: a start later neither container nor record nor staged file nor
// held path is left.
func TestT9_KilledAtEveryStep_Docker(t *testing.T) {
	d := gateway(t)
	w, engine := newWorld(t).at(t, d)
	s := &steps{repo: w.repo}
	r := w.observed(t, engine, s)
	started := s.last()
	w.limited(t, r.client, "true").mustEnd(t)
	r.end()
	must(t, r.wait(t))
	life := s.list(started)
	at := []string{
		"stage made #1", "staged #1", "asked for #1", "container there #1", "arranged #1", "helper there #1", "sealed #1", "way out open #1",
		"container ended #1", "deletion asked for #1", "deleted #1", "unstaged #1",
	}
	for _, step := range at {
		if !slices.Contains(life, step) {
			t.Fatalf("no step %q in %q", step, life)
		}
	}
	if os.Getenv("MOJOUP_SOAK") != "" {
		at = life
	}
	seed, networks := w.paths.State, enginetest.Networks(t)
	over := slices.Index(life, "before moving session ID to stopping #1")
	var runs atomic.Int32
	t.Run("all", func(t *testing.T) {
		for _, step := range at {
			command := []string{"true"}
			if slices.Index(life, step) < over {
				command = []string{"sleep", "300"}
			}
			t.Run("node/"+step, func(t *testing.T) {
				t.Parallel()
				w, engine := newWorld(t).at(t, d)
				must(t, os.CopyFS(w.paths.State, os.DirFS(seed)))
				must(t, os.Chmod(w.paths.State, 0o700))
				before := tree(t, w.repo)
				node := w.doomedNode(t, step)
				a := w.limited(t, client.New(w.paths.Socket()), command...)
				_, _ = a.end(t) // lost, or over just before
				w.reaped(t, node)
				w.cleanAfterStart(t, engine, before)
				w.noneAtGateway(t, engine)
				runs.Add(1)
			})
		}
	})
	wantNoNew(t, networks) // B60: nor do the dead leave one
	t.Logf("counted: %d deaths of a node on engine docker, of %d steps", runs.Load(), len(life))
}

// noneAtGateway wants that neither Docker nor the gateway has anything of a node.
func (w world) noneAtGateway(t *testing.T, e ordinary) {
	t.Helper()
	traces, err := e.Marked(t.Context())
	must(t, err)
	for _, row := range w.rows(t) {
		for _, trace := range traces {
			if trace.Sandbox == string(row.ID) {
				t.Errorf("left of session %s: %s %s", row.ID, trace.Kind, trace.Path)
			}
		}
	}
	if staged, err := os.ReadDir(filepath.Join(w.paths.State, "sandboxes")); err == nil && len(staged) > 0 {
		t.Errorf("staged: %v", staged)
	}
}

// TestB59_BehindTheNodesBack: what others do to a running session's container is
// said in one sentence, and nothing is left of it.
func TestB59_BehindTheNodesBack(t *testing.T) {
	d := gateway(t)
	for name, tt := range map[string]struct {
		does func(t *testing.T, id string)
		says string
	}{
		"removed":           {func(t *testing.T, id string) { did(t, id, true) }, "the sandbox ended before its command: somebody else removed its container"},
		"killed":            {func(t *testing.T, id string) { did(t, id, false) }, "the sandbox ended before its command: its container ended with 137, and not by this node"},
		"restarted gateway": {func(t *testing.T, _ string) { must(t, d.Restart()) }, "the sandbox ended before its command: "},
	} {
		t.Run(name, func(t *testing.T) {
			w, engine := newWorld(t).at(t, d)
			before := tree(t, w.repo)
			r := w.serve(t, w.options(t, engine))
			a := w.limited(t, r.client, "sh", "-c", "echo up; sleep 300")
			a.up(t, time.After(5*time.Minute))
			for id := range r.living() {
				tt.does(t, string(id))
			}
			end, err := a.end(t)
			if err != nil || end.Problem == nil || !strings.Contains(end.Problem.Sentence, tt.says) || strings.Contains(end.Problem.Sentence, "\n") {
				t.Errorf("it ended with %d, %+v, %v", end.Code, end.Problem, err)
			}
			r.quiet(t)
			r.node.sweepLeftovers(t.Context()) // of a gateway that was away meanwhile, as each minute
			w.cleanBehind(t, r, engine, before)
			w.noneAtGateway(t, engine)
		})
	}
}

// up waits until a session's command has said that it runs.
func (a *asked) up(t *testing.T, late <-chan time.Time) {
	t.Helper()
	for !strings.Contains(a.out.String(), "up") {
		select {
		case <-a.out.more:
		case end := <-a.ended:
			t.Fatalf("it ended with %d, %+v, %v", end.Code, end.Problem, <-a.failed)
		case <-late:
			t.Fatalf("it does not start: %q", a.out)
		}
	}
}

func did(t *testing.T, id string, remove bool) {
	t.Helper()
	if n, err := enginetest.Kill(t.Context(), id, remove); err != nil || n != 1 {
		t.Errorf("%d containers, %v", n, err)
	}
}

// TestB57_FiftyAtOnce starts fifty sessions at the same moment on engine docker,
// which all live together before the first one ends. None of them takes a network
// of Docker's for itself (B60): there are about thirty.
func TestB57_FiftyAtOnce(t *testing.T) {
	d := gateway(t)
	w, engine := newWorld(t).at(t, d)
	const many = 50
	must(t, os.WriteFile(w.paths.Config, fmt.Appendf(nil, "node.sandbox.max_sessions = %d\n", many), 0o600))
	before, networks := tree(t, w.repo), enginetest.Networks(t)
	r := w.serve(t, w.options(t, engine))
	var all []*asked
	var words []io.WriteCloser
	for range many {
		w := w
		in, word := io.Pipe()
		w.stdin = in
		words = append(words, word)
		all = append(all, w.ask(t, r.client, api.RunRequest{
			Command: []string{"sh", "-c", "echo up; read -r line; echo got $line"}, PolicyName: "own", Policy: `{"version": 1, "limits": {"memory": "64MiB"}}`,
		}))
	}
	late := time.After(5 * time.Minute)
	for _, a := range all {
		a.up(t, late)
	}
	if n := len(r.living()); n != many {
		t.Errorf("%d live together", n)
	}
	wantNoNew(t, networks)
	for i, word := range words {
		_, err := fmt.Fprintln(word, i)
		must(t, err)
	}
	for i, a := range all {
		select {
		case end := <-a.ended:
			if want := fmt.Sprintf("up\ngot %d\n", i); end.Code != 0 || end.Problem != nil || a.out.String() != want {
				t.Errorf("session %d ended with %d, %+v: %q", i, end.Code, end.Problem, a.out)
			}
		case <-late:
			t.Fatalf("session %d does not end", i)
		}
	}
	r.quiet(t)
	w.cleanBehind(t, r, engine, before)
	w.noneAtGateway(t, engine)
}

// TestB60_NoRangeOfAddresses: where Docker has no range of addresses for one more
// network, the session is refused in one sentence that says what to do, and the
// only slot is free for the next one.
func TestB60_NoRangeOfAddresses(t *testing.T) {
	asRoot(t)
	var full atomic.Bool
	full.Store(true)
	d := enginetest.Start(t, enginetest.Options{Faults: enginetest.Faults{Network: func() error {
		if !full.Load() {
			return nil
		}
		return errors.New("Docker responded with status code 404: could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network")
	}}})
	w, engine := newWorld(t).at(t, d)
	must(t, os.WriteFile(w.paths.Config, []byte("node.sandbox.max_sessions = 1\n"), 0o600))
	before, networks := tree(t, w.repo), enginetest.Networks(t)
	r := w.serve(t, w.options(t, engine))
	for range 2 { // the second one finds a free slot, too
		end, err := w.limited(t, r.client, "true").end(t)
		if err != nil || end.Problem == nil || !strings.Contains(end.Problem.Sentence, "Docker has no free range of addresses") ||
			strings.ContainsAny(end.Problem.Sentence, "\n;") || !strings.Contains(end.Problem.Hint, "docker network prune") {
			t.Errorf("it ended with %d, %+v, %v", end.Code, end.Problem, err)
		}
	}
	full.Store(false)
	w.cleanBehind(t, r, engine, before)
	w.noneAtGateway(t, engine)
	wantNoNew(t, networks)
}

// wantNoNew wants no network of Docker's beside those before.
func wantNoNew(t *testing.T, networks []string) {
	t.Helper()
	if made := slices.DeleteFunc(enginetest.Networks(t), func(n string) bool { return slices.Contains(networks, n) }); len(made) > 0 {
		t.Errorf("sessions have networks: %q", made)
	}
}

// TestD29d_ADatabaseByItsName has a program that knows no proxy reach a database
// that a tcp rule names. The node judges it as any other connection, and says so.
func TestD29d_ADatabaseByItsName(t *testing.T) {
	d := gateway(t)
	w, engine := newWorld(t).at(t, d)
	database, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer database.Close()
	go func() {
		for {
			c, err := database.Accept()
			if err != nil {
				return
			}
			_, _ = io.WriteString(c, "welcome\n") // it speaks first
			_, _ = io.Copy(c, c)
			_ = c.Close()
		}
	}()
	port := database.Addr().(*net.TCPAddr).Port
	o := w.options(t, engine)
	o.Settings, err = config.Origin{Environ: append(slices.Clip(noPage), "MOJOUP_NODE_SANDBOX_ENGINE=docker", "MOJOUP_NODE_NETWORK_PRIVATE=127.0.0.0/8")}.Load()
	must(t, err)
	r := w.serve(t, o)
	a := w.ask(t, r.client, api.RunRequest{
		// The double's image has no bash, a real one's no nc.
		Command: []string{"sh", "-c", `if command -v nc >/dev/null; then echo select | nc "$1" "$2"; else exec bash -c 'exec 3<>/dev/tcp/$1/$2; echo select >&3; head -n 2 <&3' bash "$1" "$2"; fi`,
			"sh", "host.mojoup.internal", strconv.Itoa(port)},
		PolicyName: "own",
		Policy:     fmt.Sprintf(`{"version": 1, "network": {"rules": [{"name": "db", "hosts": ["host.mojoup.internal"], "ports": [%d], "protocol": "tcp", "addresses": ["127.0.0.1/32"]}]}}`, port),
	})
	if end, err := a.end(t); err != nil || end.Code != 0 || a.out.String() != "welcome\nselect\n" {
		t.Errorf("it ended with %d, %+v, %v: %q", end.Code, end.Problem, err, a.out)
	}
	r.quiet(t)
	s := w.last(t, r.client)
	if len(s.Verdicts) != 1 || !s.Verdicts[0].Allowed || s.Verdicts[0].Host != "host.mojoup.internal" || int(s.Verdicts[0].Port) != port || s.Verdicts[0].Rule != "db" {
		t.Errorf("recorded: %+v", s.Verdicts)
	}
}
