package cli

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// readBounded reads a regular file that a person named: never more than a
// policy may have, and never waiting for somebody to open the other side.
func readBounded(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Mode().Type() != 0 {
		return nil, errNoFile
	}
	text, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err == nil && len(text) > maxDocument {
		err = errTooLarge
	}
	return text, err
}
