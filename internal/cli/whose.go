package cli

import (
	"context"

	"github.com/mojoup/mojoup-node/internal/node"
)

// A person may have a node of their own and be served by that of the system,
// which keep secrets, approvals and settings apart: what is asked of one of them
// is easily looked for with the other.

// tellSettings says that the settings that were shown or written are not those
// that count for this person's sessions, where it is so.
func (h here) tellSettings(ctx context.Context, p Process) {
	if h.served(ctx).by != nil {
		talk{w: p.Stderr}.line("note: a system node carries your sessions, by root's settings: those in %s count for a node of your own only", h.paths.Config)
	}
}

// tellSecrets says with which node the secrets are that were asked for, where
// there are two, and where else this person has some.
func (h here) tellSecrets(ctx context.Context, p Process) {
	say := talk{w: p.Stderr}
	if h.served(ctx).by != nil {
		say.line("these are kept with the system node, for you alone")
		if node.KeepsSecrets(h.paths.State) {
			say.line("what you have set with a node of your own is kept apart, and no session here gets it: %s", h.paths.State)
		}
		return
	}
	if at, ok := h.paths.Served(p.UID); ok && node.KeepsSecrets(at.State) {
		say.line("what you have set with the system node is kept apart, and no session of your own node gets it: %s", at.State)
	}
}
