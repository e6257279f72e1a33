package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// An ImageError says why an image cannot be the root of a sandbox.
type ImageError struct {
	Image   string
	Problem string
	Advice  string
	missing bool // Docker does not have it
}

func (e *ImageError) Error() string { return fmt.Sprintf("the image %q: %s", e.Image, e.Problem) }

// Hint says what to do.
func (e *ImageError) Hint() string { return e.Advice }

// Missing reports whether Docker does not have the image at all.
func (e *ImageError) Missing() bool { return e.missing }

// buildIt is how to get an image that fits.
const buildIt = "mojoup-node image build makes one that fits"

// Wanted are the programs without which an image is not used, each with what
// for.
var Wanted = []struct{ Program, Why string }{
	{"bash", "OpenShell starts commands with it"},
	{"sh", "sessions start commands with it"},
	{"ip", "OpenShell makes the network of a sandbox with it"},
	{"nft", "without it OpenShell does not notice what bypasses its proxy"},
}

// image is the engine's, if it fits. Whether it holds these paths is asked as well.
func (e *Engine) image(ctx context.Context, paths ...string) (daemon.Image, error) {
	e.tidied.Do(func() { go e.tidyUp(context.WithoutCancel(ctx)) })
	i, err := CheckImage(ctx, e.o.Docker, e.o.Image, paths...)
	var unfit *ImageError
	if !e.o.Fetch || !errors.As(err, &unfit) || !unfit.missing {
		return i, err
	}
	if err := e.fetch(ctx); err != nil {
		return i, err
	}
	return CheckImage(ctx, e.o.Docker, e.o.Image, paths...)
}

// tidyUp removes what a process that died while it looked into an image has left.
func (e *Engine) tidyUp(ctx context.Context) {
	did, err := e.Tidy(ctx)
	for _, line := range did {
		e.log.Info(line)
	}
	if err != nil {
		e.log.Debug("looking for what was left of trials", "err", err)
	}
}

// CheckImage looks into an image, also for more paths, and says why it cannot be
// used, if so.
func CheckImage(ctx context.Context, d *daemon.Daemon, ref string, more ...string) (daemon.Image, error) {
	var programs []string
	for _, w := range Wanted {
		programs = append(programs, w.Program)
	}
	i, err := d.Image(ctx, ref, slices.Concat(native.Readable, native.Shared, daemon.Programs(programs...), more)...)
	switch {
	case errors.Is(err, daemon.ErrNotFound):
		return i, &ImageError{Image: ref, Problem: "Docker does not have it", Advice: "docker pull " + ref + ", or: " + buildIt, missing: true}
	case err != nil:
		return i, err
	case i.WorkDir != "" && i.WorkDir != "/" && i.WorkDir != product.Home:
		return i, &ImageError{Image: ref, Problem: "it has the working directory " + i.WorkDir + ", which " + product.Name + " wants to be the session user's", Advice: buildIt}
	}
	for _, w := range Wanted {
		if !i.HoldsProgram(w.Program) {
			return i, &ImageError{Image: ref, Problem: fmt.Sprintf("it has no program %s: %s", w.Program, w.Why), Advice: buildIt}
		}
	}
	return i, nil
}

// fit leaves out what is optional and has nothing to cover in the image, and
// leads the rest of it to where that really is.
func (e *Engine) fit(ctx context.Context, mounts []sandbox.Mount) ([]sandbox.Mount, error) {
	covers := func(m sandbox.Mount) bool { return m.Kind == sandbox.Text && m.Optional }
	var paths []string
	taken := map[string]bool{}
	for _, m := range mounts {
		if covers(m) {
			paths = append(paths, m.Target)
		} else {
			taken[m.Target] = true
		}
	}
	image, err := e.image(ctx, paths...)
	if err != nil {
		return nil, err
	}
	var out []sandbox.Mount
	for _, m := range mounts {
		if covers(m) {
			m.Target = image.Real(m.Target)
			if m.Target == "" || taken[m.Target] {
				continue
			}
			taken[m.Target] = true
		}
		out = append(out, m)
	}
	return out, nil
}
