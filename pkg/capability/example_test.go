package capability_test

import (
	"context"
	"fmt"

	"github.com/mojoup/mojoup-node/pkg/capability"
)

func ExampleExamine() {
	// A host without probes, or on another system, is never able.
	elsewhere := capability.Host{OS: "darwin"}
	report := capability.Examine(context.Background(), elsewhere, capability.Auto)
	fmt.Println(report.Verdict)
	// Output: This machine cannot sandbox agents: sandboxes need Linux
}

func ExampleDecide() {
	checks := []capability.Check{{
		Name: capability.NameLandlock, State: capability.Fail, Engines: []string{"native", "docker"},
		Reason: "this kernel is built without Landlock",
	}}
	engines, verdict := capability.Decide(checks, capability.Native)
	for _, line := range engines {
		fmt.Println(line.Engine, line.Able, line.Reason)
	}
	fmt.Println(verdict)
	// Output:
	// native false this kernel is built without Landlock
	// docker false this kernel is built without Landlock
	// This machine cannot sandbox agents: this kernel is built without Landlock
}
