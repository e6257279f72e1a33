package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
)

// Kinds of undo, beside those of what protections hold and the self-check makes
// on the host.
const (
	undoSandbox = "openshell-sandbox" // delete the sandbox of session ID that is node Content's
	undoStage   = "openshell-stage"   // remove the staging directory Path of ID
)

// Undo lists what Prepare may leave: the sandbox first, since what it stands on
// may only go when nothing relies on it.
func (e *Engine) Undo(s sandbox.Spec) []sandbox.Undo {
	return append([]sandbox.Undo{
		{Kind: undoSandbox, ID: s.ID, Content: e.o.Node},
		{Kind: undoStage, ID: s.ID, Path: e.stageDir(s.ID)},
	}, e.o.Native.UndoInside(s)...)
}

// Sweep carries out one act of an earlier Undo.
func (e *Engine) Sweep(ctx context.Context, u sandbox.Undo) (did string, err error) {
	switch u.Kind {
	case undoSandbox:
		return e.sweepSandbox(ctx, u)
	case undoStage:
		return e.sweepStage(u)
	}
	return e.o.Native.Sweep(ctx, u)
}

func (e *Engine) sweepSandbox(ctx context.Context, u sandbox.Undo) (string, error) {
	if u.Content != e.o.Node {
		return "", fmt.Errorf("undo of sandbox %s: it is node %q's, and this is %q", u.ID, u.Content, e.o.Node)
	}
	name := openshell.Name(e.o.Node, u.ID)
	deleted := fmt.Sprintf("deleted the sandbox %s of session %s", name, u.ID)
	e.mu.Lock()
	b := e.leaving[u.ID]
	e.mu.Unlock()
	if b != nil { // of this process, which alone can let go of all that it holds
		if err := b.Remove(ctx); err != nil {
			return "", err
		}
		return deleted, nil
	}
	client, err := e.gateway(ctx)
	if err != nil {
		return e.withoutGateway(ctx, u, err)
	}
	record, err := client.Get(ctx, name)
	switch {
	case errors.Is(err, openshell.NotFound):
		return "", e.noContainer(ctx, u.ID)
	case err != nil:
		e.lost(client, err)
		return e.withoutGateway(ctx, u, err)
	case !e.ours(record.Labels, u.ID):
		return "", nil // somebody else has taken the name
	}
	if err := e.delete(ctx, client, u.ID, record.Ref); err != nil {
		return "", err
	}
	return deleted, nil
}

// withoutGateway ends at least what runs. The gateway's record is left, so the
// undo is not done.
func (e *Engine) withoutGateway(ctx context.Context, u sandbox.Undo, why error) (string, error) {
	left, err := e.o.Docker.Containers(ctx, e.labels(u.ID))
	if err != nil {
		return "", errors.Join(why, err)
	}
	for _, c := range left {
		if err := e.o.Docker.Kill(ctx, c.ID); err != nil {
			return "", errors.Join(why, err)
		}
	}
	return "", why
}

func (e *Engine) sweepStage(u sandbox.Undo) (string, error) {
	if filepath.Dir(u.Path) != filepath.Clean(e.o.Staging) || filepath.Base(u.Path) != u.ID || strings.ContainsAny(u.ID, "/\x00") || u.ID == "" || u.ID == "." || u.ID == ".." {
		return "", fmt.Errorf("undo of %q: not a directory of this node's sandboxes", u.Path)
	}
	if _, err := os.Lstat(u.Path); errors.Is(err, os.ErrNotExist) {
		return "", nil
	}
	if err := removeStage(u.Path); err != nil {
		return "", err
	}
	return "removed what was staged for session " + u.ID, nil
}
