package cli

import (
	"errors"

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
own sessions are not touched.

Exit code 1 where something could not be undone.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			done, left, err := cleanup(cmd, p, h)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				err = printJSON(p.Stdout, map[string]any{"did": done, "left": left})
			} else {
				printCleanup(newPen(p), done, left)
			}
			if err == nil && len(left) > 0 {
				return exitCode(fault.ExitNegative)
			}
			return err
		},
	}
	addJSON(cmd)
	return cmd
}

func printCleanup(pen pen, done, left []string) {
	for _, line := range append(done, left...) {
		pen.printf("%s\n", visible(line))
	}
	if len(done)+len(left) == 0 {
		pen.printf("nothing to undo\n")
	}
}

func cleanup(cmd *cobra.Command, p Process, h here) (done, left []string, err error) {
	engines, err := engines(h, nil)
	if err != nil {
		return nil, nil, err
	}
	done, left, err = node.CleanUp(cmd.Context(), h.paths, engines)
	if errors.Is(err, node.ErrRunning) {
		talk{w: p.Stderr}.line("a node is running: what a dead one left it undid at its start")
		return []string{}, []string{}, nil
	}
	if err != nil {
		return nil, nil, fault.As(err)
	}
	return done, left, nil
}
