//go:build !linux

package process

import (
	"errors"
	"os"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func TestNeedsLinux(t *testing.T) {
	spec := sandbox.Spec{ID: "a", Identity: sandbox.Identity{UID: max(os.Geteuid(), 0)}}
	if made, err := New(Options{}).Prepare(t.Context(), spec); !errors.Is(err, ErrNeedsLinux) {
		t.Errorf("got %v, %v", made, err)
	}
}
