package native

import (
	"bytes"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// TestTextsAreBegun: the beginning of a text is made with what sandboxes have
// in common, and nothing of that is seen.
func TestTextsAreBegun(t *testing.T) {
	w := newWorld(t)
	w.write("there", "old")
	begin := bytes.Repeat([]byte("0123456789abcde\n"), 4096)
	spec := w.spec()
	text := func(target string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Text, Target: target, Begin: begin, Content: []byte("end\n"), Mode: 0o640}
	}
	for _, shared := range []int{0, len(spec.Mounts), len(spec.Mounts) + 2} {
		spec := spec
		spec.Mounts = append(slices.Clip(spec.Mounts), text("/etc/both"), text(filepath.Join(w.repo, "there")), text("/tmp/both"))
		spec.Shared = shared
		b := open(t, spec)
		for _, file := range []string{"/etc/both", filepath.Join(w.repo, "there"), "/tmp/both"} {
			want(t, b, map[string]string{
				"wc -c < " + file + "; tail -n 2 " + file:           "65540\n0123456789abcde\nend",
				"(echo x > " + file + ") 2>/dev/null || echo fixed": "fixed",
				"stat -c %a " + file:                                "440",
			})
		}
		want(t, b, map[string]string{"ls -A / | grep text || echo none": "none"})
		check(t, b.Remove(soon(t)))
	}
}

// TestMountsCoverWhatWasThere: what is made after a mount lies in it, although
// the helper has worked in the directory that it covers just before.
func TestMountsCoverWhatWasThere(t *testing.T) {
	spec := newWorld(t).spec()
	link := func(target string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Link, Target: target, Source: "x"}
	}
	scratch := func(target string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Scratch, Target: target, Access: sandbox.ReadWrite}
	}
	spec.Mounts = append(spec.Mounts, link("/data/a/before"), scratch("/data"), link("/data/a/after"),
		link("/deep/b/before"), scratch("/deep/b"), link("/deep/b/after"))
	for _, shared := range []int{0, len(spec.Mounts) - 2, len(spec.Mounts)} {
		spec.Shared = shared
		b := open(t, spec)
		want(t, b, map[string]string{"find /data /deep | sort": "/data\n/data/a\n/data/a/after\n/deep\n/deep/b\n/deep/b/after"})
		check(t, b.Remove(soon(t)))
	}
	for _, shared := range []int{-1, len(spec.Mounts) + 1} {
		spec.Shared = shared
		var refused *SpecError
		if _, err := engine(t).Prepare(soon(t), spec); !errors.As(err, &refused) {
			t.Errorf("%d shared mounts: %v", shared, err)
		}
	}
}
