package openshell_test

import (
	"os"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// generations are those that the double speaks.
var generations = []string{gatewaytest.V00, gatewaytest.V01}

// registered finds a double by its registration, as a person's command line
// would.
func registered(t *testing.T, g *gatewaytest.Gateway) openshell.Registration {
	t.Helper()
	env := g.Register(t.TempDir())
	reg, err := openshell.Discover(openshell.Where{UID: os.Getuid(), Getenv: getenv(env)})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

func getenv(env []string) func(string) string {
	return func(name string) string {
		for _, pair := range env {
			if key, value, _ := strings.Cut(pair, "="); key == name {
				return value
			}
		}
		return ""
	}
}

// connected starts a double and connects to it.
func connected(t *testing.T, o gatewaytest.Options) (*gatewaytest.Gateway, openshell.Client) {
	t.Helper()
	g := gatewaytest.Start(t, o)
	c, err := openshell.Connect(bounded(t), registered(t, g))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return g, c
}

// ordinary is who sandboxes run as: a gateway takes no root.
func ordinary() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return 1000
}

// TestDouble runs on the double what TestRealGateway runs on a real one.
func TestDouble(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) {
			image := gatewaytest.Image(t)
			_, c := connected(t, gatewaytest.Options{Generation: generation, TLS: generation == gatewaytest.V00, Token: map[string]string{gatewaytest.V00: "t0ken"}[generation]})
			if got := string(c.Gateway().Generation); got != generation {
				t.Fatalf("%s is spoken", got)
			}
			suite(t, world{client: c, image: image, uid: ordinary(), node: newNode()})
		})
	}
}
