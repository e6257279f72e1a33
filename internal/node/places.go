package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/mojoup/mojoup-node/internal/config"
)

// Hold makes the directories of a node and takes the lock that makes it the
// only one of them, until the file is closed. It fails with ErrRunning.
func Hold(p config.Paths) (*os.File, error) {
	if err := makePlaces(p); err != nil {
		return nil, err
	}
	return hold(p.Lock())
}

// makePlaces makes the directories of a node that runs. One empty directory
// serves all sessions, because each mounts in a namespace of its own.
func makePlaces(p config.Paths) error {
	if err := p.MakeRuntime(); err != nil {
		return err
	}
	err := os.Mkdir(p.Empty(), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory to mount on: %w", err)
	}
	return nil
}
