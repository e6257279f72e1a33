package engine

import (
	"os"
	"path/filepath"
	"strconv"
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
	once := taken(t, dir)
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
	if got := taken(t, dir); got > once+8192 {
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
	if got := taken(t, dir); got > once+16384 {
		t.Errorf("a file with nothing in it takes %d", got-once)
	}
	if got := taken(t, filepath.Join(dir, "missing")); got != 0 {
		t.Errorf("nothing takes %d", got)
	}
}

// TestUsageOfDirectories counts directories and empty files too, of which a disk
// does not hold any number, and what lies below more names than a path may have.
func TestUsageOfDirectories(t *testing.T) {
	dir := t.TempDir()
	const many = 1000
	for i := range many {
		if err := os.Mkdir(filepath.Join(dir, strconv.Itoa(i)), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	full := taken(t, dir)
	if full < many*512 {
		t.Errorf("%d directories take %d", many, full)
	}
	for i := range many {
		if err := os.WriteFile(filepath.Join(dir, "e"+strconv.Itoa(i)), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := taken(t, dir); got < full+many*256 {
		t.Errorf("%d empty files take %d", many, got-full)
	}

	deep := t.TempDir()
	at := deeper(t, deep, 20) // 5,000 bytes
	if err := at.WriteFile("big", make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := taken(t, deep); got < 1<<20 {
		t.Errorf("1 MiB behind a path of 5,000 bytes takes %d", got)
	}
}

// TestUsageHasAnEnd however deep whoever is measured goes, and stops at the limit.
func TestUsageHasAnEnd(t *testing.T) {
	dir := t.TempDir()
	deeper(t, dir, mostBases*(longest/250+2))
	if _, whole := usage(dir, 1<<40); whole {
		t.Error("all of it was measured")
	}
	if used, whole := usage(dir, 100<<10); used <= 100<<10 || used > 1<<20 || !whole {
		t.Errorf("it stopped at %d, whole %t", used, whole)
	}
}

func taken(t *testing.T, dir string) int64 {
	t.Helper()
	bytes, whole := usage(dir, 1<<40)
	if !whole {
		t.Error("not all of it was measured")
	}
	return bytes
}

// deeper makes one directory in another, with names of 250 bytes, and opens the
// last one.
func deeper(t *testing.T, dir string, steps int) *os.Root {
	t.Helper()
	at, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := strings.Repeat("d", 250)
	for range steps {
		if err := at.Mkdir(name, 0o700); err != nil {
			t.Fatal(err)
		}
		below, err := at.OpenRoot(name)
		_ = at.Close()
		if err != nil {
			t.Fatal(err)
		}
		at = below
	}
	t.Cleanup(func() { _ = at.Close() })
	return at
}
