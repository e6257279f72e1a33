package cli

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/residue"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func newCleanup(p Process) *cobra.Command {
	verify := false
	cmd := &cobra.Command{
		Use:   "cleanup",
		Short: "undo what a dead node left",
		Long: `Undo what a node that died left behind: held paths in repositories, processes,
sessions that were called live. A node does the same at every start; this is for
when none is to start. Where a node runs there is nothing of a dead one, and its
own sessions are not touched. As root what a system node left is undone too, of
everybody and by a process of theirs. Afterwards it looks whether anything is left.

With --verify it only looks, and at more: at every node of yours, wherever its
directories are, and at everything on this machine that bears a node's mark:
processes, control groups, containers and the gateway's sandboxes, held paths and
moved files in repositories, sockets, mounts, what a journal has not done. It lists
what has no living owner. What a living node carries is not listed and not touched.
Root is shown everybody's. What a node wrote down is undone by "cleanup" with that
node's MOJOUP_STATE_DIR.

Exit code 1 where something could not be undone, or is listed; 3 where it could
not be found out.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			if verify {
				return verifyAll(cmd, p, h)
			}
			done, left, err := cleanup(cmd, p, h)
			switch {
			case errors.Is(err, node.ErrRunning) && !wantsJSON(cmd):
				newPen(p).printf("nothing to undo: a node is running, and at its start it undid what a dead one had left\n")
				return nil
			case err != nil && !errors.Is(err, node.ErrRunning):
				return fault.As(err)
			}
			if wantsJSON(cmd) {
				err = printJSON(p.Stdout, map[string]any{"did": orEmpty(done), "left": orEmpty(left)})
			} else {
				printCleanup(newPen(p), done, left)
			}
			if err == nil && len(left) > 0 {
				return exitCode(fault.ExitNegative)
			}
			return err
		},
	}
	cmd.Flags().BoolVar(&verify, "verify", false, "change nothing, and list all that dead nodes left on this machine")
	addJSON(cmd)
	return cmd
}

// verifyAll lists what is left on the machine.
func verifyAll(cmd *cobra.Command, p Process, h here) error {
	engines, err := engines(h, nil)
	if err != nil {
		return err
	}
	r, err := residue.Look(cmd.Context(), residue.Options{Paths: h.paths, Engines: engines})
	if err != nil {
		return fault.Unknown("%w", err)
	}
	return sayLeft(p, r, wantsJSON(cmd))
}

// sayLeft says what a look has found, in words and in the exit code.
func sayLeft(p Process, r residue.Report, asJSON bool) (err error) {
	for _, line := range r.Unknown {
		talk{w: p.Stderr}.line("could not find out: %s", visible(line))
	}
	if asJSON {
		err = printJSON(p.Stdout, r)
	} else {
		printLeft(newPen(p), r)
	}
	switch {
	case err != nil:
		return err
	case len(r.Left) > 0:
		return exitCode(fault.ExitNegative)
	case len(r.Unknown) > 0:
		return exitCode(fault.ExitUnknown)
	}
	return nil
}

func printLeft(pen pen, r residue.Report) {
	for _, t := range r.Left {
		pen.printf("%s\n", visible(t.Says))
	}
	if len(r.Left) == 0 && len(r.Unknown) == 0 {
		pen.printf("nothing is left\n")
	}
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
	if err != nil {
		return nil, nil, err
	}
	if h.paths.System {
		did, rest, err := tidyPeople(cmd.Context(), p, h)
		if err != nil {
			return nil, nil, fault.As(err)
		}
		done, left = append(done, did...), append(left, rest...)
	}
	done = append(done, tidy(cmd.Context(), engines)...)
	more, err := stillThere(cmd.Context(), h, engines, left)
	return done, append(left, more...), err
}

// tidy removes what belongs to no session. What it could not is found by the
// look that follows.
func tidy(ctx context.Context, engines map[string]sandbox.Engine) (did []string) {
	for _, e := range engines {
		if t, ok := e.(sandbox.Tidier); ok {
			lines, _ := t.Tidy(ctx)
			did = append(did, lines...)
		}
	}
	return did
}

// stillThere looks, as --verify does, for what this node has left and what left
// does not say yet.
func stillThere(ctx context.Context, h here, engines map[string]sandbox.Engine, left []string) (more []string, err error) {
	r, err := residue.Look(ctx, residue.Options{Paths: h.paths, Engines: engines, OwnOnly: true})
	if err != nil {
		return nil, fault.Unknown("%w", err)
	}
	for _, t := range r.Left {
		said := func(line string) bool { return strings.HasPrefix(line, "session "+t.Session+":") }
		if t.Session == "" || !slices.ContainsFunc(left, said) {
			more = append(more, t.Says)
		}
	}
	for _, line := range r.Unknown {
		more = append(more, "could not find out: "+line)
	}
	return more, nil
}
