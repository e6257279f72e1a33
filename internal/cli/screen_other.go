//go:build !linux

package cli

import (
	"os"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func terminalFor(Process, bool, bool) *api.Size { return nil }

type screen struct {
	resizes chan api.Size
	signals chan int
	file    *os.File
}

func openScreen(Process, bool) (*screen, error) { return nil, supported() }
func (*screen) raw()                            {}
func (*screen) close()                          {}
func (*screen) isRaw() bool                     { return false }
func (*screen) wasRaw() bool                    { return false }

// supported refuses what needs a node: there is none elsewhere than on Linux.
func supported() error {
	return fault.Negative("This machine cannot sandbox agents: sandboxes need Linux")
}
