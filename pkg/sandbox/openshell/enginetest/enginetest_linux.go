package enginetest

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// A Double is a gateway for tests with an image that fits.
type Double struct {
	*gatewaytest.Gateway
	// Image is the one that fits.
	Image string
	env   []string
}

// Variables by which another process of the same test finds a double.
const envConfig, envImage = "MOJOUP_TEST_DOUBLE", "MOJOUP_TEST_DOUBLE_IMAGE"

// Options are what the operator of a double decides, and Faults what goes wrong
// there.
type (
	Options = gatewaytest.Options
	Faults  = gatewaytest.Faults
)

// Generations are those of gateways that there are doubles of.
var Generations = []string{gatewaytest.V00, gatewaytest.V01}

// Start starts a double. What it has made is removed when the test ends.
func Start(t testing.TB, o Options) *Double {
	t.Helper()
	g := gatewaytest.Start(t, o)
	config := t.TempDir()
	g.Register(config)
	fits := gatewaytest.Fit
	if o.Machine {
		fits = gatewaytest.Machine
	}
	image := fits(t)
	return &Double{g, image, []string{envConfig + "=" + config, envImage + "=" + image}}
}

// Written is all that Docker and the gateway have of the sandboxes that there
// are: what each container is, runs, said and holds, the image and what was
// asked of the gateway.
func (d *Double) Written(t testing.TB) map[string][]byte {
	t.Helper()
	docker, ctx := gatewaytest.Docker(t), t.Context()
	out := map[string][]byte{}
	put := func(what string, v any, err error) {
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if out[what], err = json.Marshal(v); err != nil {
			t.Fatal(err)
		}
	}
	read := func(what string, r io.ReadCloser, err error) {
		if err == nil {
			out[what], err = io.ReadAll(r)
			err = errors.Join(err, r.Close())
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	put("requests to the gateway", d.Requests(), nil)
	history, err := docker.ImageHistory(ctx, d.Image)
	put("image's history", history, err)
	is, err := docker.ImageInspect(ctx, d.Image)
	put("image", is, err)
	for _, c := range d.containers(t) {
		put("container "+c.ID, c, nil)
		is, err := docker.ContainerInspect(ctx, c.ID)
		put("inspect "+c.ID, is, err)
		top, err := docker.ContainerTop(ctx, c.ID, []string{"-eo", "pid,args"})
		put("processes of "+c.ID, top, err)
		said, err := docker.ContainerLogs(ctx, c.ID, container.LogsOptions{ShowStdout: true, ShowStderr: true})
		read("log of "+c.ID, said, err)
		files, err := docker.ContainerExport(ctx, c.ID)
		read("files of "+c.ID, files, err)
	}
	return out
}

// Env tells another process where the double is: see [Open].
func (d *Double) Env() []string { return d.env }

// Plant puts a file with a text into every container, for a search to find.
func (d *Double) Plant(t testing.TB, text string) {
	t.Helper()
	docker := gatewaytest.Docker(t)
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "planted", Mode: 0o600, Size: int64(len(text))})
	if err == nil {
		_, err = io.WriteString(w, text)
	}
	if err = errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.containers(t) {
		if err := docker.CopyToContainer(t.Context(), c.ID, "/var", bytes.NewReader(archive.Bytes()), container.CopyToContainerOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// Containers counts those of this double.
func (d *Double) Containers(t testing.TB) int {
	t.Helper()
	return len(d.containers(t))
}

func (d *Double) containers(t testing.TB) []container.Summary {
	t.Helper()
	all, err := gatewaytest.Docker(t).ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", gatewaytest.Label+"="+d.Name()))})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

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
