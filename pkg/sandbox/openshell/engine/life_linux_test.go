package engine

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// TestB61_ASessionLivesAsLongAsItsCommand, in the same way on gateways of both
// generations, each of which has a rule of its own about what the end of a
// sandbox's first command means: an exit code or signal arrives as it was,
// others run beside it, what it leaves behind lives on, and only removing the
// sandbox ends that. Versions whose rule nobody has tried are refused by name:
// see [TestRefusalsAreSentences].
func TestB61_ASessionLivesAsLongAsItsCommand(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range []string{gatewaytest.V00, gatewaytest.V01} {
		t.Run(generation, func(t *testing.T) {
			w := newWorld(t, gatewaytest.Options{Generation: generation})
			e, spec := w.new(t), plainSpec(t, "lives")
			b, err := e.Prepare(bounded(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Remove(bounded(t)) //nolint:errcheck // removed below, where it is looked at
			for script, want := range map[string]sandbox.Exit{
				"exit 0": {}, "exit 3": {Code: 3}, "kill -9 $$": {Code: 137, Signal: 9},
				"sleep 600 & exit 4": {Code: 4}, "setsid sleep 600 & exit 0": {},
			} {
				p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sh", "-c", script}}, sandbox.Stdio{})
				if err != nil {
					t.Fatalf("%s: %v", script, err)
				}
				if got, err := p.Wait(bounded(t)); err != nil || got != want {
					t.Errorf("%s: %v (-want +got)\n%s", script, err, cmp.Diff(want, got))
				}
			}
			long, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sleep", "600"}}, sandbox.Stdio{})
			if err != nil {
				t.Fatal(err)
			}
			if out, err := w.say(t, b, "echo beside it"); err != nil || out != "beside it\n" {
				t.Errorf("a second command says %q, %v", out, err)
			}
			c, err := e.gateway(bounded(t))
			if err != nil {
				t.Fatal(err)
			}
			if r, err := c.Get(bounded(t), openshell.Name(e.o.Node, spec.ID)); err != nil || r.Phase != openshell.ReadyPhase {
				t.Errorf("after five ends of commands the gateway calls it %v, %v", r.Phase, err)
			}
			if err := b.Remove(bounded(t)); err != nil {
				t.Error(err)
			}
			select {
			case <-b.Done():
			case <-time.After(time.Minute):
				t.Error("it runs on after it was removed")
			}
			ctx := bounded(t)
			if _, err := long.Wait(ctx); ctx.Err() != nil {
				t.Errorf("the command that was under way has not ended: %v", err)
			}
			w.clean(t, e, spec)
		})
	}
}
