package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// gatewayAsk tells the scripts' own process where the one that holds the
// gateway listens.
const gatewayAsk = "MOJOUP_TEST_GATEWAY_ASK"

// TestScriptsDocker runs every file of testdata/docker and dockeralone: the
// command line with sessions on engine docker, by an ordinary user, at the real
// gateway that MOJOUP_TEST_GATEWAY names, else at a double. Those of dockeralone
// do to the gateway what no other session may live through.
func TestScriptsDocker(t *testing.T) {
	if os.Getenv(gatewayAsk) != "" {
		scriptsAtGateway(t)
		return
	}
	kerneltest.Long(t)
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can give an ordinary user's node the group of Docker's socket")
	}
	place := enginetest.Somewhere(t)
	dir, err := os.MkdirTemp("", "mjgate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	get := exec.Command("go", "build", "-o", filepath.Join(dir, "get"), "./testdata/get")
	get.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := get.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	ask := filepath.Join(dir, "ask")
	answer(t, ask, place)
	asUser(t, dir, "TestScriptsDocker", []int{place.Group},
		gatewayAsk+"="+ask, "PATH="+place.CLI+":/usr/local/bin:/usr/bin:/bin", "MOJOUP_TEST_GET="+filepath.Join(dir, "get"),
		"OPENSHELL_GATEWAY_ENDPOINT="+place.Endpoint, "MOJOUP_NODE_SANDBOX_ENGINE=docker", "MOJOUP_NODE_SANDBOX_IMAGE="+place.Image,
	)
}

// answer restarts the gateway for the scripts, whose process may not.
func answer(t *testing.T, at string, place enginetest.Place) {
	t.Helper()
	ln, err := net.Listen("unix", at)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(at, 0o666); err != nil { // #nosec: another user's tests ask
		t.Fatal(err)
	}
	over := make(chan struct{})
	t.Cleanup(func() { _ = ln.Close(); <-over })
	go func() {
		defer close(over)
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			if err := place.Restart(); err != nil {
				_, _ = fmt.Fprintf(conn, "%v", err)
			}
			_ = conn.Close()
		}
	}()
}

func scriptsAtGateway(t *testing.T) {
	for _, dir := range []string{"docker", "dockeralone"} {
		t.Run(dir, func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir:       filepath.Join("testdata", dir),
				Setup:     setupAtGateway,
				Condition: func(name string) (bool, error) { return condition(t, name) },
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"screen": screen, "shape": shape, "gateway": gateway, "containers": containers, "upstream": upstream,
				},
				RequireExplicitExec: true,
				RequireUniqueNames:  true,
			})
		})
	}
}

func setupAtGateway(env *testscript.Env) error {
	besides := []string{"MOJOUP_NODE_NETWORK_PRIVATE=127.0.0.0/8"}
	for _, name := range []string{"OPENSHELL_GATEWAY_ENDPOINT", "MOJOUP_NODE_SANDBOX_ENGINE", "MOJOUP_NODE_SANDBOX_IMAGE"} {
		besides = append(besides, name+"="+os.Getenv(name))
	}
	if err := setup(env, besides...); err != nil {
		return err
	}
	repo := filepath.Join(env.WorkDir, "repo")
	out, err := exec.Command("git", "init", "-q", repo).CombinedOutput()
	if err != nil {
		return fmt.Errorf("git init: %w: %s", err, out)
	}
	program, err := os.ReadFile(os.Getenv("MOJOUP_TEST_GET"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(repo, ".git/info/exclude"), []byte("/get\n"), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(repo, "get"), program, 0o755) // #nosec: it is a program
}

// gateway restarts the gateway: "gateway restart".
func gateway(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 || args[0] != "restart" {
		ts.Fatalf("usage: gateway restart")
	}
	conn, err := net.Dial("unix", os.Getenv(gatewayAsk))
	ts.Check(err)
	defer conn.Close()
	said, err := io.ReadAll(conn)
	ts.Check(err)
	if len(said) > 0 {
		ts.Fatalf("restarting the gateway: %s", said)
	}
}

// containers looks at those of the session whose id is in a file, by Docker's
// own word: "containers 1 id" wants one, "containers kill id" and "containers
// remove id" act behind the node's back.
func containers(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: containers NUMBER|kill|remove FILE")
	}
	id := strings.TrimSpace(ts.ReadFile(args[1]))
	want, err := strconv.Atoi(args[0])
	var n int
	if err == nil {
		n, err = enginetest.Containers(context.Background(), id)
	} else {
		want = 1
		n, err = enginetest.Kill(context.Background(), id, args[0] == "remove")
	}
	ts.Check(err)
	if n != want {
		ts.Fatalf("session %s has %d containers, want %d", id, n, want)
	}
}

// upstream starts a service on loopback that answers every request with its
// method and path, and puts its address in a variable.
func upstream(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: upstream VARIABLE")
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "upstream got %s %s\n", r.Method, r.URL.Path)
	}))
	ts.Defer(server.Close)
	ts.Setenv(args[0], server.Listener.Addr().String())
}

// TestSystemNodeDocker: a node of root's carries a person's sessions on engine
// docker, at that person's gateway, by that person's right to speak to Docker,
// and what it leaves when it is killed is undone by the next.
func TestSystemNodeDocker(t *testing.T) {
	kerneltest.Long(t)
	w := newTown(t)
	place := enginetest.Somewhere(t)
	// Who ann is: a user of this machine with a home and the group of Docker's
	// socket. The command line lies where a log-in looks for it.
	w.files = map[string]string{"/usr/local/sbin": place.CLI}
	for at, text := range map[string]string{
		"/etc/passwd": fmt.Sprintf("root:x:0:0::/root:/bin/sh\nann:x:%d:%d::%s:/bin/sh\n", ann, ann, w.home(ann)),
		"/etc/group":  fmt.Sprintf("root:x:0:\nann:x:%d:\nsocket:x:%d:ann\n", ann, place.Group),
	} {
		w.files[at] = filepath.Join(w.dir, filepath.Base(at))
		w.must(os.WriteFile(w.files[at], []byte(text), 0o644)) // #nosec: all read it
	}
	w.must(place.Register(filepath.Join(w.home(ann), ".config")))
	w.must(exec.Command("chown", "-R", fmt.Sprintf("%d:%d", ann, ann), w.home(ann)).Run())
	w.fine(0, "config", "set", "node.sandbox.engine", "docker")
	w.fine(0, "config", "set", "node.sandbox.image", place.Image)
	w.allow("ann")
	w.serve()
	if out := w.fine(ann, "run", "--", "sh", "-c", "id -u; cat secret"); out != fmt.Sprintf("%d\nof %d\n", ann, ann) {
		t.Errorf("inside: %q", out)
	}
	if _, _, code := w.as(ann, "run", "--", "sh", "-c", "exit 7"); code != 7 {
		t.Errorf("code %d", code)
	}
	stopped := w.begin(ann).up()
	s := w.only(ann)
	if s.Engine != "docker" || s.UID != ann || !s.Sandboxed {
		t.Errorf("%+v", s)
	}
	w.fine(0, "session", "stop", s.ID)
	if code := stopped.code(); code != 125 {
		t.Errorf("stopped by root: code %d: %s", code, stopped.out)
	}
	w.noContainer(s.ID)
	killed := w.begin(ann).up()
	s = w.only(ann)
	w.kill(w.deputyOf(ann)) // it cannot take anything with it
	w.kill(w.node.Process.Pid)
	_ = w.node.Wait()
	if code := killed.code(); code != 125 {
		t.Errorf("killed: code %d: %s", code, killed.out)
	}
	w.until("all is undone", func() bool {
		w.fine(0, "cleanup")
		marks, _ := os.ReadDir(filepath.Join(w.dir, "state/unfinished"))
		return len(marks) == 0
	})
	w.noContainer(s.ID)
	w.clean(ann)
}

// calls is what a command line of somebody's begins with.
func (w *town) calls(uid int) []string {
	if uid != 0 || len(w.files) == 0 {
		return []string{w.program}
	}
	script := ""
	for place, file := range w.files {
		script += "mount --bind " + file + " " + place + " && "
	}
	return []string{"unshare", "--mount", "sh", "-c", script + `exec "$@"`, "sh", w.program}
}

// noContainer wants that Docker has none of a session.
func (w *town) noContainer(session string) {
	w.t.Helper()
	n, err := enginetest.Containers(w.t.Context(), session)
	if err != nil || n != 0 {
		w.t.Errorf("session %s has %d containers: %v", session, n, err)
	}
}

// judgedByTheNode: doctor judges by the settings by which ann's sessions start,
// and says so, whatever she has set for a node of her own.
func (w *town) judgedByTheNode() {
	w.t.Helper()
	w.fine(ann, "config", "set", "node.sandbox.engine", "off")
	out, _, code := w.as(ann, "doctor", "--json")
	var r capability.Report
	w.must(json.Unmarshal([]byte(out), &r))
	if r.Verdict.Engine != "docker" || code != 1 || r.Checks[0].Name != "settings" || !strings.Contains(r.Checks[0].Found, w.status(ann).Node.Socket) {
		w.t.Errorf("her doctor judges engine %q, code %d: %+v", r.Verdict.Engine, code, r.Checks[0])
	}
	if n := w.status(ann).Node; n.Image != "some/image:1" {
		w.t.Errorf("the node's image is called %q", n.Image)
	}
	if out, _, code := w.as(ann, "doctor", "--engine", "off"); code != 1 || !strings.Contains(out, "switched off") {
		w.t.Errorf("another engine, by name: code %d: %s", code, out)
	}
}
