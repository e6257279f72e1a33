//go:build !linux

package guardwatch

import (
	"errors"
	"log/slog"
)

// A Watcher watches nothing: sandboxes need Linux.
type Watcher struct{ log *slog.Logger }

// ErrUnsupported is answered where sandboxes cannot exist.
var ErrUnsupported = errors.New("sandboxes need Linux")

// Watch is [ErrUnsupported].
func (*Watcher) Watch([]string, func(Lost)) (stop func(), err error) {
	return func() {}, ErrUnsupported
}

// Close does nothing.
func (*Watcher) Close() error { return nil }
