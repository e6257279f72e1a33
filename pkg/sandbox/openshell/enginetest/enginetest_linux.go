package enginetest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// A Double is a gateway for tests with an image that fits.
type Double struct {
	*gatewaytest.Gateway
	env []string
}

// Variables by which another process of the same test finds a double.
const envConfig, envImage = "MOJOUP_TEST_DOUBLE", "MOJOUP_TEST_DOUBLE_IMAGE"

// Options are what the operator of a double decides.
type Options = gatewaytest.Options

// Start starts a double. What it has made is removed when the test ends.
func Start(t testing.TB, o Options) *Double {
	t.Helper()
	g := gatewaytest.Start(t, o)
	config := t.TempDir()
	g.Register(config)
	return &Double{g, []string{envConfig + "=" + config, envImage + "=" + gatewaytest.Fit(t)}}
}

// Env tells another process where the double is: see [Open].
func (d *Double) Env() []string { return d.env }

// Getenv is like [os.Getenv] of a process that has Env.
func (d *Double) Getenv(name string) string { return variable(d.env, name) }

func variable(env []string, name string) string {
	for _, kv := range env {
		if len(kv) > len(name) && kv[:len(name)+1] == name+"=" {
			return kv[len(name)+1:]
		}
	}
	return ""
}

// Named reports whether an environment names a double.
func Named(getenv func(string) string) bool { return getenv(envConfig) != "" }

// An Engine is engine docker with all that it stands on.
type Engine struct {
	*engine.Engine
	// Native is what its helper is, for who needs a sandbox beside it.
	Native *native.Engine
	docker *daemon.Daemon
}

// Open makes the engine of the node with this state directory, on the double
// that the environment names.
func Open(state string, getenv func(string) string) (*Engine, error) {
	n, err := native.New(native.Options{})
	if err != nil {
		return nil, err
	}
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256([]byte(state))
	e, err := engine.New(engine.Options{
		Node: hex.EncodeToString(sum[:8]), Staging: filepath.Join(state, "sandboxes"), Image: getenv(envImage), Docker: d, Native: n,
		Connect: func(ctx context.Context) (openshell.Client, error) {
			reg, err := openshell.Discover(openshell.Where{UID: os.Geteuid(), Getenv: func(name string) string {
				if name == "XDG_CONFIG_HOME" {
					return getenv(envConfig)
				}
				return ""
			}})
			if err != nil {
				return nil, err
			}
			return openshell.Connect(ctx, reg)
		},
	})
	return &Engine{e, n, d}, err
}

// Close ends its connections. Sandboxes are not touched.
func (e *Engine) Close() error {
	return errors.Join(e.Engine.Close(), e.Native.Close(), e.docker.Close())
}

// Containers are those of a session of this engine's, by Docker's own word.
func (e *Engine) Containers(ctx context.Context, session string) ([]daemon.Container, error) {
	return e.docker.Containers(ctx, map[string]string{openshell.LabelSession: session})
}

// Kill ends the containers of a session, or takes them away.
func (e *Engine) Kill(ctx context.Context, session string, remove bool) (n int, err error) {
	found, err := e.Containers(ctx, session)
	if err != nil {
		return 0, err
	}
	for _, c := range found {
		if remove {
			err = e.docker.Remove(ctx, c.ID)
		} else {
			err = e.docker.Kill(ctx, c.ID)
		}
		if err != nil {
			return n, err
		}
		n++
	}
	return n, nil
}
