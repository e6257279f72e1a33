// Package process promises the sandbox contract without a sandbox: its
// commands are ordinary processes of the host, and everything it reports says
// so.
//
// It exists so that a session that may run unconfined takes the same path as
// every other one. It makes no claim: mounts, protections, limits and checks
// of the Spec are validated where they are needed and otherwise not looked at,
// there is no proxy ([sandbox.Sandbox].Listener is nil), and
// [sandbox.Sandbox].Check answers "absent" in every line.
//
// Remove ends what descends from its commands as far as an ordinary process
// can know it: every process in a command's session, in any session of a
// descendant, and every child of those. Not found is a process that called
// setsid and whose parent ended before Remove looked: nothing ties it to the
// command any more. Nor can a process be ended that has become another user's
// (sudo, su) while the node is not root; Remove then says so. And a node that
// is killed leaves its ordinary processes running, as a shell would: there is
// nothing to write into a journal before they start. They are found by
// [Variable] in their environment.
package process

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Variable is for the caller to put into a Spec's environment, with the ID: by it
// the engine finds what outlives the session (its Marked).
const Variable = "MOJOUP_UNSANDBOXED"

// Options of an Engine. The zero value is complete.
type Options struct {
	// Log receives what Remove had to end. Nil discards it.
	Log *slog.Logger
}

// Engine starts ordinary processes.
type Engine struct{ log *slog.Logger }

// New returns the engine; it does nothing by itself.
func New(o Options) *Engine {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Engine{log: o.Log}
}

// ErrNeedsLinux is returned by Prepare on other systems.
var ErrNeedsLinux = errors.New("sessions need Linux")

// An IdentityError says that this node cannot start processes as somebody.
type IdentityError struct{ UID, Node int }

func (e *IdentityError) Error() string {
	return fmt.Sprintf("a node of user %d cannot start processes as user %d", e.Node, e.UID)
}

// Hint is the next step for people.
func (e *IdentityError) Hint() string {
	return "run the node as that user, or as root to serve several users"
}

// Name is "process".
func (*Engine) Name() string { return "process" }

// Undo is empty: nothing outlives the processes, and they have no name before
// they start.
func (*Engine) Undo(sandbox.Spec) []sandbox.Undo { return nil }

// Sweep knows no act, since Undo names none, and refuses every one: it is
// somebody else's.
func (*Engine) Sweep(_ context.Context, u sandbox.Undo) (string, error) {
	return "", fmt.Errorf("engine process: unknown undo kind %q", u.Kind)
}

// Prepare validates what an ordinary process takes from spec (ID, identity,
// environment) and makes nothing.
func (e *Engine) Prepare(ctx context.Context, spec sandbox.Spec) (sandbox.Sandbox, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return prepare(e.log, spec)
}

// validate refuses what cannot be obeyed; euid is the node's own.
func validate(spec sandbox.Spec, euid int) error {
	id := spec.Identity
	switch {
	case !validID(spec.ID):
		return fmt.Errorf("sandbox id %q: want 1 to 32 characters of a-z, 0-9 and '-'", spec.ID)
	case id.UID < 0 || id.GID < 0:
		return fmt.Errorf("identity %d:%d: negative", id.UID, id.GID)
	case euid != 0 && id.UID != euid:
		return &IdentityError{UID: id.UID, Node: euid}
	}
	for i, kv := range spec.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return fmt.Errorf("environment entry %d: want KEY=VALUE", i) // not shown: it may be a secret
		}
	}
	return nil
}

// validID asks the same of an ID as every engine: it becomes a file name.
func validID(id string) bool {
	for _, c := range []byte(id) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return len(id) >= 1 && len(id) <= 32
}

// facts is what Check answers: the absence of everything, line by line, so
// that no listing has to infer it.
func facts() sandbox.Enforced {
	var all sandbox.Enforced
	for _, name := range []string{
		"sandbox", "filesystem", "protected paths", "network", "system calls", "refused calls", "processes",
		"memory limit", "processor limit", "process limit", "open files limit", "disk limit",
	} {
		all = append(all, sandbox.Fact{
			Name: name, Strength: sandbox.Absent,
			Detail: "not sandboxed: an ordinary process of the user",
		})
	}
	return all
}

// merge joins two environments; of a name given twice the last one stays.
func merge(base, extra []string) []string {
	last := map[string]int{}
	all := append(append([]string{}, base...), extra...)
	name := func(kv string) string { k, _, _ := strings.Cut(kv, "="); return k }
	for i, kv := range all {
		last[name(kv)] = i
	}
	merged := []string{} // never nil: to os/exec that means the node's own
	for i, kv := range all {
		if last[name(kv)] == i {
			merged = append(merged, kv)
		}
	}
	return merged
}
