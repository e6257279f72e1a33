//go:build !unix

package node

import (
	"context"

	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

func renewByProcess(context.Context, signin.Tool, string) error {
	return RenewalSaid("sign-ins cannot be renewed on this system")
}
