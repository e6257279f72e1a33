package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
)

// What ends with the machine's running is nothing: a container that was stopped
// by it is there after, and so is the gateway's record.
var (
	_ sandbox.Witness = (*Engine)(nil)
	_ sandbox.Tidier  = (*Engine)(nil)
)

// Tidy removes what was made to try something by processes that have died.
func (e *Engine) Tidy(ctx context.Context) ([]string, error) { return e.o.Docker.Tidy(ctx) }

// A sight is what bears a node's labels, at one moment.
type sight struct {
	at         time.Time
	containers []daemon.Container
	records    []openshell.Record
	err        error // what could not be seen
}

// fresh is how long a look at everything serves for the questions that follow:
// a journal has hundreds of them.
const fresh = 5 * time.Second

// Marked finds containers and the gateway's sandboxes by their labels, of every
// node of this user, or of everybody's where this is root, and what this node
// has staged.
func (e *Engine) Marked(ctx context.Context) ([]sandbox.Trace, error) {
	s := e.look(ctx)
	var out []sandbox.Trace
	for _, c := range s.containers {
		if e.mine(c.Labels) {
			out = append(out, containerTrace(c))
		}
	}
	for _, r := range s.records {
		if e.mine(r.Labels) {
			out = append(out, recordTrace(r))
		}
	}
	staged, err := os.ReadDir(e.o.Staging)
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	for _, d := range staged {
		if validID(d.Name()) {
			out = append(out, sandbox.Trace{Kind: sandbox.TraceStage, Sandbox: d.Name(), Path: filepath.Join(e.o.Staging, d.Name())})
		}
	}
	return out, errors.Join(s.err, err)
}

// validID takes what a session can be called; trials of this machine lie beside.
func validID(name string) bool {
	other := func(r rune) bool { return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' }
	return name != "" && !strings.ContainsFunc(name, other)
}

// mine reports whether labels are of a sandbox that this user's nodes made, or of
// what one of their processes has left.
func (e *Engine) mine(labels map[string]string) bool {
	if mark, probe := labels[daemon.LabelProbe]; probe {
		return daemon.Orphan(mark)
	}
	if labels[openshell.LabelNode] == "" {
		return false
	}
	return os.Getuid() == 0 || labels[openshell.LabelNode] == e.o.Node || labels[openshell.LabelUser] == strconv.Itoa(os.Getuid())
}

func containerTrace(c daemon.Container) sandbox.Trace {
	return sandbox.Trace{Kind: sandbox.TraceContainer, Sandbox: c.Labels[openshell.LabelSession], Path: daemon.Short(c.ID)}
}

func recordTrace(r openshell.Record) sandbox.Trace {
	return sandbox.Trace{Kind: sandbox.TraceRecord, Sandbox: r.Labels[openshell.LabelSession], Path: r.Name}
}

// Remains finds what one act of an earlier Undo would still undo.
func (e *Engine) Remains(ctx context.Context, u sandbox.Undo) (out []sandbox.Trace, err error) {
	switch u.Kind {
	case undoSandbox:
		return e.remainingSandbox(ctx, u)
	case undoStage:
		if _, err := os.Lstat(u.Path); err == nil {
			out = append(out, sandbox.Trace{Kind: sandbox.TraceStage, Sandbox: u.ID, Path: u.Path})
		}
		return out, nil
	}
	return e.o.Native.Remains(ctx, u)
}

func (e *Engine) remainingSandbox(ctx context.Context, u sandbox.Undo) (out []sandbox.Trace, err error) {
	e.mu.Lock()
	s := e.seen
	e.mu.Unlock()
	if s == nil || time.Since(s.at) > fresh {
		s = e.look(ctx)
	}
	is := func(labels map[string]string) bool {
		return labels[openshell.LabelNode] == u.Content && labels[openshell.LabelSession] == u.ID
	}
	for _, c := range s.containers {
		if is(c.Labels) {
			out = append(out, containerTrace(c))
		}
	}
	for _, r := range s.records {
		if is(r.Labels) {
			out = append(out, recordTrace(r))
		}
	}
	return out, s.err
}

// look asks Docker and the gateway for everything. Where this process cannot have
// made anything there, because it may not use the one or knows none of the other,
// there is nothing to ask.
func (e *Engine) look(ctx context.Context) *sight {
	s := &sight{at: time.Now()}
	var errs []error
	if e.o.Docker.There() {
		for _, label := range []string{openshell.LabelNode, daemon.LabelProbe} {
			found, err := e.o.Docker.Labelled(ctx, label)
			errs = append(errs, err)
			s.containers = append(s.containers, found...)
		}
		s.containers = once(s.containers)
	}
	records, err := e.records(ctx)
	s.records = records
	s.err = errors.Join(append(errs, err)...)
	e.mu.Lock()
	e.seen = s
	e.mu.Unlock()
	return s
}

func once(list []daemon.Container) (out []daemon.Container) {
	seen := map[string]bool{}
	for _, c := range list {
		if !seen[c.ID] {
			seen[c.ID] = true
			out = append(out, c)
		}
	}
	return out
}

// records are the gateway's sandboxes with a node's label. Where this node never
// staged anything it never asked a gateway for one.
func (e *Engine) records(ctx context.Context) ([]openshell.Record, error) {
	if _, err := os.Lstat(e.o.Staging); errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	client, err := e.gateway(ctx)
	if errors.Is(err, openshell.NotRegistered) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("asking the gateway what is left: %w", err)
	}
	all, err := client.List(ctx, nil)
	if err != nil {
		e.lost(client, err)
		return nil, fmt.Errorf("asking the gateway what is left: %w", err)
	}
	var out []openshell.Record
	for _, r := range all {
		if r.Labels[openshell.LabelNode] != "" && r.Phase != openshell.Deleting {
			out = append(out, r)
		}
	}
	return out, nil
}

// made are the labels of a sandbox that is asked for.
func (e *Engine) made(id string) map[string]string {
	labels := maps.Clone(e.labels(id))
	labels[openshell.LabelUser] = strconv.Itoa(os.Getuid())
	return labels
}
