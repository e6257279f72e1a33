//go:build !unix

package registries

import "os/exec"

// ownGroup does nothing where there are no process groups; the client itself
// is still ended.
func ownGroup(*exec.Cmd) {}
