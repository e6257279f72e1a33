package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// labels are those by which a sandbox is found, at the gateway and in Docker.
func (e *Engine) labels(id string) map[string]string {
	return map[string]string{openshell.LabelNode: e.o.Node, openshell.LabelSession: id}
}

// joinWithin bounds the wait for the helper once the gateway says that the
// sandbox is ready.
const joinWithin = 20 * time.Second

// Prepare makes a sandbox with nothing of the session's running in it.
func (e *Engine) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	b, err := e.prepare(ctx, spec)
	if err != nil {
		return nil, fmt.Errorf("preparing sandbox %s: %w", spec.ID, err)
	}
	return b, nil
}

func (e *Engine) prepare(ctx context.Context, spec sandbox.Spec) (made *box, err error) {
	asked := time.Now()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	if err := native.Validate(spec); err != nil {
		return nil, err
	}
	if err := identity(spec.Identity); err != nil {
		return nil, err
	}
	client, err := e.gateway(ctx)
	if err != nil {
		return nil, err
	}
	if spec.Mounts, err = e.fit(ctx, spec.Mounts); err != nil {
		return nil, err
	}
	b := &box{e: e, log: e.log.With("sandbox", spec.ID), client: client, spec: spec, removing: make(chan struct{}, 1), gone: make(chan struct{}), ending: make(chan struct{}), answers: make(chan struct{}), strangers: newStrangers(), times: times{asked: asked}}
	defer func() {
		if err != nil {
			e.lost(client, err)
			rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), undoWithin)
			defer cancel()
			err = errors.Join(err, b.Remove(rctx))
		}
	}()
	if b.spec, b.held, err = native.Hold(ctx, spec); err != nil {
		return nil, err
	}
	if err := b.open(ctx); err != nil {
		return nil, err
	}
	if err := b.begin(ctx); err != nil {
		return nil, err
	}
	return b, nil
}

// undoWithin bounds how long a failed start is tidied up after.
const undoWithin = time.Minute

// open makes everything of the host's side: the way in for the forwarder, the
// stage, the sockets for the helpers.
func (b *box) open(ctx context.Context) (err error) {
	at, err := b.e.bridge(ctx, b.client.Gateway())
	if err != nil {
		return err
	}
	b.listener, err = inlet.Listen(inlet.Options{Address: at, Refused: func(r inlet.Refusal) {
		b.log.Warn("refused on the way in", "peer", r.Peer, "uid", r.UID, "reason", r.Reason, "closed", r.Closed)
		b.strangers.add(r)
	}})
	if err != nil {
		return err
	}
	if at.IsLoopback() {
		b.listener.Admit(at)
	}
	if b.stage, err = b.e.newStage(b.spec); err != nil {
		return err
	}
	sandbox.Reached(ctx, "stage made")
	if err := b.e.programs(b.stage, b.way(product.InjectedProxy)); err != nil {
		return err
	}
	b.spec = named(b.spec, at)
	for _, d := range b.spec.Direct {
		if theirs(d) {
			b.missing = append(b.missing, fmt.Sprintf("%s:%d: OpenShell has the name for its own use", d.Host, d.Port))
		}
	}
	if err := b.stage.mount(b.spec); err != nil {
		return err
	}
	b.spec.Checks = slices.Concat(b.stage.same, b.spec.Checks)
	for _, s := range []struct {
		name string
		to   **net.UnixListener
	}{{controlName, &b.control}, {arrangeName, &b.arrange}} {
		if *s.to, err = b.stage.socket(s.name); err != nil {
			return err
		}
	}
	sandbox.Reached(ctx, "staged")
	return nil
}

// way is what the forwarder is told.
func (b *box) way(proxy string) inlet.Config {
	return inlet.Config{
		Proxy: proxy, Target: net.JoinHostPort(product.HostAlias, strconv.Itoa(b.listener.Port())),
		Token: b.listener.Token(), Listen: b.spec.Proxy, Direct: direct(b.spec),
	}
}

// exit asks a gateway of 0.1.x where inside its own proxy is, which no constant
// says, and tells the forwarder.
func (b *box) exit(ctx context.Context) error {
	if b.client.Gateway().Generation == openshell.V00 {
		return nil
	}
	if _, err := b.client.Ready(ctx, b.ref, nil); err != nil {
		return err
	}
	// By the shell, which every image that fits has; printenv not every one does.
	said, err := b.client.Run(ctx, b.ref, openshell.Short{Argv: []string{"sh", "-c", `echo "$HTTPS_PROXY"`}, Dir: "/"})
	if err != nil {
		return fmt.Errorf("asking for the sandbox's own proxy: %w", err)
	}
	proxy := strings.TrimSuffix(strings.TrimSpace(string(said.Stdout)), "/")
	if _, err := inlet.ProxyAddress(proxy); err != nil || said.Code != 0 {
		return fmt.Errorf("the sandbox says that its proxy is at %q", lastWord(proxy))
	}
	file := filepath.Join("own", inlet.ConfigName)
	if err := os.Remove(filepath.Join(b.stage.dir, file)); err != nil {
		return fmt.Errorf("staging: %w", err)
	}
	_, err = b.stage.file(file, b.way(proxy).Encode(), 0o400)
	return err
}

// socket listens in the directory that is the engine's own inside. The path on
// the host may be longer than an address may be, so it goes by a descriptor.
func (st *stage) socket(name string) (*net.UnixListener, error) {
	dir := filepath.Join(st.dir, "own")
	fd, err := unix.Open(dir, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("staging a socket: %w", err)
	}
	defer unix.Close(fd)
	ln, err := net.ListenUnix("unixpacket", &net.UnixAddr{Net: "unixpacket", Name: filepath.Join("/proc/self/fd", strconv.Itoa(fd), name)})
	if err != nil {
		return nil, fmt.Errorf("staging a socket: %w", err)
	}
	ln.SetUnlinkOnClose(false) // its name is by a descriptor that may mean another by then
	return ln, st.give(filepath.Join(dir, name), 0o600)
}

// accept waits for the one who connects, and takes the socket's name away.
func (b *box) accept(ctx context.Context, ln *net.UnixListener, name string) (*net.UnixConn, error) {
	stop := context.AfterFunc(ctx, func() { _ = ln.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	conn, err := ln.AcceptUnix()
	if ctx.Err() != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, context.Cause(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("waiting for the helper inside: %w", err)
	}
	err = os.Remove(filepath.Join(b.stage.dir, "own", name))
	return conn, errors.Join(err, ln.Close())
}

// begin asks for the sandbox and goes along until the forwarder serves.
func (b *box) begin(ctx context.Context) error {
	request, err := b.request(ctx)
	if err != nil {
		return err
	}
	b.asked, b.times.created = true, time.Now()
	record, err := b.client.Create(ctx, request)
	if err != nil {
		if !errors.Is(err, openshell.Uncertain) {
			b.asked = false
		}
		return err
	}
	b.ref = record.Ref
	sandbox.Reached(ctx, "asked for")
	conn, err := b.meet(ctx)
	if err != nil {
		return err
	}
	b.times.met = time.Now()
	sandbox.Reached(ctx, "helper there")
	inside, err := b.e.o.Native.Join(ctx, conn, b.arrangedSpec(), own)
	if err != nil {
		return err
	}
	b.inside = inside
	sandbox.Reached(ctx, "sealed")
	go func() {
		<-inside.Done()
		close(b.gone)
	}()
	if err := b.exit(ctx); err != nil {
		return err
	}
	if err := b.forward(ctx); err != nil {
		return err
	}
	b.limit(ctx)
	b.measure(ctx)
	sandbox.Reached(ctx, "way out open")
	b.times.ready = time.Now()
	b.times.log(b.log)
	return nil
}

// meet waits until the helper has connected and everything that takes root has
// been arranged, or until the gateway says that neither will be.
func (b *box) meet(ctx context.Context) (_ *net.UnixConn, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel(nil)
	var conn *net.UnixConn
	placed, joined, hopeless := make(chan error, 1), make(chan error, 1), make(chan error, 1)
	all.Go(func() { placed <- b.place(ctx) })
	all.Go(func() {
		var err error
		conn, err = b.accept(ctx, b.control, controlName)
		joined <- err
	})
	all.Go(func() { hopeless <- b.hopeless(ctx) })
	for placed != nil || joined != nil {
		select {
		case err = <-placed:
			placed = nil
		case err = <-joined:
			joined = nil
		case err = <-hopeless:
			hopeless = nil
		}
		if err != nil {
			cancel(err)
			all.Wait()
			if conn != nil {
				conn.Close()
			}
			return nil, err
		}
	}
	return conn, nil
}

// hopeless waits until the sandbox cannot become what is waited for any more.
func (b *box) hopeless(ctx context.Context) error {
	_, err := b.client.Ready(ctx, b.ref, b.progress(ctx))
	if ctx.Err() != nil {
		return nil
	}
	if err != nil {
		return b.explain(ctx, err)
	}
	late := time.NewTimer(joinWithin)
	defer late.Stop()
	select {
	case <-late.C:
		return b.explain(ctx, fmt.Errorf("the sandbox is ready, but its helper did not connect within %s", joinWithin))
	case <-ctx.Done():
		return nil
	}
}

// progress tells whoever waits where the gateway fetches the image by itself.
func (b *box) progress(ctx context.Context) func(openshell.Progress) {
	var last time.Time
	return func(p openshell.Progress) {
		b.log.Debug("starting", "phase", p.Phase, "reason", p.Reason, "message", p.Message)
		if strings.HasPrefix(p.Reason, "Pulling") && time.Since(last) >= tellEvery {
			last = time.Now()
			sandbox.Tell(ctx, "the gateway fetches the image "+b.e.o.Image+": "+p.Message)
		}
	}
}

// explain adds the container's last word, which is often the only one that
// says what is wrong.
func (b *box) explain(ctx context.Context, err error) error {
	found, ferr := b.e.o.Docker.Containers(ctx, map[string]string{product.LabelID: b.ref.ID})
	if ferr != nil || len(found) == 0 {
		return err
	}
	if said := lastWord(b.e.o.Docker.Log(ctx, found[0].ID)); said != "" {
		return fmt.Errorf("%w; the container says: %s", err, said)
	}
	return err
}

// usualName is the host name inside where nobody asks for another.
const usualName = "sandbox"

// request is the sandbox in the gateway's words.
func (b *box) request(ctx context.Context) (openshell.Request, error) {
	image, err := b.e.image(ctx)
	if err != nil {
		return openshell.Request{}, err
	}
	r := openshell.Request{
		Name: openshell.Name(b.e.o.Node, b.spec.ID), Labels: b.e.made(b.spec.ID), Image: b.e.o.Image,
		Command: []string{own + "/" + helperName, b.spec.ID, own + "/" + controlName},
		UID:     b.spec.Identity.UID, GID: b.spec.Identity.GID, Mounts: b.stage.mounts,
		CPUs: b.spec.Limits.CPUs, Memory: b.spec.Limits.Memory,
		Ways: []openshell.Way{{Host: product.HostAlias, Port: b.listener.Port(), Program: own + "/" + forwarderName}},
	}
	for _, dir := range native.Readable {
		if image.Holds(dir) && !underAny(dir, b.stage.write) {
			r.ReadOnly = append(r.ReadOnly, dir)
		}
	}
	r.ReadOnly = append(r.ReadOnly, b.stage.read...)
	r.ReadWrite = append(r.ReadWrite, "/proc", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty", "/dev/pts", "/dev/shm")
	for _, dir := range native.Shared {
		if image.Holds(dir) {
			r.ReadWrite = append(r.ReadWrite, dir)
		}
	}
	r.ReadWrite = append(r.ReadWrite, b.stage.write...)
	slices.Sort(r.ReadOnly)
	slices.Sort(r.ReadWrite)
	r.ReadOnly, r.ReadWrite = slices.Compact(r.ReadOnly), slices.Compact(r.ReadWrite)
	return r, nil
}
