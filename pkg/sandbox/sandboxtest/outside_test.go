//go:build linux

package sandboxtest

import "testing"

// The table is worth nothing if its attempts fail everywhere, so they are made
// without any sandbox, whatever engines this machine can run.
func TestAttemptsWorkOutside(t *testing.T) {
	attack := attackProgram(t)
	s := &suite{}
	for _, land := range s.terrains() {
		t.Run(land.name, func(t *testing.T) { s.showOutside(t, land, attack) })
	}
}
