//go:build linux

package gatewaytest

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
)

// A Valve stands between a client and a gateway. Shut, it passes nothing on
// and ends nothing: what a client sees of a machine that is asleep.
type Valve struct {
	l    net.Listener
	shut atomic.Bool
}

// NewValve puts a valve before a gateway without TLS.
func NewValve(t testing.TB, g *Gateway) *Valve {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &Valve{l: l}
	t.Cleanup(func() { l.Close() })
	to := strings.TrimPrefix(g.Endpoint(), "http://")
	go func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				down.Close()
				continue
			}
			t.Cleanup(func() { up.Close(); down.Close() })
			go io.Copy(valved{v, up}, down)
			go io.Copy(valved{v, down}, up)
		}
	}()
	return v
}

// Endpoint is the valve's URL.
func (v *Valve) Endpoint() string { return "http://" + v.l.Addr().String() }

// Shut stops everything.
func (v *Valve) Shut() { v.shut.Store(true) }

type valved struct {
	v *Valve
	w io.Writer
}

func (v valved) Write(p []byte) (int, error) {
	if v.v.shut.Load() {
		return len(p), nil
	}
	return v.w.Write(p)
}
