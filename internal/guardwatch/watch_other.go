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

// Look is [ErrUnsupported].
func Look(string) (Stamp, error) { return Stamp{}, ErrUnsupported }

// A Watch watches nothing.
type Watch struct{}

// Examine does nothing.
func (*Watch) Examine() {}

// Stop does nothing.
func (*Watch) Stop() {}

// Watch misses every path with [ErrUnsupported].
func (*Watcher) Watch(paths []string, _ func(Lost)) (_ *Watch, missed []Missed) {
	for _, path := range paths {
		missed = append(missed, Missed{path, ErrUnsupported})
	}
	return nil, missed
}

// Close does nothing.
func (*Watcher) Close() error { return nil }
