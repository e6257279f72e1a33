package cli

import (
	"context"
	"sync"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newSessionAttach(p Process) *cobra.Command {
	var o viewOptions
	var readOnly bool
	cmd := &cobra.Command{
		Use:   "attach ID",
		Short: "show a running session, and type in it",
		Long: `Show a session that runs: first the newest of what it wrote, then what comes.
Several may look at one session and type in it; its terminal has the size of the
one who did something last. Ctrl-] and then d leaves it running. A session
without a terminal can only be looked at, and Ctrl-C leaves it.

Who takes the output too slowly has some of it skipped, which is said. The exit
code is the session's own where it ends meanwhile, and 0 for who leaves.`,
		Example: "  mojoup-node session attach 5f1c2e\n  mojoup-node session attach --read-only 5f1c2e",
		Args:    withSessionID(exactly("a session id")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return attach(cmd.Context(), p, o, args[0], readOnly)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().BoolVar(&readOnly, "read-only", false, "type nothing")
	return cmd
}

func attach(ctx context.Context, p Process, o viewOptions, id string, readOnly bool) error {
	if err := outside(p); err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	req := api.AttachRequest{Terminal: terminalFor(p, false, false), ReadOnly: readOnly}
	v, err := o.open(p, req.Terminal != nil, false)
	if err != nil {
		return err
	}
	defer v.close()
	streams := v.streams()
	streams.KeyboardOnly, streams.Signals = true, nil
	over := make(chan struct{})
	var signals sync.WaitGroup
	signals.Go(func() {
		select {
		case <-v.screen.signals: // whatever it is: the session is not ours to end
			v.leaves()
		case <-over:
		}
	})
	ended, err := h.client().Attach(context.WithoutCancel(ctx), id, req, streams)
	close(over)
	signals.Wait()
	v.close()
	return v.finish(ended, noNode(err), id)
}
