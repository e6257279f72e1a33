//go:build !linux

package child

import (
	"context"
	"runtime"
)

// Available returns an [*UnsupportedError].
func Available() error { return &UnsupportedError{OS: runtime.GOOS} }

// TryNamespaces returns an [*UnsupportedError].
func TryNamespaces(context.Context) error { return Available() }

// TryListener returns an [*UnsupportedError].
func TryListener(context.Context) error { return Available() }
