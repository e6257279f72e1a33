package fault

import (
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// UnknownSession says that name is no session's id, or too short a beginning of
// one.
func UnknownSession(name string) *api.Problem {
	f := Negative("there is no session %q", name).WithHint("`mojoup-node session list --past` names those that ended")
	if name != "" && len(name) < session.Shortest {
		f = Negative("%q is too short: the beginning of a session's id has %d characters at least", name, session.Shortest).
			WithHint("`mojoup-node session list` names the sessions that live, with --past those that ended")
	}
	return f.WithCode(api.CodeUnknownSession).Problem()
}
