package engine

import (
	"slices"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// TestFitImage: a session starts in the double's own image that fits, at gateways of both
// generations, with no program of this machine mounted over it.
func TestFitImage(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range []string{gatewaytest.V00, gatewaytest.V01} {
		t.Run(generation, func(t *testing.T) {
			w := newWorld(t, gatewaytest.Options{Generation: generation})
			w.image = gatewaytest.Fit(t)
			e, spec := w.new(t), plainSpec(t, "fits")
			spec.Mounts = slices.DeleteFunc(spec.Mounts, func(m sandbox.Mount) bool { return m.Target == "/usr" })
			b, err := e.Prepare(bounded(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			if out, err := w.say(t, b, "id -u"); err != nil || out != "1000\n" {
				t.Errorf("it says %q, %v", out, err)
			}
			if err := b.Remove(bounded(t)); err != nil {
				t.Error(err)
			}
			w.clean(t, e, spec)
		})
	}
}
