package engine

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// plainSpec is the least that is a sandbox: this machine's programs, and a
// directory to work in.
func plainSpec(t *testing.T, id string) sandbox.Spec {
	t.Helper()
	uid := os.Getuid()
	if uid == 0 {
		uid = 1000
	}
	dir, err := os.MkdirTemp("", "engine-work-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	for _, d := range []string{filepath.Join(dir, "repo"), filepath.Join(dir, "empty")} {
		if err := os.Mkdir(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	repo := filepath.Join(dir, "repo")
	if err := os.Chown(repo, uid, uid); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return sandbox.Spec{
		ID: id, Identity: sandbox.Identity{UID: uid, GID: uid}, Proxy: "127.0.0.1:3128", WorkDir: filepath.Join(dir, "empty"),
		Env: []string{"PATH=/usr/bin:/bin"},
		Mounts: []sandbox.Mount{
			{Kind: sandbox.Bind, Source: "/usr", Target: "/usr"},
			{Kind: sandbox.Bind, Source: repo, Target: repo, Access: sandbox.ReadWrite},
		},
		Protect: []sandbox.Protection{{Path: filepath.Join(repo, ".mojoup"), Guard: sandbox.HoldDir}},
	}
}

func (w world) say(t *testing.T, b sandbox.Sandbox, script string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sh", "-c", script}}, sandbox.Stdio{Stdout: &out, Stderr: &out})
	if err != nil {
		return "", err
	}
	_, err = p.Wait(bounded(t))
	return out.String(), err
}

// clean wants that nothing of a session is left: neither container nor record,
// neither staging nor placeholder.
func (w world) clean(t *testing.T, e *Engine, spec sandbox.Spec) {
	t.Helper()
	left, err := e.o.Docker.Containers(bounded(t), e.labels(spec.ID))
	if err != nil || len(left) > 0 {
		t.Errorf("containers: %+v, %v", left, err)
	}
	c, err := e.gateway(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if r, err := c.Get(bounded(t), openshell.Name(e.o.Node, spec.ID)); !errors.Is(err, openshell.NotFound) {
		t.Errorf("record: %+v, %v", r, err)
	}
	entries, err := os.ReadDir(w.staging)
	if err != nil || len(entries) > 0 {
		t.Errorf("staged: %v, %v", entries, err)
	}
	for _, p := range spec.Protect {
		if _, err := os.Lstat(p.Path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there", p.Path)
		}
	}
}

// TestB58_GatewayGoneMidSession: what can be kept is kept, nothing runs on
// after its end, and the rest is done once the gateway is back.
func TestB58_GatewayGoneMidSession(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "gone")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.Stop()
	if out, err := w.say(t, b, "echo still here"); err != nil || out != "still here\n" {
		t.Errorf("without its gateway: %q, %v", out, err)
	}
	if err := b.Remove(bounded(t)); err == nil {
		t.Error("it is said to be removed, and the gateway still has it")
	}
	select {
	case <-b.Done():
	case <-time.After(2 * time.Minute):
		t.Error("it runs on after Remove")
	}
	w.gateway.Restart("")
	if err := b.Remove(bounded(t)); err != nil {
		t.Errorf("with the gateway back: %v", err)
	}
	w.clean(t, e, spec)
}

// TestB58_SweptByItsOwnNode: what could not be removed is carried out later by the
// node that lives, to the end: it has let go of what it held.
func TestB58_SweptByItsOwnNode(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "own")
	undo := e.Undo(spec)
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.Stop()
	if err := b.Remove(bounded(t)); err == nil {
		t.Error("it is said to be removed, and the gateway still has it")
	}
	w.gateway.Restart("")
	for _, u := range undo {
		if _, err := e.Sweep(bounded(t), u); err != nil {
			t.Errorf("%+v: %v", u, err)
		}
	}
	w.clean(t, e, spec)
}

// TestB58_SweptWithoutAGateway: the journal of a dead node is carried out as
// far as it can be, and to the end later.
func TestB58_SweptWithoutAGateway(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	dead, spec := w.new(t), plainSpec(t, "swept")
	undo := dead.Undo(spec)
	b, err := dead.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	next := w.new(t)
	w.gateway.Stop()
	if _, err := next.Sweep(bounded(t), undo[0]); err == nil {
		t.Error("swept without a gateway")
	}
	select {
	case <-b.Done():
	case <-time.After(2 * time.Minute):
		t.Error("it runs on")
	}
	w.gateway.Restart("")
	for _, u := range undo {
		if _, err := next.Sweep(bounded(t), u); err != nil {
			t.Errorf("%+v: %v", u, err)
		}
	}
	_ = b.Remove(bounded(t)) // lets go of the locks that a dead node would not have
	w.clean(t, next, spec)
}

// TestB59_ContainerRemovedBehindOurBack: the session ends, says so, and leaves
// nothing.
func TestB59_ContainerRemovedBehindOurBack(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "behind")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.o.Docker.Remove(bounded(t), b.(*box).docker); err != nil {
		t.Fatal(err)
	}
	select {
	case <-b.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("nobody noticed")
	}
	if _, err := w.say(t, b, "true"); !errors.Is(err, sandbox.ErrGone) {
		t.Errorf("Exec: %v", err)
	}
	if err := b.Remove(bounded(t)); err != nil {
		t.Errorf("Remove: %v", err)
	}
	w.clean(t, e, spec)
}

// TestB59_RecordOfNothing: a gateway may keep the record of a container that
// somebody took away, or be away itself. The repository does not wait for it, for
// as long as a teardown may take.
func TestB59_RecordOfNothing(t *testing.T) {
	kerneltest.Long(t)
	for name, gone := range map[string]bool{"gateway keeps it": false, "gateway is away": true} {
		t.Run(name, func(t *testing.T) {
			var keeps atomic.Bool
			w := newWorld(t, gatewaytest.Options{Faults: gatewaytest.Faults{Keeps: keeps.Load}})
			e, spec := w.new(t), plainSpec(t, "record")
			b, err := e.Prepare(bounded(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			if err := e.o.Docker.Remove(bounded(t), b.(*box).docker); err != nil {
				t.Fatal(err)
			}
			keeps.Store(true)
			if gone {
				w.gateway.Stop()
			}
			soon, cancel := context.WithTimeout(bounded(t), 30*time.Second) // a third of it is left for Docker, which may be busy
			defer cancel()
			if err := b.Remove(soon); err == nil {
				t.Error("it is said to be removed, and the gateway may have it still")
			}
			if _, err := os.Lstat(spec.Protect[0].Path); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("%s is still held", spec.Protect[0].Path)
			}
			keeps.Store(false)
			if gone {
				w.gateway.Restart("")
			}
			if err := b.Remove(bounded(t)); err != nil {
				t.Errorf("Remove once more: %v", err)
			}
			w.clean(t, e, spec)
		})
	}
}

// TestB59_DeletionRefusedOnce: Docker refuses a gateway what somebody else is just
// doing, and the gateway refuses us with Docker's words.
func TestB59_DeletionRefusedOnce(t *testing.T) {
	kerneltest.Long(t)
	var refused atomic.Int32
	w := newWorld(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(_ context.Context, method string) error {
		if method == "DeleteSandbox" && refused.Add(1) == 1 {
			return status.Error(codes.Internal, "delete sandbox failed: delete docker sandbox container failed: Docker responded with status code 409: removal of container 1 is already in progress")
		}
		return nil
	}}})
	e, spec := w.new(t), plainSpec(t, "refused")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Remove(bounded(t)); err != nil {
		t.Errorf("Remove: %v", err)
	}
	if n := refused.Load(); n != 2 {
		t.Errorf("asked %d times", n)
	}
	w.clean(t, e, spec)
}

// TestB63_OthersAreLeftAlone: a sandbox that has our name and is somebody
// else's, and one of the same session of another node.
func TestB63_OthersAreLeftAlone(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "others")
	c, err := e.gateway(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	name := openshell.Name(e.o.Node, spec.ID)
	request := openshell.Request{Name: name, Image: gatewaytest.Image(t), Command: []string{"/bin/sleep", "600"}, UID: 1000, GID: 1000,
		Labels: map[string]string{"owner": "somebody"}, ReadOnly: []string{"/bin", "/lib", "/etc", "/proc"}}
	record, err := c.Create(bounded(t), request)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := e.Prepare(bounded(t), spec); !errors.Is(err, openshell.NameTaken) {
		t.Errorf("prepared under a name that is taken: %v, %v", b, err)
	}
	for _, u := range e.Undo(spec) {
		if did, err := e.Sweep(bounded(t), u); err != nil || did != "" {
			t.Errorf("%+v: %q, %v", u, did, err)
		}
	}
	if r, err := c.Get(bounded(t), name); err != nil || r.ID != record.ID || r.Phase == openshell.Deleting {
		t.Errorf("somebody else's sandbox is %+v, %v", r, err)
	}
	if _, err := e.Sweep(bounded(t), sandbox.Undo{Kind: undoSandbox, ID: spec.ID, Content: "another node"}); err == nil {
		t.Error("another node's undo was carried out")
	}
	if err := c.Delete(bounded(t), record.Ref); err != nil {
		t.Error(err)
	}
}

// TestWayOutThatLeadsElsewhere: where the gateway's half of the way out ends at
// somebody who is not this node, nothing of the session's gets through, and it
// ends with a sentence, although the node's own half is in order.
func TestWayOutThatLeadsElsewhere(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "elsewhere")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	heard := make(chan string, 16)
	go func() {
		for {
			conn, err := b.Listener().Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(conn).ReadString('\n')
			heard <- line
			answer := "HTTP/1.1 404 Not Found\r\n\r\n"
			if conn.RemoteAddr().(*net.TCPAddr).IP.IsLoopback() { // the node itself
				answer = "HTTP/1.1 204 No Content\r\n\r\n"
			}
			_, _ = conn.Write([]byte(answer))
			_ = conn.Close()
		}
	}()
	_, _ = b.Check(bounded(t)) // either may be first
	if _, err := w.say(t, b, "bash -c 'exec 3<>/dev/tcp/127.0.0.1/3128; echo from inside >&3; sleep 300'"); err != nil && !errors.Is(err, sandbox.ErrGone) {
		t.Error(err)
	}
	select {
	case <-b.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("it runs on")
	}
	if why := b.(sandbox.Ender).Why(bounded(t)); why == nil || !strings.Contains(why.Error(), `its way out is shut: forwarder: the session's proxy: it answers "HTTP/1.1 404 Not Found"`) {
		t.Errorf("it says %v", why)
	}
	if err := b.Remove(bounded(t)); err != nil {
		t.Error(err)
	}
	for len(heard) > 0 {
		if line := <-heard; !strings.Contains(line, "/healthz") {
			t.Errorf("%q got through", line)
		}
	}
	w.clean(t, e, spec)
}

// noRange is what is said where Docker has no more networks to give.
const noRange = "Docker has no free range of addresses for a network that the OpenShell gateway"

func noNetwork(said string) gatewaytest.Options {
	return gatewaytest.Options{Faults: gatewaytest.Faults{Network: func() error { return errors.New(said) }}}
}

// TestRefusalsAreSentences: each cause is named, and nothing is left running.
func TestRefusalsAreSentences(t *testing.T) {
	kerneltest.Long(t)
	for name, tt := range map[string]struct {
		gateway gatewaytest.Options
		change  func(*Engine, *sandbox.Spec)
		says    string
	}{
		"root":         {change: func(_ *Engine, s *sandbox.Spec) { s.Identity = sandbox.Identity{} }, says: "runs no sandbox as user or group 0"},
		"no image":     {change: func(e *Engine, _ *sandbox.Spec) { e.o.Image = "mojoup.invalid/none:1" }, says: "Docker does not have it"},
		"no shell":     {change: func(e *Engine, _ *sandbox.Spec) { e.o.Image = "mojoup-double-busybox:latest" }, says: "it has no program"},
		"binds off":    {gateway: gatewaytest.Options{NoBinds: true}, says: "mount"},
		"driver off":   {gateway: gatewaytest.Options{Generation: gatewaytest.V01, NoDriverConfig: true}, says: "takes no mounts from its clients"},
		"admission":    {gateway: gatewaytest.Options{Generation: gatewaytest.V01, Admission: true}, says: "admits no mounts"},
		"hidden /tmp":  {gateway: gatewaytest.Options{Hidden: []string{"/tmp", os.TempDir()}}, says: "does not see"},
		"old, B61":     {gateway: gatewaytest.Options{Version: "0.0.110"}, says: "is version 0.0.110, which is too old"},
		"new, B61":     {gateway: gatewaytest.Options{Version: "0.2.0"}, says: "is version 0.2.0; this version of the node speaks to"},
		"a colon":      {change: func(_ *Engine, s *sandbox.Spec) { s.Mounts[0].Source = "/usr:x" }, says: "no path with a colon"},
		"reserved":     {change: func(_ *Engine, s *sandbox.Spec) { s.Mounts[0].Target = "/run/openshell" }, says: "keeps /run/openshell for itself"},
		"other driver": {change: func(e *Engine, _ *sandbox.Spec) { e.o.Network = "no-such-network" }, says: "Docker has no network no-such-network, which the gateway of OpenShell makes when it starts"},
		// Docker's own words: of 20.10, with two ranges in all, and of 28.
		"full, B60":       {gateway: noNetwork("Docker responded with status code 404: could not find an available, non-overlapping IPv4 address pool among the defaults to assign to the network"), says: noRange},
		"full in 28, B60": {gateway: noNetwork("Docker responded with status code 400: all predefined address pools have been fully subnetted"), says: noRange},
		"no address, B60": {gateway: noNetwork("Docker responded with status code 403: no available IPv4 addresses on this network's address pools: openshell-docker (1f0c)"), says: "Docker has no free address in the network of"},
		"pruned, B60":     {gateway: noNetwork("Docker responded with status code 404: network openshell-docker not found"), says: "Docker has no network openshell-docker, which the gateway of OpenShell makes when it starts"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.gateway)
			if name == "no shell" {
				gatewaytest.Image(t)
			}
			e, spec := w.new(t), plainSpec(t, "refused")
			if tt.change != nil {
				tt.change(e, &spec)
			}
			b, err := e.Prepare(bounded(t), spec)
			if err == nil {
				_ = b.Remove(bounded(t))
				t.Fatal("prepared")
			}
			if !strings.Contains(err.Error(), tt.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("says %q, want %q in it", err, tt.says)
			}
			left, lerr := e.o.Docker.Containers(bounded(t), map[string]string{openshell.LabelNode: e.o.Node, openshell.LabelSession: spec.ID})
			entries, rerr := os.ReadDir(w.staging)
			if lerr != nil || len(left) > 0 || rerr != nil || len(entries) > 0 {
				t.Errorf("left: %v %v, %v %v", left, lerr, entries, rerr)
			}
		})
	}
}

// TestB69_KilledForMemoryInWords: an end by the container's limit says so.
func TestB69_KilledForMemoryInWords(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "oom")
	spec.Limits.Memory = 96 << 20
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Remove(bounded(t))
	p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sh", "-c", "head -c 300000000 /dev/zero | tail -c 299999999 >/dev/null & wait $!"}}, sandbox.Stdio{})
	if err != nil {
		t.Fatal(err)
	}
	exit, err := p.Wait(bounded(t))
	if err != nil {
		t.Fatal(err)
	}
	if said := exit.Limit + exit.Noted; !strings.Contains(said, "killed for memory: limit 96 MiB") {
		t.Errorf("%+v", exit)
	}
}

// TestH12_OnlyTheSandboxGetsIn: another container of the same network knows the
// port, and not even the right token helps it.
func TestH12_OnlyTheSandboxGetsIn(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "onlyus")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Remove(bounded(t))
	// This process is neither the sandbox nor, on 0.0.x, on loopback.
	conn, err := net.Dial("tcp", b.Listener().Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(2 * time.Minute))
	if n, err := conn.Read(make([]byte, 1)); n != 0 || err == nil {
		t.Errorf("it was answered: %d, %v", n, err)
	}
	// Whoever is turned away is hung up on first, and then written down.
	seen, news := b.(sandbox.Doorkeeper).Strangers()
	for late := time.After(2 * time.Minute); len(seen) == 0; seen, news = b.(sandbox.Doorkeeper).Strangers() {
		select {
		case <-news:
		case <-late:
			t.Fatal("who was turned away is not said")
		}
	}
	if len(seen) != 1 || seen[0].Reason != "it is not the session's sandbox" || seen[0].Count != 1 {
		t.Errorf("of who was turned away it says %+v", seen)
	}
	if _, err := w.say(t, b, "cat /run/mojoup/forwarder.conf >/dev/null && echo read"); err != nil {
		t.Error(err)
	}
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	found, err := d.Containers(bounded(t), e.labels(spec.ID))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v %v", found, err)
	}
	is, err := d.Details(bounded(t), found[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	// The token is in no environment and no argument that Docker shows.
	token := b.(*box).listener.Token().Hex()
	if text := strings.Join(is.Shown, "\n"); text == "" || strings.Contains(text, token) {
		t.Errorf("the token is among what docker inspect shows")
	}
}
