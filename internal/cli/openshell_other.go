//go:build !linux

package cli

import (
	"context"

	"github.com/mojoup/mojoup-node/pkg/capability"
)

func (h here) examine(ctx context.Context, e capability.Engine, _ bool) capability.Report {
	return capability.Examine(ctx, capability.ThisHost(capability.Options{}), e)
}
