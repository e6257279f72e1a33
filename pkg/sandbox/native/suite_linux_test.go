package native

import (
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/sandboxtest"
)

func TestSuite(t *testing.T) {
	t.Parallel()
	engine(t) // skips where there can be none
	sandboxtest.Test(t, func(t *testing.T) sandbox.Engine { return engine(t) }, sandboxtest.Options{Confines: true})
}
