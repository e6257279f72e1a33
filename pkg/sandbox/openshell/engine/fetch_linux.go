package engine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
)

// tellEvery is how often somebody who waits for an image hears how far it is.
const tellEvery = 3 * time.Second

// fetch has Docker fetch the engine's image, and tells whoever waits.
func (e *Engine) fetch(ctx context.Context) error {
	ref := e.o.Image
	sandbox.Tell(ctx, "fetching the image "+ref+", which Docker does not have")
	var told daemon.Pulled
	begun := time.Now()
	last := begun
	err := e.o.Docker.Pull(ctx, ref, func(p daemon.Pulled) {
		if p == told || time.Since(last) < tellEvery {
			return
		}
		told, last = p, time.Now()
		sandbox.Tell(ctx, "fetching the image "+ref+": "+howFar(p))
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		var hint string
		if errors.Is(err, daemon.ErrNotFound) {
			hint = "mojoup-node config set node.sandbox.image names another one; "
		}
		return &ImageError{Image: ref, Problem: "Docker does not have it, and could not fetch it: " + err.Error(), Advice: hint + buildIt}
	}
	sandbox.Tell(ctx, fmt.Sprintf("fetched the image %s in %s", ref, time.Since(begun).Round(time.Second)))
	return nil
}

func howFar(p daemon.Pulled) string {
	text := fmt.Sprintf("%d of %d layers", p.Done, p.Layers)
	if p.Total > 0 {
		text += fmt.Sprintf(", %d of %d MB", p.Bytes/1_000_000, p.Total/1_000_000)
	}
	return text
}
