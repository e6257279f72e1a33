//go:build !linux

package cli

import (
	"os"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func (o runOptions) terminal(Process, *api.RunRequest) error { return supported() }

type screen struct {
	resizes chan api.Size
	signals chan int
	file    *os.File
}

func openScreen(Process, bool) (*screen, error) { return nil, supported() }
func (*screen) raw()                            {}
func (*screen) close()                          {}

// supported refuses what needs a node: there is none elsewhere than on Linux.
func supported() error {
	return fault.Negative("This machine cannot sandbox agents: sandboxes need Linux")
}
