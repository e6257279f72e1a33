package engine

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// An ownDocker is a Docker daemon of a test's own: nobody else's containers are
// disturbed when it stops.
type ownDocker struct {
	t   *testing.T
	dir string
	cmd *exec.Cmd
}

func newOwnDocker(t *testing.T) *ownDocker {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("wanted root, who alone can start a Docker daemon")
	}
	_, err := exec.LookPath("dockerd")
	kerneltest.Require(t, "dockerd", err)
	dir, err := os.MkdirTemp("", "mjd") // short: a socket's path is bounded
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	d := &ownDocker{t: t, dir: dir}
	t.Setenv("DOCKER_HOST", "unix://"+filepath.Join(dir, "d.sock"))
	t.Cleanup(d.stop)
	slow := "#!/bin/sh\ncase \" $* \" in *' create '*) : >" + dir + "/begun; while ! test -e " + dir + "/go; do sleep 0.05; done;; esac\nexec runc \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "slow"), []byte(slow), 0o700); err != nil { // #nosec: it is a program
		t.Fatal(err)
	}
	d.start()
	return d
}

// start starts it and waits until it answers.
func (d *ownDocker) start() {
	d.t.Helper()
	log, err := os.OpenFile(filepath.Join(d.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		d.t.Fatal(err)
	}
	defer log.Close()
	in := func(name string) string { return filepath.Join(d.dir, name) }
	d.cmd = exec.Command("dockerd", "--data-root", in("data"), "--exec-root", in("exec"), "--pidfile", in("pid"), "--host", os.Getenv("DOCKER_HOST"),
		"--add-runtime", "slow="+in("slow"), "--bridge", "none", "--iptables=false", "--ip6tables=false", "--shutdown-timeout", "1")
	d.cmd.Stdout, d.cmd.Stderr = log, log
	if err := d.cmd.Start(); err != nil {
		d.t.Fatal(err)
	}
	c, err := client.NewClientWithOpts(client.FromEnv)
	if err != nil {
		d.t.Fatal(err)
	}
	defer c.Close()
	beat := time.NewTicker(50 * time.Millisecond)
	defer beat.Stop()
	for ctx := bounded(d.t); ; {
		if _, err = c.Ping(ctx); err == nil {
			return
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			said, _ := os.ReadFile(in("log"))
			d.t.Fatalf("Docker does not start: %v\n%s", err, said[max(0, len(said)-2000):])
		}
	}
}

// stop ends it, with every container that runs in it.
func (d *ownDocker) stop() {
	if d.cmd == nil {
		return
	}
	_ = d.cmd.Process.Signal(syscall.SIGTERM)
	_ = d.cmd.Wait()
	d.cmd = nil
}

// TestB58_DockerStoppedMidSession: the session ends and says why, its removal
// says that something is left, and once Docker is back nothing is.
func TestB58_DockerStoppedMidSession(t *testing.T) {
	kerneltest.Long(t)
	docker := newOwnDocker(t)
	// Of 0.1.x, whose containers need no network that this one would have to make.
	w := newWorld(t, gatewaytest.Options{Generation: gatewaytest.V01})
	e, spec := w.new(t), plainSpec(t, "stopped")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sleep", "300"}}, sandbox.Stdio{Stdout: io.Discard})
	if err != nil {
		t.Fatal(err)
	}
	first, err := unix.PidfdOpen(b.(*box).first, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(first)
	docker.stop()
	// On a busy machine a second is too little for it to end its containers.
	_ = unix.PidfdSendSignal(first, unix.SIGKILL, nil, 0)
	select {
	case <-b.Done():
	case <-time.After(2 * time.Minute):
		t.Fatal("it runs on")
	}
	if exit, err := p.Wait(bounded(t)); err != nil || exit.Code == 0 {
		t.Errorf("its command: %+v, %v", exit, err)
	}
	why := b.(sandbox.Ender).Why(bounded(t))
	if why == nil || !strings.HasPrefix(why.Error(), "nothing is known of its container: ") || strings.Contains(why.Error(), "\n") {
		t.Errorf("it says %v", why)
	}
	if err := b.Remove(bounded(t)); err == nil {
		t.Error("it is said to be removed, and nobody could look")
	}
	docker.start()
	if err := b.Remove(bounded(t)); err != nil {
		t.Errorf("with Docker back: %v", err)
	}
	w.clean(t, e, spec)
	t.Run("one that starts is listed", docker.starting)
}

// starting: as long as Docker starts a container it does not answer who looks at
// that one. Who only wants to know whether it is there need not wait.
func (d *ownDocker) starting(t *testing.T) {
	c, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	labels := map[string]string{"mojoup.test": "starting"}
	made, err := c.ContainerCreate(bounded(t), &container.Config{Image: emptyName, Entrypoint: []string{"/none"}, Labels: labels},
		&container.HostConfig{Runtime: "slow", NetworkMode: "none"}, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	started := make(chan error, 1)
	go func() { started <- c.ContainerStart(bounded(t), made.ID, container.StartOptions{}) }()
	for ctx := bounded(t); ; {
		if _, err := os.Stat(filepath.Join(d.dir, "begun")); err == nil {
			break
		}
		select {
		case err := <-started:
			t.Fatalf("it was not made in the slow way: %v", err)
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			t.Fatal("it is not made")
		}
	}
	own, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	if found, err := own.Containers(bounded(t), labels); err != nil || len(found) != 1 || found[0].ID != made.ID || found[0].Running {
		t.Errorf("while it starts: %+v, %v", found, err)
	}
	if err := os.WriteFile(filepath.Join(d.dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	<-started // badly: it has no program
	if is, err := own.Details(bounded(t), made.ID); err != nil || is.Running {
		t.Errorf("then: %+v, %v", is, err)
	}
	if err := own.Remove(bounded(t), made.ID); err != nil {
		t.Error(err)
	}
}
