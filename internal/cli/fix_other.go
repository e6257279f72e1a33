//go:build !linux

package cli

import (
	"context"

	"github.com/mojoup/mojoup-node/pkg/capability"
)

func (here) fix(context.Context, Process, capability.Report, bool) error { return supported() }

func (here) undoFixes(context.Context, Process) error { return supported() }
