package native

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// A foreign place is where somebody else starts the helper: a directory with
// the program and a socket.
type foreign struct {
	dir, program, socket string
	ln                   *net.UnixListener
}

func newForeign(t *testing.T) foreign {
	t.Helper()
	kerneltest.Require(t, "the helper", child.Available())
	dir, err := os.MkdirTemp("", "inside-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	f := foreign{dir: dir, program: filepath.Join(dir, "helper"), socket: filepath.Join(dir, "socket")}
	program, err := child.Program(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.program, program, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if f.ln, err = net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: f.socket}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.ln.Close() })
	if err := os.Chmod(f.socket, 0o777); err != nil {
		t.Fatal(err)
	}
	_ = f.ln.SetDeadline(time.Now().Add(2 * time.Minute))
	return f
}

// start starts the helper as somebody else would, and returns its connection.
func (f foreign) start(t *testing.T, prefix []string, attr *syscall.SysProcAttr) (*net.UnixConn, *exec.Cmd) {
	t.Helper()
	argv := append(prefix, f.program, "test", f.socket)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.SysProcAttr = attr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	conn, err := f.ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	return conn, cmd
}

func joining() (sandbox.Identity, *syscall.SysProcAttr) {
	if os.Geteuid() != 0 {
		return sandbox.Identity{UID: os.Geteuid(), GID: os.Getegid()}, nil
	}
	return sandbox.Identity{UID: 1000, GID: 1000}, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 1000, Gid: 1000}}
}

// TestJoin drives a helper that was started elsewhere: what it starts is sealed
// beneath whatever the maker has put there.
func TestJoin(t *testing.T) {
	f := newForeign(t)
	engine, err := New(Options{})
	if err != nil {
		kerneltest.Require(t, "the native engine", err)
	}
	defer engine.Close()
	usual := Shared
	Shared = nil // this place is below one of them
	t.Cleanup(func() { Shared = usual })
	id, attr := joining()
	open, closed := filepath.Join(f.dir, "open"), filepath.Join(f.dir, "closed")
	for _, dir := range []string{open, closed} {
		if err := os.Mkdir(dir, 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(dir, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	spec := sandbox.Spec{ID: "test", Identity: id, Env: []string{"PATH=/usr/bin:/bin", "A=b"}, Mounts: []sandbox.Mount{
		{Kind: sandbox.Bind, Source: open, Target: open, Access: sandbox.ReadWrite},
	}}
	conn, cmd := f.start(t, nil, attr)
	in, err := engine.Join(t.Context(), conn, spec)
	if err != nil {
		t.Fatal(err)
	}
	if in.PID() != cmd.Process.Pid {
		t.Errorf("it is process %d, want %d", in.PID(), cmd.Process.Pid)
	}
	run := func(start func(context.Context, sandbox.Command, sandbox.Stdio) (sandbox.Process, error), script string) (sandbox.Exit, string) {
		t.Helper()
		var out bytes.Buffer
		p, err := start(t.Context(), sandbox.Command{Argv: []string{"sh", "-c", script}}, sandbox.Stdio{Stdout: &out, Stderr: &out})
		if err != nil {
			t.Fatal(err)
		}
		exit, err := p.Wait(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return exit, out.String()
	}
	if exit, out := run(in.Exec, "echo $A; kill -TERM $$"); out != "b\n" || exit.Signal != int(syscall.SIGTERM) {
		t.Errorf("%+v, %q", exit, out)
	}
	for script, works := range map[string]bool{
		"echo x > " + open + "/f": true, "echo x > " + closed + "/f": false, "cat " + f.program: false, "unshare -U true": false,
	} {
		if exit, out := run(in.Exec, script); (exit.Code == 0) != works {
			t.Errorf("%s: %+v, %.200q", script, exit, out)
		}
	}
	// The node's own programs look at others.
	for start, works := range map[*func(context.Context, sandbox.Command, sandbox.Stdio) (sandbox.Process, error)]bool{ptr(in.Own): true, ptr(in.Exec): false} {
		if exit, out := run(*start, "cat "+f.program+" > /dev/null"); (exit.Code == 0) != works {
			t.Errorf("reading what no rule names, want %v: %+v, %.200q", works, exit, out)
		}
	}
	// No socket of its own network is left of the way in.
	if _, out := run(in.Exec, "grep -c "+f.socket+" /proc/net/unix"); strings.TrimSpace(out) != "1" { // the listener of this test
		t.Errorf("%s sockets bear the name", out)
	}
	if err := in.Close(t.Context()); err != nil {
		t.Errorf("Close: %v", err)
	}
	<-in.Done()
	if err := cmd.Wait(); err != nil {
		t.Errorf("the helper ended with %v", err)
	}
}

func ptr[T any](v T) *T { return &v }

// TestJoinWantsItsUser: who connects is who the Spec says, or nobody.
func TestJoinWantsItsUser(t *testing.T) {
	f := newForeign(t)
	engine, err := New(Options{})
	if err != nil {
		kerneltest.Require(t, "the native engine", err)
	}
	defer engine.Close()
	id, attr := joining()
	conn, cmd := f.start(t, nil, attr)
	id.UID++
	if _, err := engine.Join(t.Context(), conn, sandbox.Spec{ID: "test", Identity: id}); err == nil || !strings.Contains(err.Error(), "runs as user") {
		t.Errorf("got %v", err)
	}
	if err := cmd.Wait(); err == nil {
		t.Error("the helper goes on without a node")
	}
}

// TestArrange has a helper that is root hold a link in a mount namespace of its
// own, and wants that nobody can exchange it there.
func TestArrange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("wanted root, who can hold a link in a namespace of mounts, found an ordinary user")
	}
	f := newForeign(t)
	if err := os.Symlink("held/config", filepath.Join(f.dir, "config")); err != nil {
		t.Fatal(err)
	}
	link, made := filepath.Join(f.dir, "config"), filepath.Join(f.dir, "made")
	// The shell goes on in the namespace once the helper has ended.
	script := `"$0" "$1" "$2"; hostname; readlink ` + made + `; ` + `rm -f ` + link + ` && echo removed; mv ` + f.program + ` ` + link + ` && echo replaced; readlink ` + link
	cmd := exec.CommandContext(t.Context(), "unshare", "-m", "-u", "--propagation", "private", "sh", "-c", script, f.program, "test", f.socket)
	var out bytes.Buffer
	cmd.Stdout = &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	conn, err := f.ln.AcceptUnix()
	if err != nil {
		t.Fatal(err)
	}
	err = Arrange(t.Context(), conn, Arrangement{Hostname: "inside", Links: []sandbox.Mount{{Source: "/etc", Target: made}}, Pinned: []string{link}})
	if err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if want := "inside\n/etc\nheld/config\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if err := os.Remove(link); err != nil { // outside it is as before
		t.Error(err)
	}
}
