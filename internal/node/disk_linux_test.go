package node

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// insideVariable is set in a test that runs again in namespaces of its own.
const insideVariable = "MOJOUP_TEST_INSIDE"

// inNamespaces runs a test in a user and a mount namespace of its own, where it
// may mount. It reports whether this is that run.
func inNamespaces(t *testing.T) bool {
	t.Helper()
	if os.Getenv(insideVariable) != "" {
		return true
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.v", "-test.run=^"+t.Name()+"$", "-test.timeout=60s")
	cmd.Env = append(os.Environ(), insideVariable+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getuid(), HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: os.Getgid(), HostID: os.Getgid(), Size: 1}},
		AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN},
		// What runs as root sets groups, if only to what they are.
		GidMappingsEnableSetgroups: os.Geteuid() == 0,
	}
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		kerneltest.Lacking(t, "a user namespace to mount in", err)
	}
	if err := cmd.Wait(); err != nil {
		t.Errorf("inside: %v\n%s", err, out.String())
	}
	return false
}

// onSmallDisk is a node with a MiB of disk for its state, and one session in it
// whose script has said "up". Its way out listens at addr.
func onSmallDisk(t *testing.T, script string) (w world, r *running, a *asked, addr string) {
	t.Helper()
	w, e := newWorld(t), newStub()
	must(t, os.Mkdir(w.paths.State, 0o700))
	must(t, unix.Mount("tmpfs", w.paths.State, "tmpfs", 0, "size=1m,mode=0700"))
	t.Cleanup(func() { must(t, unix.Unmount(w.paths.State, unix.MNT_DETACH)) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	e.ln = func() net.Listener { return ln }
	o := w.options(t, e)
	o.Times = brisk
	r = w.serve(t, o)
	a = w.ask(t, r.client, api.RunRequest{Command: []string{"sh", "-c", script}})
	awaitUp(t, a)
	return w, r, a, ln.Addr().String()
}

// TestFullStateDisk fills the disk under a node whose session goes on asking:
// nothing gets out that cannot be recorded, the session is shown at its end all
// the same, and what was answered is in the store once there is room again.
func TestFullStateDisk(t *testing.T) {
	if !inNamespaces(t) {
		return
	}
	w, r, a, addr := onSmallDisk(t, "echo up; while ! [ -e done ]; do sleep 0.05; done")
	live, err := r.client.Sessions(t.Context(), false)
	if err != nil || len(live) != 1 {
		t.Fatalf("live: %v, %v", live, err)
	}
	id := live[0].ID
	answered := 0
	until := func(want int) string {
		t.Helper()
		n, body := awaitAnswer(t, addr, want)
		answered += n
		return body
	}
	until(403)

	ballast := filepath.Join(w.paths.State, "ballast")
	fillUp(t, ballast)
	if body := until(503); !strings.Contains(body, unrecorded) {
		t.Errorf("the answer is %q", body)
	}
	s, err := r.client.Session(t.Context(), id)
	if err != nil || len(s.Notices) == 0 || !strings.Contains(s.Notices[len(s.Notices)-1], unrecorded) {
		t.Errorf("shown meanwhile: %v, %v", s.Notices, err)
	}
	must(t, os.WriteFile(filepath.Join(w.repo, "done"), nil, 0o600))
	end, err := a.end(t)
	must(t, err)
	if !strings.Contains(strings.Join(end.Notices, "\n"), unrecorded) {
		t.Errorf("the end says %q", end.Notices)
	}
	past, err := r.client.Sessions(t.Context(), true)
	if err != nil || len(past) != 1 || past[0].ID != id || past[0].Ended.IsZero() || past[0].Denied != answered {
		t.Errorf("after %d answers, past: %+v, %v", answered, past, err)
	}
	if s, err = r.client.Session(t.Context(), id); err != nil || s.State != past[0].State {
		t.Errorf("shown after its end: %+v, %v", s, err)
	}

	must(t, os.Remove(ballast))
	r.end()
	must(t, r.wait(t))
	rows, _ := w.kept(t)
	if len(rows) != 1 || !rows[0].State.Ended() || rows[0].State == session.Lost || rows[0].Denied != answered {
		t.Fatalf("%d answers, in the store %+v", answered, rows)
	}
	st, err := store.Open(t.Context(), w.paths.State, store.Options{})
	must(t, err)
	defer st.Close()
	if vs, err := st.Verdicts(t.Context(), session.ID(id), 0); err != nil || len(vs) != answered {
		t.Errorf("%d answers, %d verdicts, %v", answered, len(vs), err)
	}
}

// TestDiskThatIsFreedOpensTheWayOut goes on in the same session.
func TestDiskThatIsFreedOpensTheWayOut(t *testing.T) {
	t.Parallel()
	if !inNamespaces(t) {
		return
	}
	w, _, _, addr := onSmallDisk(t, "echo up; exec sleep 300")
	ballast := filepath.Join(w.paths.State, "ballast")
	fillUp(t, ballast)
	awaitAnswer(t, addr, 503)
	must(t, os.Remove(ballast))
	awaitAnswer(t, addr, 403)
}

// fillUp writes a file until the disk has no room left.
func fillUp(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for size := 64 << 10; size > 0; size /= 2 {
		for err = nil; err == nil; {
			_, err = f.Write(make([]byte, size))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
	}
}

// awaitAnswer asks until it is answered so, and says how often it asked.
func awaitAnswer(t *testing.T, addr string, want int) (asked int, body string) {
	t.Helper()
	again := time.NewTicker(5 * time.Millisecond) // so that the disk is not filled by this
	defer again.Stop()
	for late := time.After(enough); ; {
		status, body := answerOf(t, addr, "http://evil.x.example/")
		if asked++; status == want {
			return asked, body
		}
		select {
		case <-again.C:
		case <-late:
			t.Fatalf("still %d: %s", status, body)
		}
	}
}

// answerOf asks the way out for something.
func answerOf(t *testing.T, addr, target string) (status int, body string) {
	t.Helper()
	conn, err := net.Dial("tcp", addr)
	must(t, err)
	defer conn.Close()
	must(t, conn.SetDeadline(time.Now().Add(enough)))
	_, err = io.WriteString(conn, "GET "+target+" HTTP/1.1\r\nHost: "+strings.TrimSuffix(strings.TrimPrefix(target, "http://"), "/")+"\r\nConnection: close\r\n\r\n")
	must(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	all, err := io.ReadAll(resp.Body)
	must(t, err)
	return resp.StatusCode, string(all)
}

// awaitUp waits until the command has begun.
func awaitUp(t *testing.T, a *asked) {
	t.Helper()
	select {
	case <-a.out.more:
	case end := <-a.ended:
		t.Fatalf("ended before: %+v %+v", end, end.Problem)
	case <-time.After(enough):
		t.Fatal("it does not begin")
	}
}
