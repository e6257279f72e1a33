//go:build linux

package native_test

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

// TestSuite is the contract, and every attempt to escape, on the real kernel.
func TestSuite(t *testing.T) {
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine {
		e, err := native.New(native.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return e
	}, sandboxtest.Options{Confines: true})
}
