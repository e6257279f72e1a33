package engine

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// TestT7_WhoFillsTheDiskIsEnded, wherever in its scratch it does, and is told why.
func TestT7_WhoFillsTheDiskIsEnded(t *testing.T) {
	kerneltest.Long(t)
	for generation, at := range map[string]string{gatewaytest.V00: "/var/tmp", gatewaytest.V01: "/home/user/deep/down"} {
		t.Run(generation+at, func(t *testing.T) {
			w := newWorld(t, gatewaytest.Options{Generation: generation})
			e, spec := w.new(t), plainSpec(t, "fills")
			var scratch []sandbox.Mount // the repository lies below /tmp
			for _, dir := range []string{"/tmp", "/var/tmp", "/home/user"} {
				scratch = append(scratch, sandbox.Mount{Kind: sandbox.Scratch, Target: dir, Access: sandbox.ReadWrite, Mode: 0o1777})
			}
			spec.Mounts = append(scratch, spec.Mounts...)
			spec.Limits.Disk = 4 << 20
			b, err := e.Prepare(bounded(t), spec)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Remove(bounded(t)) //nolint:errcheck // removed below, where it is looked at
			p, err := b.Exec(bounded(t), sandbox.Command{Argv: []string{"sh", "-c", "mkdir -p " + at + " && head -c 5000000 /dev/zero >" + at + "/big && sleep 600"}}, sandbox.Stdio{})
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-b.Done():
			case <-time.After(2 * time.Minute):
				t.Error("it goes on")
			}
			if _, err := p.Wait(bounded(t)); err != nil {
				t.Logf("the command: %v", err)
			}
			if why := b.(sandbox.Ender).Why(bounded(t)); why == nil || !strings.HasSuffix(why.Error(), "and the disk limit is 4194304") {
				t.Errorf("it ended because %v", why)
			}
			if err := b.Remove(bounded(t)); err != nil {
				t.Error(err)
			}
			w.clean(t, e, spec)
		})
	}
}

// TestUsage counts what a file takes once, by whatever names, and nothing that a
// link leads to.
func TestUsage(t *testing.T) {
	dir, outside := t.TempDir(), t.TempDir()
	big := make([]byte, 1<<20)
	for _, name := range []string{filepath.Join(dir, "a"), filepath.Join(outside, "b")} {
		if err := os.WriteFile(name, big, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	once := usage(dir)
	if once < 1<<20 || once > 2<<20 {
		t.Errorf("one file of 1 MiB takes %d", once)
	}
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "sub"), 0o700), os.Link(filepath.Join(dir, "a"), filepath.Join(dir, "sub/a")),
		os.Symlink(filepath.Join(outside, "b"), filepath.Join(dir, "b")), os.Symlink(outside, filepath.Join(dir, "sub/c")),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := usage(dir); got > once+8192 {
		t.Errorf("with links %d, without %d", got, once)
	}
	sparse, err := os.Create(filepath.Join(dir, "sparse"))
	if err != nil {
		t.Fatal(err)
	}
	defer sparse.Close()
	if err := sparse.Truncate(1 << 40); err != nil {
		t.Fatal(err)
	}
	if got := usage(dir); got > once+16384 {
		t.Errorf("a file with nothing in it takes %d", got-once)
	}
	if got := usage(filepath.Join(dir, "missing")); got != 0 {
		t.Errorf("nothing takes %d", got)
	}
}
