// Command supervisor promises the double's containers what a gateway's own
// supervisor does for a real one: one identity, no capability, Landlock,
// seccomp, and a network whose only exit is the rule of a policy. It is a test's
// program: package gatewaytest builds it and mounts it.
package main

import (
	"os"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/inside"
)

func main() { os.Exit(inside.Main(os.Args[1:])) }
