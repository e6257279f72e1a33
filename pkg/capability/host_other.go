//go:build !linux

package capability

import (
	"runtime"
	"time"
)

// Options of [ThisHost]. The zero value is complete.
type Options struct {
	// DockerWait bounds the wait for Docker; zero means two seconds.
	DockerWait time.Duration
	// Limit bounds each probe; zero means three seconds.
	Limit time.Duration
}

// ThisHost is a machine on which nothing needs to be probed: sandboxes need
// Linux.
func ThisHost(o Options) Host { return Host{OS: runtime.GOOS, Limit: o.Limit} }
