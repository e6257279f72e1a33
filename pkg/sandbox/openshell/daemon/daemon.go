// Package daemon promises what the OpenShell engine needs of Docker itself,
// beside the gateway: which container a sandbox is and where, what an image
// holds, and the few acts that only whoever may speak to Docker can do.
//
// It never looks for a container by name: names of two sandboxes can be alike.
// What it finds bears the labels that it was asked for, all of them.
package daemon

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/network"
	"github.com/docker/docker/client"
	"github.com/docker/docker/pkg/stdcopy"
)

// ErrNotFound says that there is no such container, image or network.
var ErrNotFound = errors.New("docker has no such thing")

// A Daemon is one Docker daemon. Its methods may be called concurrently.
type Daemon struct {
	c *client.Client

	mu     sync.Mutex // guards images
	images map[string]Image

	asking sync.Mutex // guards agreed
	agreed bool       // on a version
}

// Connect does not connect yet: the first call does. An empty host means the
// usual socket; the version is negotiated.
func Connect(host string) (*Daemon, error) {
	if host == "" {
		host = client.DefaultDockerHost
	}
	c, err := client.NewClientWithOpts(client.WithTLSClientConfigFromEnv(), client.WithHost(host), client.WithAPIVersionNegotiation())
	if err != nil {
		return nil, fmt.Errorf("preparing to speak to Docker: %w", err)
	}
	return &Daemon{c: c, images: map[string]Image{}}, nil
}

// api is the client, with a version that both sides know. It is agreed on before
// anything is asked: the client itself would do so meanwhile, in every call that is
// the first, and write what the others read.
func (d *Daemon) api(ctx context.Context) *client.Client {
	d.asking.Lock()
	defer d.asking.Unlock()
	if d.agreed {
		return d.c
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	if said, err := d.c.Ping(ctx); err == nil {
		d.c.NegotiateAPIVersionPing(said)
		d.agreed = true
	}
	return d.c
}

// Close ends idle connections.
func (d *Daemon) Close() error { return d.c.Close() }

// within bounds a call that has nothing to wait for.
const within = 20 * time.Second

// removeWithin is for what a container has written, which may be much.
const removeWithin = 3 * time.Minute

func asNotFound(err error) error {
	if errdefs.IsNotFound(err) {
		return fmt.Errorf("%w: %w", ErrNotFound, err)
	}
	return err
}

// A Container is one that runs, or has run, as Docker lists it.
type Container struct {
	ID        string
	Labels    map[string]string
	Running   bool
	Addresses []netip.Addr // in every network
}

// Containers finds those that bear all these labels, in whatever state. It is
// answered at once, also of one that is just being started: see [Daemon.Details].
func (d *Daemon) Containers(ctx context.Context, labels map[string]string) ([]Container, error) {
	if len(labels) == 0 {
		return nil, errors.New("BUG: every container of Docker was asked for")
	}
	args := filters.NewArgs()
	for k, v := range labels {
		args.Add("label", k+"="+v)
	}
	return d.list(ctx, args)
}

func (d *Daemon) list(ctx context.Context, which filters.Args) ([]Container, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	found, err := d.api(ctx).ContainerList(ctx, container.ListOptions{All: true, Filters: which})
	if err != nil {
		return nil, fmt.Errorf("asking Docker for containers: %w", err)
	}
	var out []Container
	for _, f := range found {
		c := Container{ID: f.ID, Labels: f.Labels, Running: f.State == container.StateRunning}
		if f.NetworkSettings != nil {
			for _, n := range f.NetworkSettings.Networks {
				c.Addresses = append(c.Addresses, addresses(n)...)
			}
		}
		out = append(out, c)
	}
	return out, nil
}

func addresses(n *network.EndpointSettings) (out []netip.Addr) {
	for _, text := range []string{n.IPAddress, n.GlobalIPv6Address} {
		if a, err := netip.ParseAddr(text); err == nil {
			out = append(out, a)
		}
	}
	return out
}

// Details are what only a look at one container tells.
type Details struct {
	Running bool
	Leaving bool     // somebody is removing it, which no list tells
	PID     int      // of its first process, as the host counts
	OOM     bool     // its first process was killed for memory
	Code    int      // with which its first process ended
	Shown   []string // its environment and arguments, which everybody sees who may ask
}

// Details looks at a container. Docker answers only when nothing is being started
// in it, neither its first process nor another, which on a busy machine takes
// longer than any other answer: who can do without asks for [Daemon.Containers].
func (d *Daemon) Details(ctx context.Context, id string) (Details, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	got, err := d.api(ctx).ContainerInspect(ctx, id)
	if err != nil {
		return Details{}, fmt.Errorf("looking at a container: %w", asNotFound(err))
	}
	out := Details{Shown: slices.Concat(got.Config.Env, got.Config.Entrypoint, got.Config.Cmd)}
	if s := got.State; s != nil {
		out.Leaving = s.Status == container.StateRemoving || s.Dead
		out.Running, out.PID, out.OOM, out.Code = s.Running, s.Pid, s.OOMKilled, s.ExitCode
	}
	return out, nil
}

// Bridge is the address of this machine on a network of containers.
func (d *Daemon) Bridge(ctx context.Context, name string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	n, err := d.api(ctx).NetworkInspect(ctx, name, network.InspectOptions{})
	if err != nil {
		return netip.Addr{}, fmt.Errorf("asking Docker for the network %s: %w", name, asNotFound(err))
	}
	for _, part := range n.IPAM.Config {
		if a, err := netip.ParseAddr(part.Gateway); err == nil && a.Is4() {
			return a, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("the network %s has no address of this machine", name)
}

// mostSaid bounds what a program in a container may say when it fails.
const mostSaid = 4 << 10

// AsRoot runs a program in a container as its user 0, with the capabilities
// that the container was given, and waits for its end.
func (d *Daemon) AsRoot(ctx context.Context, id string, argv ...string) error {
	made, err := d.api(ctx).ContainerExecCreate(ctx, id, container.ExecOptions{User: "0:0", Cmd: argv, AttachStdout: true, AttachStderr: true, WorkingDir: "/"})
	if err != nil {
		return fmt.Errorf("starting %s in the container: %w", path.Base(argv[0]), asNotFound(err))
	}
	to, err := d.api(ctx).ContainerExecAttach(ctx, made.ID, container.ExecAttachOptions{})
	if err != nil {
		return fmt.Errorf("starting %s in the container: %w", path.Base(argv[0]), asNotFound(err))
	}
	defer to.Close()
	stop := context.AfterFunc(ctx, to.Close)
	defer stop()
	var said bytes.Buffer
	_, err = stdcopy.StdCopy(&said, &said, io.LimitReader(to.Reader, mostSaid))
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("running %s in the container: %w", path.Base(argv[0]), err)
	}
	ended, err := d.api(ctx).ContainerExecInspect(ctx, made.ID)
	if err != nil {
		return fmt.Errorf("asking how %s ended: %w", path.Base(argv[0]), err)
	}
	if ended.Running || ended.ExitCode != 0 {
		return fmt.Errorf("%s in the container ended with %d: %s", path.Base(argv[0]), ended.ExitCode, strings.TrimSpace(said.String()))
	}
	return nil
}

// Try runs a container of an image to its end, with these binds, and returns
// what it said. It is removed in any case.
func (d *Daemon) Try(ctx context.Context, ref, networkName string, binds []string, argv ...string) (said string, code int, err error) {
	made, err := d.probe(ctx, &container.Config{Image: ref, Entrypoint: argv[:1], Cmd: argv[1:], User: "65534:65534"},
		&container.HostConfig{Binds: binds, NetworkMode: container.NetworkMode(networkName)})
	if err != nil {
		return "", 0, fmt.Errorf("making a container to try: %w", err)
	}
	defer func() { err = errors.Join(err, d.Remove(context.WithoutCancel(ctx), made)) }()
	ended, failed := d.api(ctx).ContainerWait(ctx, made, container.WaitConditionNextExit)
	if err := d.api(ctx).ContainerStart(ctx, made, container.StartOptions{}); err != nil {
		return "", 0, fmt.Errorf("starting a container to try: %w", err)
	}
	select {
	case e := <-ended:
		code = int(e.StatusCode)
	case err := <-failed:
		return "", 0, fmt.Errorf("waiting for a container to try: %w", err)
	case <-ctx.Done():
		return "", 0, context.Cause(ctx)
	}
	return d.Log(ctx, made), code, nil
}

// Log is the end of what a container's first process has said.
func (d *Daemon) Log(ctx context.Context, id string) string {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := d.api(ctx).ContainerLogs(ctx, id, container.LogsOptions{ShowStdout: true, ShowStderr: true, Tail: "20"})
	if err != nil {
		return ""
	}
	defer r.Close()
	var said bytes.Buffer
	_, _ = stdcopy.StdCopy(&said, &said, io.LimitReader(r, 16<<10))
	return said.String()
}

// Running is how many processes and threads a container has now.
func (d *Daemon) Running(ctx context.Context, id string) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	r, err := d.api(ctx).ContainerStatsOneShot(ctx, id)
	if err != nil {
		return 0, fmt.Errorf("counting the processes of the container: %w", asNotFound(err))
	}
	defer r.Body.Close()
	var stats container.StatsResponse
	if err := json.NewDecoder(io.LimitReader(r.Body, 1<<20)).Decode(&stats); err != nil {
		return 0, fmt.Errorf("counting the processes of the container: %w", err)
	}
	if stats.PidsStats.Current == 0 {
		return 0, errors.New("no count of the processes of containers: Docker does not keep one")
	}
	return int(stats.PidsStats.Current), nil
}

// Processes bounds how many processes and threads a container may have.
func (d *Daemon) Processes(ctx context.Context, id string, most int64) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	_, err := d.api(ctx).ContainerUpdate(ctx, id, container.UpdateConfig{Resources: container.Resources{PidsLimit: &most}})
	if err != nil {
		return fmt.Errorf("limiting the processes of the container: %w", asNotFound(err))
	}
	return nil
}

// Kill ends everything in a container at once. One that has ended is no error.
func (d *Daemon) Kill(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	err := d.api(ctx).ContainerKill(ctx, id, "KILL")
	if err == nil || errdefs.IsNotFound(err) || errdefs.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("ending the container: %w", err)
}

// Remove takes a container away, whatever runs in it, and whoever else is taking
// it away.
func (d *Daemon) Remove(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, removeWithin)
	defer cancel()
	beat := time.NewTicker(removeAgain)
	defer beat.Stop()
	for {
		err := d.api(ctx).ContainerRemove(ctx, id, container.RemoveOptions{Force: true, RemoveVolumes: true})
		switch {
		case err == nil, errdefs.IsNotFound(err):
			return nil
		case !errdefs.IsConflict(err): // its removal is in progress, and says so
			return fmt.Errorf("removing the container: %w", err)
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return fmt.Errorf("removing the container: %w", err)
		}
	}
}

// removeAgain is how often it is asked whether somebody else's removal is done.
const removeAgain = 50 * time.Millisecond
