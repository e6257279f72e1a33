package cli

import (
	"bytes"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newSessionDiff(p Process) *cobra.Command {
	var stat bool
	cmd := &cobra.Command{
		Use:   "diff ID",
		Short: "show what has changed in the repository since a session began",
		Long: `Compare the work tree as it is now with the commit at which the session began,
committed work and what was uncommitted before included. The difference goes to
stdout; files that git does not track are named on stderr.

A session may have written what git obeys, so git runs in a sandbox in which
everything is read-only and which has no way out.`,
		Args: withSessionID(exactly("a session id")),
		RunE: func(cmd *cobra.Command, args []string) error {
			return diff(cmd.Context(), p, args[0], stat)
		},
	}
	cmd.Flags().BoolVar(&stat, "stat", false, "a line for each file instead")
	return cmd
}

func diff(ctx context.Context, p Process, id string, stat bool) error {
	if err := outside(p); err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	var ended api.Ended
	err = h.withNode(ctx, p, func() (err error) { // one may have to be started for a past session
		ended, err = h.client().Diff(ctx, id, api.DiffRequest{Stat: stat}, client.Streams{Stdout: harmless(p.Stdout), Stderr: harmless(p.Stderr)})
		return err
	})
	switch {
	case err != nil:
		return fault.CannotRun("%w", err)
	case ended.Problem != nil:
		return fault.FromProblem(ended.Problem)
	case ended.Code != 0:
		return exitCode(ended.Code)
	}
	return nil
}

// harmless is w, and where it is a terminal one on which foreign text cannot
// draw: files may hold whatever a session put there.
func harmless(w io.Writer) io.Writer {
	if !isTerminal(w) {
		return w
	}
	return &lineByLine{w: w}
}

// lineByLine shows each line as what it is, see visible.
type lineByLine struct {
	w        io.Writer
	terminal bool // a line ends as terminals have it, with CR LF
	rest     []byte
}

// flush shows what is left without an end.
func (l *lineByLine) flush() error {
	if len(l.rest) == 0 {
		return nil
	}
	_, err := l.Write([]byte("\n"))
	return err
}

func (l *lineByLine) Write(p []byte) (int, error) {
	l.rest = append(l.rest, p...)
	var out bytes.Buffer
	for {
		at := bytes.IndexByte(l.rest, '\n')
		if at < 0 && len(l.rest) < 64<<10 {
			break
		}
		if at < 0 {
			at = len(l.rest) - 1 // a line without end is cut somewhere
		}
		line := bytes.TrimSuffix(l.rest[:at+1], []byte("\n"))
		if l.terminal {
			line = bytes.TrimRight(line, "\r")
		}
		for i, field := range bytes.Split(line, []byte("\t")) {
			if i > 0 {
				out.WriteByte('\t') // as indentation has it
			}
			out.WriteString(visible(string(field)))
		}
		out.WriteByte('\n')
		l.rest = l.rest[at+1:]
	}
	if out.Len() > 0 {
		if _, err := l.w.Write(out.Bytes()); err != nil {
			return 0, err
		}
	}
	return len(p), nil
}
