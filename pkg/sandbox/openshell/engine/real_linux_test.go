package engine

import (
	"cmp"
	"context"
	"os"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

// TestRealGateway runs the suite of all engines on the gateway that
// MOJOUP_TEST_GATEWAY names.
func TestRealGateway(t *testing.T) {
	at := os.Getenv("MOJOUP_TEST_GATEWAY")
	if at == "" {
		t.Skip("wanted MOJOUP_TEST_GATEWAY, found none")
	}
	image := cmp.Or(os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), "mojoup-test-base:latest")
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine { return realEngine(t, at, image) }, sandboxtest.Options{
		Confines: true, Adapt: adapt, Starts: 8, Swaps: 6, Except: except, NoFilters: true,
		// It asks whether a source is there, and Docker mounts in the older way.
		MakesSources: true,
	})
}

// except are the attempts that look for a route and send nothing: there is one,
// to OpenShell's own end of the sandbox's network, whose filter refuses every
// packet but to its proxy. That none gets out is tried by each sandbox's own
// check, with a packet and with a connection. And what the gateway's own
// supervisor has set before anything of ours runs, for good.
var except = func() map[string]string {
	names := map[string]string{}
	for _, name := range []string{"route-metadata", "route-public", "route-dns", "route-private", "route-multicast", "route-mapped"} {
		names[name] = "a route to OpenShell's end of the network is there, and a filter behind it"
	}
	names["core-limit"] = "OpenShell sets this limit to 0, and nobody inside may raise it"
	return names
}()

func realEngine(t *testing.T, at, image string) *Engine {
	t.Helper()
	n, err := native.New(native.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	staging, err := os.MkdirTemp("", "engine-stage-")
	if err != nil {
		t.Fatal(err)
	}
	e, err := New(Options{Node: "test-node", Staging: staging, Image: image, Docker: d, Native: n,
		Connect: func(ctx context.Context) (openshell.Client, error) {
			reg, err := openshell.Discover(openshell.Where{UID: os.Geteuid(), Getenv: func(name string) string {
				if name == "OPENSHELL_GATEWAY_ENDPOINT" {
					return at
				}
				return ""
			}})
			if err != nil {
				return nil, err
			}
			return openshell.Connect(ctx, reg)
		}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _, _, _ = e.Close(), n.Close(), d.Close(), os.RemoveAll(staging) })
	return e
}

// adapt leaves out what the image has itself.
func adapt(_ *testing.T, s sandbox.Spec) sandbox.Spec {
	var mounts []sandbox.Mount
	for _, m := range s.Mounts {
		system := m.Kind == sandbox.Bind && m.Access == sandbox.ReadOnly && (m.Target == "/usr" || strings.HasPrefix(m.Target, "/etc/"))
		for _, dir := range native.Readable {
			system = system || m.Target == dir && (m.Kind == sandbox.Link || m.Kind == sandbox.Bind)
		}
		if !system {
			mounts = append(mounts, m)
		}
	}
	s.Mounts = mounts
	return s
}
