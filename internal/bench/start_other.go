//go:build !linux

package bench

import (
	"context"
	"runtime"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// Starts has nothing to measure: sandboxes need Linux.
func Starts(context.Context, int, sandbox.Engine, func(id string) (sandbox.Spec, error)) ([]Row, error) {
	return nil, &child.UnsupportedError{OS: runtime.GOOS}
}

// Crowd has nothing to measure either.
func Crowd(context.Context, int, sandbox.Engine, func(id string) (sandbox.Spec, error)) (Row, []Figure, error) {
	return Row{}, nil, &child.UnsupportedError{OS: runtime.GOOS}
}
