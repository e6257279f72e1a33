package native

import (
	"bytes"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
)

// A large text in several places is written once; one that is covered
// meanwhile, small or of another mode is written again.
func TestLargeTextsAreWrittenOnce(t *testing.T) {
	large := bytes.Repeat([]byte("certificate\n"), worthSharing/8)
	writable := func(target string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Scratch, Target: target, Access: sandbox.ReadWrite}
	}
	text := func(target string, content []byte) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Text, Target: target, Content: content}
	}
	private := text("/b/private", large)
	private.Mode = 0o400
	written := func(mounts ...sandbox.Mount) (n int) {
		for _, op := range mountOps(sandbox.Spec{Mounts: mounts}, machine{}) {
			if op.Code == child.Text {
				n++
			}
		}
		return n
	}
	for _, c := range []struct {
		name   string
		mounts []sandbox.Mount
		want   int
	}{
		{"two places", []sandbox.Mount{writable("/a"), writable("/b"), text("/a/x", large), text("/b/y", large)}, 1},
		{"two contents", []sandbox.Mount{writable("/a"), text("/a/x", large), text("/a/y", large[1:])}, 2},
		{"small", []sandbox.Mount{writable("/a"), text("/a/x", large[:9]), text("/a/y", large[:9])}, 2},
		{"another mode", []sandbox.Mount{writable("/a"), writable("/b"), text("/a/x", large), private}, 2},
		{"covered meanwhile", []sandbox.Mount{writable("/a"), writable("/b"), text("/a/x", large), writable("/a"), text("/b/y", large)}, 2},
	} {
		if got := written(c.mounts...); got != c.want {
			t.Errorf("%s: written %d times, want %d", c.name, got, c.want)
		}
	}
}
