package cli

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/engine"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
)

// engines are those of this build, by the names that plans and journals use.
func engines(h here, log *slog.Logger) (map[string]sandbox.Engine, error) {
	n, err := native.New(native.Options{Log: log})
	if err != nil {
		return nil, fault.Unknown("preparing the native engine: %w", err)
	}
	o := process.New(process.Options{Log: log})
	all := map[string]sandbox.Engine{n.Name(): n, o.Name(): o}
	d, err := dockerEngine(h, log, n)
	if err != nil {
		log.Warn("the docker engine is left out", "err", err)
		return all, nil
	}
	all[d.Name()] = d
	return all, nil
}

// usualImage is what `image build` makes, and what sessions use where no other
// one is set.
const usualImage = "mojoup-sandbox:latest"

// sandboxImage is the image of sessions on engine docker.
func (h here) sandboxImage() string {
	return cmp.Or(h.setImage(), usualImage)
}

// fetches says whether that image can be had somewhere: the usual one is made here.
func (h here) fetches() bool { return h.setImage() != "" }

// docker speaks to the daemon that this process' environment names.
func (h here) docker() (*daemon.Daemon, error) { return daemon.Connect(os.Getenv("DOCKER_HOST")) }

// discover finds the person's gateway, or the one that is set.
func (h here) discover() (openshell.Registration, error) {
	return openshell.Discover(openshell.Where{Chosen: h.setGateway(), Getenv: os.Getenv, UID: os.Getuid()})
}

// gateway reaches it.
func (h here) gateway(ctx context.Context) (openshell.Client, error) {
	reg, err := h.discover()
	if err != nil {
		return nil, err
	}
	return openshell.Connect(ctx, reg)
}

func dockerEngine(h here, log *slog.Logger, n *native.Engine) (*engine.Engine, error) {
	d, err := h.docker()
	if err != nil {
		return nil, err
	}
	return engine.New(engine.Options{
		Log: log, Node: h.nodeID(), Staging: h.staging(), Image: h.sandboxImage(), Fetch: h.fetches(), Connect: h.gateway, Docker: d, Native: n,
	})
}

// staging is where the files of sandboxes lie that Docker mounts. Not in the
// runtime directory: a gateway that systemd started may have a /tmp of its own.
func (h here) staging() string { return filepath.Join(h.paths.State, "sandboxes") }

// nodeID names this node at a gateway that others use too: the same at every
// start, since what a dead node left is found by it.
func (h here) nodeID() string {
	machine, _ := os.ReadFile("/etc/machine-id") // without one the rest must do
	sum := sha256.Sum256(fmt.Appendf(machine, "\x00%s\x00%s", h.paths.State, strconv.Itoa(os.Getuid())))
	return hex.EncodeToString(sum[:8])
}
