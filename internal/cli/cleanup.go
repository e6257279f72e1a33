package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
)

func newCleanup(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "undo what a dead node left",
		Long: `Undo what a node that died left behind: held paths in repositories, processes,
sessions that were called live. A node does the same at every start; this is for
when none is to start. Where a node runs there is nothing of a dead one, and its
own sessions are not touched.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := supported(); err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			done, err := cleanup(cmd, p, h)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, map[string]any{"did": done})
			}
			for _, line := range done {
				newPen(p).printf("%s\n", visible(line))
			}
			if len(done) == 0 {
				newPen(p).printf("nothing to undo\n")
			}
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func cleanup(cmd *cobra.Command, p Process, h here) ([]string, error) {
	engines, err := engines(h, nil)
	if err != nil {
		return nil, err
	}
	done, err := node.CleanUp(cmd.Context(), h.paths, engines)
	if errors.Is(err, node.ErrRunning) {
		fmt.Fprintln(p.Stderr, "mojoup-node: a node is running: what a dead one left it undid at its start")
		return []string{}, nil
	}
	if err != nil {
		return nil, fault.As(err)
	}
	return done, nil
}
