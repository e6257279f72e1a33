//go:build !linux

package native

import (
	"context"
	"log/slog"
	"runtime"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// Options configure an [Engine].
type Options struct {
	Log         *slog.Logger // nil discards
	ScratchSize int64        // bytes
}

// An Engine cannot be made here.
type Engine struct{}

// New returns a [*child.UnsupportedError].
func New(Options) (*Engine, error) { return nil, unsupported() }

func unsupported() error { return &child.UnsupportedError{OS: runtime.GOOS} }

// Name is "native".
func (*Engine) Name() string { return "native" }

// Close does nothing.
func (*Engine) Close() error { return nil }

// Prepare returns a [*child.UnsupportedError].
func (*Engine) Prepare(context.Context, sandbox.Spec) (sandbox.Sandbox, error) {
	return nil, unsupported()
}

// Undo is empty.
func (*Engine) Undo(sandbox.Spec) []sandbox.Undo { return nil }

// Sweep returns a [*child.UnsupportedError].
func (*Engine) Sweep(context.Context, sandbox.Undo) (string, error) { return "", unsupported() }
