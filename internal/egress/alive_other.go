//go:build !linux

package egress

import "net"

// alive takes a connection as it was left; a closed one shows when it is used.
func alive(net.Conn) bool { return true }
