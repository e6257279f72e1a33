package native

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine {
		e, err := New(Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	}, sandboxtest.Options{Confines: true})
}
