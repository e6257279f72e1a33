package node

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/mojoup/mojoup-node/internal/config"
)

// lockPath is the file whose lock makes one node of a runtime directory.
func lockPath(p config.Paths) string { return filepath.Join(p.Runtime, "node.lock") }

// workDir is the empty directory over which engines mount. One serves all
// sessions, because each mounts in a namespace of its own.
func workDir(p config.Paths) string { return filepath.Join(p.Runtime, "empty") }

// makePlaces makes the directories of a node that runs.
func makePlaces(p config.Paths) error {
	if err := p.MakeRuntime(); err != nil {
		return err
	}
	err := os.Mkdir(workDir(p), 0o700)
	if err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("making the directory to mount on: %w", err)
	}
	return nil
}
