//go:build !unix

package node

import "context"

func (n *Node) renewByProcess(context.Context, Renewal) error {
	return RenewalSaid("sign-ins cannot be renewed on this system")
}
