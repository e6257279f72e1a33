package cli

import (
	"context"
	"errors"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/baseimage"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
)

func buildImage(ctx context.Context, p Process, o imageOptions) error {
	h, err := look(p)
	if err != nil {
		return err
	}
	d, err := h.dockerThere(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	name := o.name
	if name == "" {
		name = h.sandboxImage()
	}
	say := talk{w: p.Stderr}
	err = baseimage.Build(ctx, d, baseimage.Recipe{Ref: name, From: o.from, Suite: o.suite, Tools: o.tools, Packages: o.packages},
		func(line string) { say.line("%s", line) })
	if err != nil {
		return fault.Negative("%w", err)
	}
	return checkImage(ctx, p, name, false)
}

func checkImage(ctx context.Context, p Process, ref string, asJSON bool) error {
	h, err := look(p)
	if err != nil {
		return err
	}
	d, err := h.dockerThere(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if ref == "" {
		ref = h.sandboxImage()
	}
	r := imageReport{Image: ref, Tools: []string{}}
	i, err := engine.CheckImage(ctx, d, ref)
	var unfit *engine.ImageError
	switch {
	case errors.As(err, &unfit):
		r.Reason, r.Mend = unfit.Problem, unfit.Hint()
	case err != nil:
		return fault.Unknown("%w", err)
	default:
		r.Fits, r.Bytes = true, i.Size
		if r.Tools, err = toolsIn(ctx, d, ref); err != nil {
			return fault.Unknown("%w", err)
		}
	}
	if err := printImageReport(p, r, asJSON); err != nil {
		return err
	}
	if !r.Fits {
		return exitCode(fault.ExitNegative)
	}
	return nil
}

// dockerThere is Docker where it answers, else why it does not.
func (h here) dockerThere(ctx context.Context) (*daemon.Daemon, error) {
	if err := capability.ThisHost(capability.Options{}).Docker(ctx).Err(); err != nil {
		return nil, fault.Unknown("%w", err)
	}
	d, err := h.docker()
	if err != nil {
		return nil, fault.Unknown("%w", err)
	}
	return d, nil
}

// toolsIn names the agent tools that an image has.
func toolsIn(ctx context.Context, d *daemon.Daemon, ref string) ([]string, error) {
	var names []string
	for _, t := range baseimage.Tools {
		names = append(names, t.Name)
	}
	i, err := d.Image(ctx, ref, daemon.Programs(names...)...)
	found := []string{}
	for _, name := range names {
		if i.HoldsProgram(name) {
			found = append(found, name)
		}
	}
	return found, err
}
