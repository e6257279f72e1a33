package engine

import (
	"archive/tar"
	"bytes"
	"context"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

// TestDouble runs the suite of all engines on the double of a gateway, whose
// containers are real ones.
func TestDouble(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range []string{gatewaytest.V00, gatewaytest.V01} {
		t.Run(generation, func(t *testing.T) {
			w := newWorld(t, gatewaytest.Options{Generation: generation})
			o := sandboxtest.Options{Confines: true, Adapt: hostsPrograms, Starts: 8, Swaps: 6, NoFilters: true}
			o.Except = map[string]string{"route-private": "the network inside is of such a range; its other end takes nothing but for the proxy"}
			if generation == gatewaytest.V01 {
				o.Except, o.Without = weaker()
			}
			sandboxtest.Test(t, w.engine, o)
		})
	}
}

// weaker is what does not hold on 0.1.x, as its facts say: its containers give
// nobody the right to hold a link, to make one in the root, or to name the
// host, and their own way out is a socket that is seen.
func weaker() (except, without map[string]string) {
	except = map[string]string{}
	for _, name := range []string{"rename-config", "replace-config", "exchange-config", "unlink-config", "link-config"} {
		except["MainTree/"+name] = "the link behind which git's config stands is no mount"
	}
	without = map[string]string{
		"IdentityOwnsFiles": "the host name is the container's", "MountsAreAllThereIs": "a link in the root cannot be made",
		"B47_LinkedWorktree": "the link of config.worktree is no mount", "B90_NoSocketsOfTheHost": "the container's own way out is seen",
	}
	return except, without
}

// A world is a double and what an engine on it needs.
type world struct {
	gateway *gatewaytest.Gateway
	image   string
	staging string
}

func newWorld(t *testing.T, o gatewaytest.Options) world {
	t.Helper()
	gatewaytest.Docker(t)
	staging, err := os.MkdirTemp("", "engine-stage-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(staging) })
	return world{gateway: gatewaytest.Start(t, o), image: emptyImage(t), staging: staging}
}

func (w world) engine(t *testing.T) sandbox.Engine { return w.new(t) }

func (w world) new(t *testing.T) *Engine {
	t.Helper()
	n, err := native.New(native.Options{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	env := w.gateway.Register(t.TempDir())
	e, err := New(Options{Node: "test-node", Staging: w.staging, Image: w.image, Docker: d, Native: n, Connect: func(ctx context.Context) (openshell.Client, error) {
		reg, err := openshell.Discover(openshell.Where{UID: os.Geteuid(), Getenv: func(name string) string {
			for _, kv := range env {
				if value, ok := strings.CutPrefix(kv, name+"="); ok {
					return value
				}
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
	t.Cleanup(func() { _, _, _ = e.Close(), n.Close(), d.Close() })
	return e
}

const emptyName = "mojoup-engine-test:latest"

var makeEmpty sync.Mutex

// emptyImage has no more than an image is looked at for: this machine's own
// programs are mounted over it. To make a whole one takes minutes.
func emptyImage(t *testing.T) string {
	t.Helper()
	makeEmpty.Lock()
	defer makeEmpty.Unlock()
	d, err := daemon.Connect(os.Getenv("DOCKER_HOST"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := d.Image(t.Context(), emptyName); err == nil {
		return emptyName
	}
	var archive bytes.Buffer
	out := tar.NewWriter(&archive)
	add := func(h tar.Header) {
		if err := out.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
	}
	for _, dir := range []string{"usr", "usr/bin", "usr/sbin", "usr/lib", "etc", "opt", "srv", "var", "run", "proc", "sys", "dev"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755})
	}
	for _, dir := range []string{"tmp", "var/tmp"} {
		add(tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o1777})
	}
	for _, dir := range []string{"bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		if to, err := os.Readlink("/" + dir); err == nil {
			add(tar.Header{Typeflag: tar.TypeSymlink, Name: dir, Linkname: to})
		}
	}
	for _, file := range []string{"usr/bin/bash", "usr/bin/sh", "usr/sbin/ip", "usr/sbin/nft", "etc/passwd", "etc/group"} {
		add(tar.Header{Typeflag: tar.TypeReg, Name: file, Mode: 0o755})
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.Import(t.Context(), emptyName, &archive); err != nil {
		t.Fatal(err)
	}
	return emptyName
}

// hostsPrograms keeps the mounts of this machine's programs, and leaves the
// links to them out, which the image has.
func hostsPrograms(_ *testing.T, s sandbox.Spec) sandbox.Spec {
	var mounts []sandbox.Mount
	for _, m := range s.Mounts {
		if m.Kind != sandbox.Link || len(m.Target) > len("/libx32") {
			mounts = append(mounts, m)
		}
	}
	s.Mounts = mounts
	return s
}
