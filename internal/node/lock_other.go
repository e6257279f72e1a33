//go:build !linux

package node

import (
	"context"
	"errors"
	"os"

	"github.com/mojoup/mojoup-node/internal/config"
)

// hold refuses: nothing here can be served elsewhere than on Linux.
func hold(string) (*os.File, error) { return nil, errors.ErrUnsupported }

// WaitGone has nothing to wait for.
func WaitGone(context.Context, config.Paths) error { return nil }
