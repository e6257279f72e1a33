package cli

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newSessionLogs(p Process) *cobra.Command {
	var follow bool
	var screen string
	cmd := &cobra.Command{
		Use:   "logs ID",
		Short: "show what happened to a session, and each of its requests",
		Long: `Show the log of a session, live or past, in the order of time: its states, the
steps of its start, what its client was told (the warnings at its end too), who
attached, further commands, and the verdict on each request. What the session's
command wrote is not in it: people type passwords.

With --terminal show instead what the terminal of a session showed that was
started with ` + "`run --record-terminal`" + `: as text in which nothing can draw, or
with --terminal=cast as it was, in the format asciicast 2, which other programs
replay.

With --json there is one document, a list; with --follow as well, one document a
line.`,
		Args: withSessionID(exactly("a session id")),
		Example: `  mojoup-node session logs -f 5f1c2e
  mojoup-node session logs --terminal=cast 5f1c2e >session.cast && asciinema play session.cast`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if screen != "" {
				return terminalLogs(cmd.Context(), p, args[0], screen, follow, wantsJSON(cmd))
			}
			return logs(cmd.Context(), p, args[0], follow, wantsJSON(cmd))
		},
	}
	cmd.Flags().BoolVarP(&follow, "follow", "f", false, "show what is added until the session has ended")
	cmd.Flags().StringVar(&screen, "terminal", "", "what the terminal showed, as `text` or cast")
	cmd.Flags().Lookup("terminal").NoOptDefVal = "text"
	addJSON(cmd)
	return cmd
}

func logs(ctx context.Context, p Process, id string, follow, asJSON bool) error {
	h, err := look(p)
	if err != nil {
		return err
	}
	all := []api.Event{}
	pen := newPen(p)
	enc := json.NewEncoder(p.Stdout)
	enc.SetEscapeHTML(false)
	each := func(e api.Event) error {
		switch {
		case asJSON && follow:
			_ = enc.Encode(e) // the writer remembers
		case asJSON:
			all = append(all, e)
		default:
			pen.printf("%s %s %s\n", e.Time.Local().Format(time.TimeOnly), pad(e.Kind, 7), visible(e.Text))
		}
		return written(p)
	}
	err = h.client().Events(ctx, id, follow, each)
	if errors.Is(err, client.ErrNotRunning) && supported() == nil {
		err = node.NewOffline(h.paths).Events(ctx, id, each)
	}
	switch {
	case follow && errors.Is(err, context.Canceled):
		return nil // Ctrl-C is how one stops to look
	case err != nil:
		return fault.As(err)
	case asJSON && !follow:
		return printJSON(p.Stdout, all)
	}
	return nil
}
