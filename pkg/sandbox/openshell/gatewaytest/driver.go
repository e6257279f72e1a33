//go:build linux

package gatewaytest

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/inside"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// driver makes the containers of one double.
type driver struct {
	g      *Gateway
	t      testing.TB
	docker *client.Client
	// dir is what the double shares with its containers; a socket's path must
	// be short.
	dir     string
	network sync.Mutex
	// using is locked while this double needs the network, as are those of
	// other doubles: of this test program or another.
	using *os.File
}

// proxyAddress is where what runs finds the exit, as each generation says it.
func proxyAddress(generation string) string {
	if generation == V01 {
		return "127.0.0.1:18080"
	}
	return strings.TrimPrefix(product.InjectedProxy, "http://")
}

func newDriver(t testing.TB, g *Gateway) *driver {
	t.Helper()
	docker, err := client.NewClientWithOpts(client.FromEnv, client.WithAPIVersionNegotiation())
	if err != nil {
		t.Fatal(err)
	}
	docker.NegotiateAPIVersion(t.Context()) // calls that do it by themselves disturb each other
	dir, err := os.MkdirTemp("", "double")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &driver{g: g, t: t, docker: docker, dir: dir}
}

var (
	building   sync.Mutex
	builtPath  string
	builtError error
)

// supervisor builds the program that is the first in every container, once for
// all doubles of a test program.
func supervisor() (string, error) {
	building.Lock()
	defer building.Unlock()
	if builtPath == "" && builtError == nil {
		builtPath, builtError = buildSupervisor()
	}
	return builtPath, builtError
}

// buildSupervisor puts it where it stays for the next run, so that none leaves
// anything behind.
func buildSupervisor() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "mojoup-test-double")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, filepath.Base(inside.Program))
	// Beside it and then into its place: other test programs do the same.
	made := fmt.Sprintf("%s.%d", path, os.Getpid())
	defer os.Remove(made)
	build := exec.Command("go", "build", "-ldflags=-s -w", "-o", made, "github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/supervisor")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, os.Rename(made, path)
}

// provision carries a box from taken to ready, or to its failure.
func (d *driver) provision(ctx context.Context, b *box) {
	d.g.tell(b, "Scheduled", "Docker sandbox accepted for image %q", b.Image)
	reason, err := d.make(ctx, b)
	if err != nil {
		d.g.fail(b, reason, err.Error())
	}
}

func (d *driver) make(ctx context.Context, b *box) (reason string, err error) {
	for _, m := range b.Mounts {
		if m.Type == "tmpfs" {
			continue
		}
		if _, err := os.Stat(m.Source); err != nil || slices.ContainsFunc(d.g.o.Hidden, func(h string) bool { return strings.HasPrefix(m.Source+"/", h+"/") }) {
			return "ContainerCreateFailed", fmt.Errorf("bind source path does not exist: %s", m.Source)
		}
	}
	workdir, err := d.pull(ctx, b)
	if err != nil {
		return "ImagePullFailed", err
	}
	given := workdir != "" && workdir != "/"
	if !given {
		workdir = product.Home
	}
	for _, m := range b.Mounts {
		if m.Target == workdir || strings.HasPrefix(workdir, m.Target+"/") {
			return "ContainerCreateFailed", fmt.Errorf("mount target '%s' is reserved for the OpenShell workspace", m.Target)
		}
	}
	if !b.Policy.Given {
		return "IdentityResolutionFailed", errors.New("image declares no user and no policy names one")
	}
	host := ""
	if d.g.o.Generation == V00 {
		if host, err = d.bridge(ctx); err != nil {
			return "ContainerCreateFailed", err
		}
	}
	if refused := d.g.o.Faults.Network; refused != nil {
		if err := refused(); err != nil {
			return "ContainerCreateFailed", fmt.Errorf("create docker sandbox container failed: %w", err)
		}
	}
	shared := filepath.Join(d.dir, b.id[:8])
	d.g.update(b, func() {
		b.workdir, b.host, b.proxy = workdir, shared, "http://"+proxyAddress(d.g.o.Generation)
	})
	config := inside.Config{UID: b.uid, GID: b.gid, Workspace: workdir, MakeWorkspace: !given, Main: b.Command, Env: d.environment(b, nil),
		Inner: d.g.o.Generation == V00, Proxy: proxyAddress(d.g.o.Generation), Host: host}
	config.ReadOnly, config.ReadWrite = b.paths(workdir)
	for _, r := range b.Policy.Rules {
		config.Rules = append(config.Rules, inside.Rule{Host: r.Host, Port: r.Port, Programs: r.Programs, Opaque: r.Skip})
	}
	if err := d.share(b, config); err != nil {
		return "ContainerCreateFailed", err
	}
	if err := d.start(ctx, b, host); err != nil {
		return "ContainerCreateFailed", err
	}
	return "", nil
}

// paths are what Landlock leaves: the policy's, and with rules for the network
// the baseline that is added.
func (b *box) paths(workdir string) (readOnly, readWrite []string) {
	readOnly, readWrite = slices.Clone(b.Policy.ReadOnly), slices.Clone(b.Policy.ReadWrite)
	if b.Policy.Workdir {
		readWrite = append(readWrite, workdir)
	}
	// The program that becomes the command, and what every shell opens.
	readOnly = append(readOnly, filepath.Dir(inside.Program))
	return readOnly, append(readWrite, "/dev/null")
}

// pull makes sure that the image is there, and answers its working directory.
func (d *driver) pull(ctx context.Context, b *box) (string, error) {
	info, err := d.docker.ImageInspect(ctx, b.Image)
	if errdefs.IsNotFound(err) {
		d.g.tell(b, "Pulling", "Pulling Docker image %q", b.Image)
		if err := d.fetch(ctx, b); err != nil {
			return "", fmt.Errorf("pull Docker image failed: %w", err)
		}
		info, err = d.docker.ImageInspect(ctx, b.Image)
	} else {
		d.g.tell(b, "ImagePresent", "Docker image %q is already present", b.Image)
	}
	if err != nil {
		return "", err
	}
	if info.Config == nil {
		return "", nil
	}
	return info.Config.WorkingDir, nil
}

func (d *driver) fetch(ctx context.Context, b *box) error {
	answer, err := d.docker.ImagePull(ctx, b.Image, image.PullOptions{})
	if err != nil {
		return err
	}
	defer answer.Close()
	lines := bufio.NewScanner(answer)
	for lines.Scan() {
		var p struct{ Status, ID, Error string }
		if json.Unmarshal(lines.Bytes(), &p) == nil && p.Error != "" {
			return errors.New(p.Error)
		}
		d.g.tell(b, "PullingLayer", "%s %s", p.ID, p.Status)
	}
	return lines.Err()
}

// join has the network there from the start, as a real gateway of 0.0.x does,
// until the last double that needs it has gone.
func (d *driver) join() error {
	if d.g.o.Generation != V00 {
		return nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return err
	}
	dir := filepath.Join(cache, "mojoup-test-double")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if d.using, err = os.OpenFile(filepath.Join(dir, "network"), os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return err
	}
	if err := unix.Flock(int(d.using.Fd()), unix.LOCK_SH); err != nil { // until another's removal is done
		return err
	}
	_, err = d.bridge(d.g.ctx)
	return err
}

// leave takes the network away where no other double needs it.
func (d *driver) leave(ctx context.Context) {
	if d.using == nil {
		return
	}
	defer d.using.Close()
	if unix.Flock(int(d.using.Fd()), unix.LOCK_EX|unix.LOCK_NB) != nil {
		return
	}
	if n, err := d.docker.NetworkInspect(ctx, product.Network, network.InspectOptions{}); err == nil && n.Labels[Label] != "" {
		d.docker.NetworkRemove(ctx, product.Network)
	}
}

// bridge makes sure that the network of the product is there and answers the
// machine's address on it. It leads nowhere else: what runs in a container is
// not even on it, and its first process needs the machine only.
func (d *driver) bridge(ctx context.Context) (string, error) {
	d.network.Lock()
	defer d.network.Unlock()
	for range 3 {
		n, err := d.docker.NetworkInspect(ctx, product.Network, network.InspectOptions{})
		if err == nil && len(n.IPAM.Config) > 0 {
			return n.IPAM.Config[0].Gateway, nil
		}
		_, err = d.docker.NetworkCreate(ctx, product.Network, network.CreateOptions{Driver: "bridge", Internal: true, Labels: map[string]string{Label: "yes"}})
		if err != nil && !errdefs.IsConflict(err) {
			return "", err
		}
	}
	return "", errors.New("the network " + product.Network + " has no address")
}

// Label is on what doubles have made and may remove.
const Label = "mojoup-double"

// share lays out what the container shares with the double.
func (d *driver) share(b *box, config inside.Config) error {
	for _, dir := range []string{"etc", "run"} {
		if err := os.MkdirAll(filepath.Join(b.host, dir), 0o700); err != nil {
			return err
		}
	}
	text, err := json.Marshal(config)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(b.host, "etc", filepath.Base(inside.ConfigPath)), text, 0o600); err != nil {
		return err
	}
	if err := d.listen(b); err != nil {
		return err
	}
	if d.g.o.Generation == V01 {
		channel, err := net.Listen("unix", filepath.Join(b.host, "run", filepath.Base(inside.Channel)))
		if err != nil {
			return err
		}
		d.g.work.Go(func() { d.carry(channel) })
	}
	return nil
}

// listen takes the connection of a container's first process.
func (d *driver) listen(b *box) error {
	v := d.g.view(b)
	at := filepath.Join(v.host, "run", filepath.Base(inside.Control))
	os.Remove(at)
	control, err := net.Listen("unix", at)
	if err != nil {
		return err
	}
	control.(*net.UnixListener).SetUnlinkOnClose(false) // the next run's may be there
	if err := os.Link(at, wake(v)); err != nil {
		return err
	}
	heard := make(chan struct{})
	d.g.update(b, func() { b.heard = heard })
	d.g.work.Go(func() {
		defer close(heard)
		d.hear(b, v.run, control)
	})
	return nil
}

// close removes everything that is left.
func (d *driver) close() {
	d.g.mu.Lock()
	var left []*box
	for _, b := range d.g.boxes {
		left = append(left, b)
	}
	d.g.mu.Unlock()
	var wait sync.WaitGroup
	for _, b := range left {
		wait.Go(func() { d.remove(b) })
	}
	wait.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	d.leave(ctx)
	d.docker.Close()
}
