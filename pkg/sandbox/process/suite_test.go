//go:build linux

package process_test

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	sandboxtest.Test(t, func(*testing.T) sandbox.Engine { return process.New(process.Options{}) }, sandboxtest.Options{})
}
