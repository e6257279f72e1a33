//go:build !linux

package admission

import (
	"errors"
	"fmt"
)

// ReadMemory is for Linux.
func ReadMemory() (Reading, error) {
	return Reading{}, fmt.Errorf("reading the machine's memory: sandboxes need Linux: %w", errors.ErrUnsupported)
}
