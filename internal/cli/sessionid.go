package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/session"
)

// withSessionID refuses a first word that can be no session's id nor the
// beginning of one, before anybody is asked about it.
func withSessionID(args cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, words []string) error {
		if len(words) == 0 {
			return args(cmd, words)
		}
		return cmp.Or(checkSessionID(words[0]), args(cmd, words))
	}
}

func checkSessionID(id string) error {
	if id == "" {
		return fault.Usage("the session id is empty").
			WithHint("`mojoup-node session list` names the sessions that live, with --past those that ended; " + emptyHint)
	}
	if _, err := session.Parse(id); err != nil {
		return fault.Usage("%w", err).
			WithHint("an id is of small letters and digits, as 5f1c2e; `mojoup-node session list` names the sessions that live, with --past those that ended")
	}
	return nil
}

// atLeast refuses fewer words than are needed.
func atLeast(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return exactly(names...)(cmd, args)
		}
		return nil
	}
}
