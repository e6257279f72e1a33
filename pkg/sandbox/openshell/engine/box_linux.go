package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// box is one sandbox.
type box struct {
	e      *Engine
	log    *slog.Logger
	client openshell.Client
	spec   sandbox.Spec

	held     *native.Held
	listener *inlet.Listener
	stage    *stage
	control  *net.UnixListener
	arrange  *net.UnixListener
	inside   *native.Inside // nil until the helper has joined
	asked    bool           // the gateway may know it
	ref      openshell.Ref
	docker   string             // the container's id
	first    int                // its first process, as the host counts
	limited  error              // why the number of processes is not bounded
	lacking  native.Arrangement // what could not be arranged
	missing  []string           // direct hosts for which nobody listens, with the reason

	removing chan struct{}          // holds one token: Remove is done by one at a time
	gone     chan struct{}          // closed when the helper has ended
	over     sync.Once              // closes gone where there never was a helper
	ending   chan struct{}          // closed when Remove begins
	ended    sync.Once              // closes ending
	answers  chan struct{}          // closed when the way out has answered from inside
	shut     atomic.Pointer[string] // why the way out is shut, if so
	full     atomic.Pointer[string] // by how much the disk limit was passed, if so
	owned    sync.WaitGroup         // goroutines of the node's own programs inside
	deleted  bool
	times    times

	strangers *strangers
}

// times are when a start came how far.
type times struct{ asked, created, met, ready time.Time }

// log says what took how long, for who wants to know where a start stands.
func (t times) log(log *slog.Logger) {
	log.Debug("started", "before create", t.created.Sub(t.asked), "until the helper came", t.met.Sub(t.created), "until the way out served", t.ready.Sub(t.met))
}

var (
	_ sandbox.Sandbox = (*box)(nil)
	_ sandbox.Dialer  = (*box)(nil)
)

// Listener accepts what the forwarder brings.
func (b *box) Listener() net.Listener { return b.listener }

// Done is closed when the sandbox has ended.
func (b *box) Done() <-chan struct{} { return b.gone }

// Exec starts a command inside.
func (b *box) Exec(ctx context.Context, c sandbox.Command, s sandbox.Stdio) (sandbox.Process, error) {
	return b.inside.Exec(ctx, c, s)
}

// Dial connects to what listens inside.
func (b *box) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	return b.inside.Dial(ctx, port)
}

// Check attacks the sandbox from inside, and asks the node's half of the way out.
// The gateway's half is asked by the forwarder, which lets nothing through before
// it has had an answer: see docs/adr/0020.
func (b *box) Check(ctx context.Context) (sandbox.Enforced, error) {
	half := make(chan error, 1)
	b.owned.Go(func() { half <- b.askHere(ctx) })
	limits, err := b.inside.Check(ctx)
	if err := errors.Join(err, <-half); err != nil {
		return nil, err
	}
	if why := b.shut.Load(); why != nil {
		return nil, fmt.Errorf("the way out is shut: %s", *why)
	}
	return b.facts(limits), nil
}

// answersWithin bounds an answer of this process' own.
const answersWithin = 10 * time.Second

// askHere asks the proxy that serves the listener.
func (b *box) askHere(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, answersWithin)
	defer cancel()
	conn, err := b.listener.Self(ctx)
	if err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer stop()
	if err := inlet.Ask(conn); err != nil {
		return fmt.Errorf("the session's proxy: %w", err)
	}
	return nil
}

// Remove deletes the sandbox, waits until it is gone, and undoes what Prepare
// left on the host.
func (b *box) Remove(ctx context.Context) error {
	b.e.leaves(b, true)
	err := b.remove(ctx)
	if err == nil {
		b.e.leaves(b, false)
	}
	return err
}

// leaves notes that a box is being removed, or that nothing of it is left.
func (e *Engine) leaves(b *box, still bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if still {
		e.leaving[b.spec.ID] = b
	} else if e.leaving[b.spec.ID] == b {
		delete(e.leaving, b.spec.ID)
	}
}

func (b *box) remove(ctx context.Context) error {
	select {
	case b.removing <- struct{}{}:
		defer func() { <-b.removing }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	b.ended.Do(func() { close(b.ending) })
	if b.listener != nil {
		_ = b.listener.Close() // its token is worth nothing from here on
	}
	for _, ln := range []*net.UnixListener{b.control, b.arrange} {
		if ln != nil {
			_ = ln.Close()
		}
	}
	ended := b.end(ctx)
	if ended != nil && !b.outlived(ctx) {
		return ended
	}
	if b.inside != nil {
		if err := b.inside.Close(ctx); err != nil {
			return err
		}
	} else {
		b.over.Do(func() { close(b.gone) })
	}
	b.owned.Wait()
	errs := []error{ended}
	if b.stage != nil {
		errs = append(errs, removeStage(b.stage.dir))
		sandbox.Reached(ctx, "unstaged")
	}
	// Only now: taken away under a running sandbox, a placeholder would take
	// the protection of its path with it.
	if b.held != nil {
		errs = append(errs, b.held.Release(ctx))
	}
	return errors.Join(errs...)
}

// outlived reports whether its container was there and is not any more, so that
// what the gateway still says of it, for minutes where somebody else took the
// container away, is a record of nothing.
func (b *box) outlived(ctx context.Context) bool {
	if b.docker == "" {
		return false
	}
	left, err := b.e.containers(ctx, b.spec.ID)
	return err == nil && len(left) == 0
}

// end deletes the sandbox at the gateway and makes sure that no container of
// it is left.
func (b *box) end(ctx context.Context) error {
	if !b.asked || b.deleted {
		return nil
	}
	// Everything inside ends at once, whatever the gateway takes its time for.
	if b.docker != "" {
		if err := b.e.o.Docker.Kill(ctx, b.docker); err != nil {
			b.log.Warn("ending the container before it is deleted", "error", err)
		}
		sandbox.Reached(ctx, "container ended")
	}
	if err := b.e.delete(ctx, b.client, b.spec.ID, b.ref); err != nil {
		b.e.lost(b.client, err)
		return err
	}
	b.deleted = true
	sandbox.Reached(ctx, "deleted")
	return nil
}

// delete deletes a sandbox of this node by its id, or by its name where the id
// is not known, and waits until it is gone, at the gateway and in Docker.
func (e *Engine) delete(ctx context.Context, client openshell.Client, id string, ref openshell.Ref) error {
	if ref.ID == "" {
		record, err := client.Get(ctx, openshell.Name(e.o.Node, id))
		if errors.Is(err, openshell.NotFound) {
			return e.noContainer(ctx, id)
		}
		if err != nil {
			return err
		}
		if !e.ours(record.Labels, id) {
			return nil
		}
		ref = record.Ref
	}
	err := client.Delete(ctx, ref)
	if errors.Is(err, openshell.Refused) && e.noContainer(ctx, id) == nil {
		// Docker removes a container once: while somebody else does, the gateway's
		// attempt fails. Ours has waited for theirs.
		err = client.Delete(ctx, ref)
	}
	if err != nil && !errors.Is(err, openshell.NotFound) {
		return err
	}
	sandbox.Reached(ctx, "deletion asked for")
	if err := client.Gone(ctx, ref); err != nil {
		return err
	}
	return e.noContainer(ctx, id)
}

// ours reports whether labels are those of a session of this node.
func (e *Engine) ours(labels map[string]string, id string) bool {
	return labels[openshell.LabelNode] == e.o.Node && labels[openshell.LabelSession] == id
}

// containers are those that Docker has of a session.
func (e *Engine) containers(ctx context.Context, id string) ([]daemon.Container, error) {
	labels := e.labels(id)
	labels[product.LabelManagedBy] = product.ManagedBy
	return e.o.Docker.Containers(ctx, labels)
}

// noContainer wants that Docker has no container of a session any more, and
// removes one that the gateway has forgotten.
func (e *Engine) noContainer(ctx context.Context, id string) error {
	left, err := e.containers(ctx, id)
	if err != nil {
		return err
	}
	var errs []error
	for _, c := range left {
		e.log.Warn("the gateway left a container", "sandbox", id, "container", c.ID)
		errs = append(errs, e.o.Docker.Remove(ctx, c.ID))
	}
	return errors.Join(errs...)
}

// lines hands on the lines that are written, as many as somebody takes.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
	got chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() < 4096 {
		l.buf.Write(p)
	}
	for {
		line, rest, ok := strings.Cut(l.buf.String(), "\n")
		if !ok {
			return len(p), nil
		}
		l.buf.Reset()
		l.buf.WriteString(rest)
		select {
		case l.got <- lastWord(line):
		default:
		}
	}
}

// lastWord is the last line that says something, as a person can read it.
func lastWord(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, lines[len(lines)-1])
	return last[:min(len(last), 300)]
}

var _ sandbox.Ender = (*box)(nil)

// Why asks Docker what became of the container.
func (b *box) Why(ctx context.Context) error {
	if why := b.shut.Load(); why != nil {
		return fmt.Errorf("its way out is shut: %s", *why)
	}
	if why := b.full.Load(); why != nil {
		return errors.New(*why)
	}
	if b.docker == "" || b.inside == nil {
		return nil
	}
	beat := time.NewTicker(again)
	defer beat.Stop()
	for late := time.Now().Add(lingers); ; {
		why, settled := b.fate(ctx)
		if settled || time.Now().After(late) {
			return why
		}
		select {
		case <-beat.C:
		case <-ctx.Done():
			return why
		}
	}
}

// lingers is how long Docker may call a container running whose helper has ended.
const lingers = 2 * time.Second

// fate is what has become of the container by now, and whether that will stay.
func (b *box) fate(ctx context.Context) (why error, settled bool) {
	found, err := b.e.o.Docker.Containers(ctx, map[string]string{product.LabelID: b.ref.ID})
	switch {
	case err != nil:
		return fmt.Errorf("nothing is known of its container: %w", err), true
	case len(found) == 0, found[0].Leaving:
		return errors.New("somebody else removed its container"), true
	case found[0].Running && found[0].PID != b.first:
		return errors.New("its container was started anew, and what ran in it is lost"), true
	case found[0].OOM:
		return errors.New("its container was killed for memory"), true
	case !found[0].Running:
		return fmt.Errorf("its container ended with %d, and not by this node", found[0].Code), true
	}
	select {
	case <-b.inside.Done():
		return errors.New("its helper was ended inside"), false
	default:
		return nil, true
	}
}

// facts say what a sandbox of this Spec enforces once its check has passed.
func (b *box) facts(limits []sandbox.Fact) sandbox.Enforced {
	fact := func(name string, s sandbox.Strength, format string, a ...any) sandbox.Fact {
		return sandbox.Fact{Name: name, Strength: s, Detail: fmt.Sprintf(format, a...)}
	}
	g := b.client.Gateway()
	out := sandbox.Enforced{
		fact("filesystem", sandbox.Held, "a container of the image %s with what was mounted; Landlock by OpenShell, and this node's own beneath", b.e.o.Image),
		fact("network", sandbox.Held, "OpenShell's policy lets one program reach one port of this node, where every connection is decided; the only way out is %s, and nothing passes it before it has answered from inside", b.spec.Proxy),
		fact("system calls", sandbox.Held, "OpenShell's seccomp filter, and this node's own beneath"),
		fact("refused calls", sandbox.Weaker, "refused all the same, but nobody is told of them: OpenShell refuses the call by which a filter gets somebody who listens"),
		fact("privileges", sandbox.Held, "no capabilities, none to be gained, no set-uid programs"),
		fact("processes", sandbox.Held, "a process namespace of the container; outside ones can be neither seen nor signalled"),
		fact("identity", sandbox.Weaker, "user %d, group %d, the same inside and outside; the group 0 of the container stays as a supplementary one", b.spec.Identity.UID, b.spec.Identity.GID),
		fact(sandbox.FactHostSockets, sandbox.Weaker, "none is mounted; one that a host program makes in a mounted directory could be connected to (OpenShell's Landlock does not know that right)"),
		fact("gateway", sandbox.Held, "OpenShell %s at %s", g.Version, g.Endpoint),
	}
	if len(b.spec.Protect) > 0 {
		paths := fact(sandbox.FactPaths, sandbox.Held, "%d read-only or pinned by mounts of the container", len(b.spec.Protect))
		if len(b.lacking.Pinned) > 0 {
			paths.Strength = sandbox.Weaker
			paths.Detail += fmt.Sprintf("; but %s can be replaced inside: a gateway of %s has no right to hold links", strings.Join(b.lacking.Pinned, ", "), g.Generation)
		}
		out = append(out, paths)
	}
	for _, l := range b.lacking.Links {
		out = append(out, fact("link "+l.Target, sandbox.Absent, "a gateway of %s has no right to make it", g.Generation))
	}
	out = append(out, b.directFacts()...)
	out = append(out, b.limitFacts()...)
	out = append(out, limits...)
	return append(out, b.held.Facts()...)
}

func (b *box) limitFacts() []sandbox.Fact {
	l := b.spec.Limits
	none := "none was asked for"
	memory := sandbox.Fact{Name: "memory limit", Strength: sandbox.Absent, Detail: none}
	if l.Memory > 0 {
		memory.Strength, memory.Detail = sandbox.Held, fmt.Sprintf("%d bytes by the container's control group, OpenShell's own programs inside included", l.Memory)
	}
	cpu := sandbox.Fact{Name: "processor limit", Strength: sandbox.Absent, Detail: none}
	if l.CPUs > 0 {
		cpu.Strength, cpu.Detail = sandbox.Held, fmt.Sprintf("%g processors' time by the container's control group", l.CPUs)
	}
	processes := sandbox.Fact{Name: "process limit", Strength: sandbox.Weaker, Detail: "what the gateway gives every container, 2048 unless its configuration says otherwise"}
	switch {
	case l.Processes > 0 && b.limited == nil:
		processes.Strength, processes.Detail = sandbox.Held, fmt.Sprintf("%d processes and threads by the container's control group, beside those that were there before and %d to spare", l.Processes, spareThreads)
	case l.Processes > 0:
		processes.Detail += fmt.Sprintf("; %d could not be had: %v", l.Processes, b.limited)
	}
	disk := sandbox.Fact{Name: "disk limit", Strength: sandbox.Absent, Detail: "none was asked for: home and other scratch directories lie on this machine's disk until the end"}
	if l.Disk > 0 {
		disk.Strength = sandbox.Weaker
		disk.Detail = fmt.Sprintf("%d bytes of home and other scratch directories together, measured about once a second: a session that passes them is ended; what is deleted and still open, or lies in a directory closed to its owner, is not seen", l.Disk)
	}
	return []sandbox.Fact{memory, cpu, processes, disk}
}
