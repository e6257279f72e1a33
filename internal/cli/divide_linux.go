package cli

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/mojoup/mojoup-node/internal/unit"
)

// divide asks for control groups of the node's own before the engines look for
// some. Without them a node serves all the same, and its sessions say what
// holds their limits.
func divide(ctx context.Context, p Process, log *slog.Logger) {
	name, err := unit.Divide(ctx, unit.Person{
		Name: p.Getenv("USER"), UID: p.UID, Runtime: fmt.Sprintf("/run/user/%d", p.UID),
	})
	switch {
	case err != nil:
		log.Warn("no control groups of this node's own: memory and processor time of sessions are only watched", "cause", err.Error())
	case name != "":
		log.Info("the service manager gave control groups", "unit", name)
	}
}
