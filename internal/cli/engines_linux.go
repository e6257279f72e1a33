package cli

import (
	"log/slog"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
)

// engines are those of this build, by the names that plans and journals use.
func engines(_ here, log *slog.Logger) (map[string]sandbox.Engine, error) {
	n, err := native.New(native.Options{Log: log})
	if err != nil {
		return nil, fault.Unknown("preparing the native engine: %w", err)
	}
	o := process.New(process.Options{Log: log})
	return map[string]sandbox.Engine{n.Name(): n, o.Name(): o}, nil
}
