package enginetest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/network"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// A Place is where tests have sessions on engine docker: the real
// gateway that MOJOUP_TEST_GATEWAY names, else a double. What runs there is the
// same.
type Place struct {
	// Endpoint and Image are the gateway's URL and what sessions start in.
	Endpoint, Image string
	// CLI is a directory that holds the gateway's command line.
	CLI string
	// Group owns Docker's socket.
	Group int
	// Restart restarts the gateway. Of a real one MOJOUP_TEST_GATEWAY_RESTART
	// says how.
	Restart func() error

	env []string
}

// Env tells another process where it is: see [Open].
func (p Place) Env() []string { return p.env }

// Getenv is like [os.Getenv] of a process that has Env.
func (p Place) Getenv(name string) string { return variable(p.env, name) }

// Somewhere finds the real gateway, or starts a double until the test ends.
func Somewhere(t testing.TB) Place {
	t.Helper()
	p := find(t)
	config := t.TempDir()
	if err := p.Register(config); err != nil {
		t.Fatal(err)
	}
	p.env = []string{envConfig + "=" + config, envImage + "=" + p.Image}
	return p
}

func find(t testing.TB) Place {
	t.Helper()
	gatewaytest.Docker(t)
	info, err := os.Stat(socket)
	kerneltest.Require(t, "Docker's socket", err)
	p := Place{CLI: t.TempDir(), Group: int(info.Sys().(*syscall.Stat_t).Gid)}
	if err := errors.Join(os.Chmod(p.CLI, 0o755), os.Chmod(filepath.Dir(p.CLI), 0o755)); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(p.CLI, "openshell")
	if p.Endpoint = os.Getenv("MOJOUP_TEST_GATEWAY"); p.Endpoint == "" {
		g := gatewaytest.Start(t, Options{})
		p.Endpoint, p.Image = g.Endpoint(), gatewaytest.Fit(t)
		p.Restart = func() error { g.Restart(""); return nil }
		if err := os.WriteFile(program, []byte("#!/bin/sh\necho openshell 0.0.111\n"), 0o755); err != nil { // #nosec: it is a program
			t.Fatal(err)
		}
		return p
	}
	p.Image = cmp.Or(os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), "mojoup-test-base:latest")
	p.Restart = func() error {
		line := os.Getenv("MOJOUP_TEST_GATEWAY_RESTART")
		if line == "" {
			return errors.New("MOJOUP_TEST_GATEWAY_RESTART does not say how")
		}
		out, err := exec.Command("sh", "-c", line).CombinedOutput() // #nosec: the tester's own line
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	}
	cli, err := exec.LookPath(cmp.Or(os.Getenv("MOJOUP_TEST_OPENSHELL"), "openshell"))
	if err != nil {
		t.Fatalf("the gateway's command line (MOJOUP_TEST_OPENSHELL): %v", err)
	}
	if err := os.Symlink(cli, program); err != nil {
		t.Fatal(err)
	}
	return p
}

const socket = "/var/run/docker.sock"

// Register writes the gateway's registration below a person's directory of
// settings, as its command line does.
func (p Place) Register(settings string) error {
	return gatewaytest.Register(settings, "somewhere", p.Endpoint, "plaintext")
}

// Networks are the names of Docker's, and of the one that all sandboxes share.
func Networks(t testing.TB) []string {
	t.Helper()
	all, err := gatewaytest.Docker(t).NetworkList(t.Context(), network.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := []string{product.Network}
	for _, n := range all {
		names = append(names, n.Name)
	}
	return names
}

// Containers counts those of a session, by Docker's own word.
func Containers(ctx context.Context, session string) (n int, err error) {
	return containers(ctx, session, func(*daemon.Daemon, string) error { return nil })
}

// Kill ends the containers of a session behind everybody's back, or takes them
// away.
func Kill(ctx context.Context, session string, remove bool) (n int, err error) {
	return containers(ctx, session, func(d *daemon.Daemon, id string) error {
		if remove {
			return d.Remove(ctx, id)
		}
		return d.Kill(ctx, id)
	})
}

func containers(ctx context.Context, session string, do func(*daemon.Daemon, string) error) (n int, err error) {
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		return 0, err
	}
	defer d.Close()
	found, err := d.Containers(ctx, map[string]string{openshell.LabelSession: session})
	for _, c := range found {
		err = errors.Join(err, do(d, c.ID))
	}
	return len(found), err
}
