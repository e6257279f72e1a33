package cli

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newStatus(p Process) *cobra.Command {
	var watch bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "show the node, its verdict and its sessions",
		Long: `Show whether a node runs, whether agents run in a sandbox here, and the sessions
that live. A node that does not run is an answer, not an error: exit code 0.
A node that holds its socket and does not answer is one: exit code 3.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			if watch {
				return watchStatus(cmd.Context(), p, h, wantsJSON(cmd))
			}
			s, err := askStatus(cmd.Context(), h)
			if err != nil {
				return err
			}
			return showStatus(p, s, wantsJSON(cmd))
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show it anew every second until interrupted")
	addJSON(cmd)
	return cmd
}

// askStatus asks the node. Where none runs the answer is made here, with the
// verdict of checks done now.
func askStatus(ctx context.Context, h here) (api.Status, error) {
	s, err := h.client().Status(ctx)
	refused := ""
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeNotServed {
		refused = p.Sentence // of a system node that was asked by name: for this person none runs
	} else if !errors.Is(err, client.ErrNotRunning) {
		return s, err
	} else {
		refused = h.client().Refused(ctx)
	}
	report := h.examine(ctx, capability.Engine(h.settings.String(config.SandboxEngine)), false)
	return api.Status{
		Node:     api.Node{Socket: h.paths.Socket(), Log: h.lastLog(), Refused: refused},
		Verdict:  node.ShowVerdict(report.Verdict, h.settings.Bool(config.RolesSandbox)),
		Sessions: []api.Session{}, Queue: []api.Waiting{}, Repaired: []string{}, Leftovers: []string{},
	}, nil
}

func showStatus(p Process, s api.Status, asJSON bool) error {
	if asJSON {
		return printJSON(p.Stdout, s)
	}
	pen := newPen(p)
	if s.Node.System {
		pen.printf("node: running for several people (pid %d, version %s, for %s)\n", s.Node.PID, visible(s.Node.Version), ago(s.Node.Since, time.Now()))
	} else if s.Node.Running {
		pen.printf("node: running (pid %d, version %s, for %s)\n", s.Node.PID, visible(s.Node.Version), ago(s.Node.Since, time.Now()))
	} else {
		pen.printf("node: not running (start it with `mojoup-node serve`; `mojoup-node run` starts one by itself)\n")
	}
	pen.printf("socket: %s\n", visible(s.Node.Socket))
	if s.Node.Page != "" {
		pen.printf("page: %s\n", visible(s.Node.Page))
	} else if s.Node.NoPage != "" {
		pen.printf("page: none: %s\n", visible(s.Node.NoPage))
	}
	if s.Node.Refused != "" {
		pen.printf("system node: %s\n", visible(s.Node.Refused))
	}
	if s.Node.Log != "" {
		pen.printf("log: %s\n", visible(s.Node.Log))
	}
	pen.printf("engine: %s\n", engineWords(s.Verdict))
	pen.printf("verdict: %s\n", verdictWords(s.Verdict))
	for _, r := range s.Repaired {
		pen.printf("repaired at start: %s\n", visible(r))
	}
	for _, l := range s.Leftovers {
		pen.printf("not undone yet, tried again every minute: %s\n", visible(l))
	}
	for _, u := range s.Unheard {
		pen.printf("no answer about %s\n", visible(u))
	}
	pen.printf("sessions: %d\n", len(s.Sessions))
	if len(s.Sessions) > 0 {
		pen.printf("\n")
		printSessions(pen, s.Sessions)
	}
	printQueue(pen, s.Queue)
	return nil
}

// printQueue shows who waits for a slot, where anybody does.
func printQueue(pen pen, queue []api.Waiting) {
	if len(queue) == 0 {
		return
	}
	pen.printf("\nwaiting: %d\n\n", len(queue))
	lines := make([][]string, 0, len(queue))
	for _, w := range queue {
		estimate := "not known"
		if w.Estimate > 0 {
			estimate = "about " + (time.Duration(w.Estimate) * time.Second).String()
		}
		lines = append(lines, []string{strconv.Itoa(w.Place), w.ID, w.User, ago(w.Since, time.Now()), estimate, w.Reason})
	}
	pen.rows([]string{"PLACE", "ID", "USER", "SINCE", "STARTS IN", "REASON"}, lines)
}

func engineWords(v api.Verdict) string {
	if v.Chosen != "" && v.Chosen != v.Engine {
		return v.Engine + " (takes " + v.Chosen + ")"
	}
	return v.Engine
}

func verdictWords(v api.Verdict) string {
	var b strings.Builder
	b.WriteString(visible(v.Sentence))
	if v.Reason != "" {
		b.WriteString(": " + visible(v.Reason))
	}
	if v.Note != "" {
		b.WriteString(" (" + visible(v.Note) + ")")
	}
	return b.String()
}

// watchStatus shows the status anew every second: on a terminal in its place,
// elsewhere one after the other, as JSON one document a line.
func watchStatus(ctx context.Context, p Process, h here, asJSON bool) error {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		s, err := askStatus(ctx, h)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		switch {
		case asJSON:
			err = json.NewEncoder(p.Stdout).Encode(s)
		case isTerminal(p.Stdout):
			newPen(p).printf("\x1b[H\x1b[2J")
			err = showStatus(p, s, false)
		default:
			err = showStatus(p, s, false)
		}
		if err == nil {
			err = written(p)
		}
		if err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}
