//go:build !linux

package cli

import (
	"log/slog"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func engines(here, *slog.Logger) (map[string]sandbox.Engine, error) { return nil, supported() }
