//go:build !linux

package process

import (
	"log/slog"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func prepare(*slog.Logger, sandbox.Spec) (sandbox.Sandbox, error) { return nil, ErrNeedsLinux }
