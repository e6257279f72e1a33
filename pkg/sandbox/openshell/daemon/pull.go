package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/docker/docker/api/types/image"
)

// Pulled is how far an image has been fetched.
type Pulled struct {
	Layers, Done int   // of those that are known of, and those that are there
	Bytes, Total int64 // of those whose size is known
}

// Pull has Docker fetch an image, telling how far that is as often as Docker
// says something.
func (d *Daemon) Pull(ctx context.Context, ref string, tell func(Pulled)) error {
	r, err := d.api(ctx).ImagePull(ctx, ref, image.PullOptions{})
	if err != nil {
		return fmt.Errorf("fetching the image %s: %w", ref, asNotFound(err))
	}
	defer r.Close()
	layers := layers{}
	for in := json.NewDecoder(r); ; {
		var step pullStep
		if err := in.Decode(&step); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("fetching the image %s: %w", ref, err)
		}
		if step.Error != "" {
			return fmt.Errorf("fetching the image %s: %s", ref, step.Error)
		}
		if layers.take(step) {
			tell(layers.sum())
		}
	}
}

// Offered wants that whoever keeps an image would give it to this Docker. Nothing
// of it is fetched.
func (d *Daemon) Offered(ctx context.Context, ref string) error {
	if _, err := d.api(ctx).DistributionInspect(ctx, ref, ""); err != nil {
		return fmt.Errorf("asking for the image %s where it is kept: %w", ref, asNotFound(err))
	}
	return nil
}

// pullStep is one line of what Docker says.
type pullStep struct {
	Status, ID, Error string
	ProgressDetail    struct{ Current, Total int64 }
}

// mostLayers bounds what is kept of them; no image has as many.
const mostLayers = 1000

// layers are those of an image, by their id.
type layers map[string]layer

type layer struct {
	done         bool
	bytes, total int64
}

// take notes a step, and reports whether it was about a layer.
func (l layers) take(s pullStep) bool {
	is, known := l[s.ID]
	switch s.Status {
	case "Pulling fs layer", "Waiting":
	case "Downloading":
		is.bytes, is.total = s.ProgressDetail.Current, max(s.ProgressDetail.Total, s.ProgressDetail.Current)
	case "Download complete", "Verifying Checksum", "Extracting":
		is.bytes = is.total
	case "Pull complete", "Already exists":
		is.done, is.bytes = true, is.total
	default:
		return false
	}
	if s.ID == "" || !known && len(l) >= mostLayers {
		return false
	}
	l[s.ID] = is
	return true
}

func (l layers) sum() (p Pulled) {
	for _, is := range l {
		p.Layers++
		if is.done {
			p.Done++
		}
		p.Bytes += is.bytes
		p.Total += is.total
	}
	return p
}
