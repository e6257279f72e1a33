//go:build !linux

package capability

import "runtime"

// ThisHost is a machine on which nothing needs to be probed: sandboxes need
// Linux.
func ThisHost(o Options) Host { return Host{OS: runtime.GOOS, Limit: o.Limit} }
