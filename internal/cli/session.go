package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newSession(p Process) *cobra.Command {
	return group("session", "list, show and stop sessions",
		newSessionList(p), newSessionShow(p), newSessionStop(p), newSessionAttach(p), newSessionExec(p), newSessionLogs(p), newSessionDiff(p), newSessionPorts(p))
}

func newSessionList(p Process) *cobra.Command {
	var past bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list the sessions that live, or those that ended",
		Long: `List the sessions that live, or with --past those that ended. Where another
command wants an id, the beginning of one will do, four characters at least, if
no other session begins so. A word that can be no id is wrong usage (exit code 2),
as an empty one is.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			sessions, err := h.client().Sessions(cmd.Context(), past)
			if errors.Is(err, client.ErrNotRunning) {
				sessions, err = h.sessionsOffline(cmd.Context(), past)
			}
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, sessions)
			}
			pen := newPen(p)
			if len(sessions) == 0 {
				pen.printf("no sessions\n")
				return nil
			}
			printSessions(pen, sessions)
			return nil
		},
	}
	cmd.Flags().BoolVar(&past, "past", false, "those that ended, newest first")
	addJSON(cmd)
	return cmd
}

// sessionsOffline answers while no node runs: then no session lives, and the
// past ones are still recorded.
func (h here) sessionsOffline(ctx context.Context, past bool) ([]api.Session, error) {
	if !past || supported() != nil {
		return []api.Session{}, nil
	}
	return node.NewOffline(h.paths).Sessions(ctx)
}

func printSessions(pen pen, sessions []api.Session) {
	lines := make([][]string, 0, len(sessions))
	for _, s := range sessions {
		what := s.Tool
		if what == "" {
			what = strings.Join(s.Command, " ")
		}
		lines = append(lines, []string{
			s.ID, sessionState(s), engineOf(s), s.User, ago(s.Since, time.Now()),
			fmt.Sprintf("%.0f ms", startOf(s)), fmt.Sprintf("%d/%d", s.Allowed, s.Denied), s.Repository, what,
		})
	}
	pen.rows([]string{"ID", "STATE", "ENGINE", "USER", "SINCE", "START", "ALLOWED/DENIED", "REPOSITORY", "COMMAND"}, lines)
}

func sessionState(s api.Session) string {
	if s.ExitCode != nil {
		return s.State + " (" + strconv.Itoa(*s.ExitCode) + ")"
	}
	return s.State
}

// engineOf says wherever a session is listed that it is not sandboxed.
func engineOf(s api.Session) string {
	if !s.Sandboxed {
		return "not sandboxed"
	}
	return s.Engine
}

// startOf is how long the start took. A wait for a slot is no part of it.
func startOf(s api.Session) (ms float64) {
	for _, st := range s.Stages {
		if st.Name != api.StageQueue {
			ms += st.Milliseconds
		}
	}
	return ms
}

func newSessionShow(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "show one session: what was enforced, how it started, what it reached",
		Long: `Show one session, live or past: what was enforced, how it started, and its last
thousand requests. Of each session the newest 20,000 requests are kept; the
numbers of those allowed and denied count all. A request that was allowed and
came to nothing says why. A tunnel counts as a request, CONNECT, and so does each
one that is read in it.`,
		Args: withSessionID(exactly("a session id")),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			s, err := h.client().Session(cmd.Context(), args[0])
			if errors.Is(err, client.ErrNotRunning) {
				s, err = node.NewOffline(h.paths).Session(cmd.Context(), args[0])
			}
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, s)
			}
			printSession(newPen(p), s)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func printSession(pen pen, s api.Session) {
	line := func(name, value string) {
		if value != "" {
			pen.printf("%s %s\n", pad(name+":", 12), visible(value))
		}
	}
	line("session", s.ID)
	line("state", sessionState(s))
	line("reason", s.Reason)
	line("engine", engineOf(s))
	line("user", s.User)
	line("repository", s.Repository)
	line("tool", s.Tool)
	line("command", strings.Join(s.Command, " "))
	line("since", s.Since.Local().Format(time.DateTime))
	if !s.Ended.IsZero() {
		line("ended", s.Ended.Local().Format(time.DateTime))
	}
	if s.RecordedBytes > 0 {
		line("recorded", fmt.Sprintf("%d bytes: `mojoup-node session logs --terminal %s` shows them", s.RecordedBytes, s.ID))
	}
	for _, n := range s.Notices {
		line("notice", n)
	}
	pen.section("COMMITS that change what is protected", len(s.Commits))
	for _, c := range s.Commits {
		pen.printf("  %s %s %s\n", pen.cell(c.ID), pen.cell(c.Reference), pen.cell(strings.Join(c.Paths, " ")))
	}
	pen.section("REFERENCES that lead elsewhere", len(s.References))
	for _, r := range s.References {
		is := "deleted"
		if r.Is != "" {
			is = "rewritten to " + r.Is
		}
		pen.printf("  %s was %s, %s\n", pen.cell(r.Name), pen.cell(r.Was), pen.cell(is))
	}
	pen.section("START", len(s.Stages))
	for _, st := range s.Stages {
		pen.printf("  %s %.1f ms\n", pad(st.Name, 12), st.Milliseconds)
	}
	pen.section("ENFORCED", len(s.Enforced))
	for _, f := range s.Enforced {
		pen.printf("  %s %s %s\n", pad(f.Strength, 9), pad(f.Name, 18), pen.cell(f.Detail))
	}
	pen.section("REFUSED CALLS", len(s.Refused))
	for _, r := range s.Refused {
		pen.printf("  %s %s %s tried to %s (%s): %s\n", r.First.Local().Format(time.TimeOnly), pad(fmt.Sprintf("%d×", r.Count), 6), pen.cell(cmp.Or(r.Program, "some program")), pen.cell(r.Tried), r.Call, r.Answer)
	}
	pen.section(fmt.Sprintf("REQUESTS (%d allowed, %d denied)", s.Allowed, s.Denied), s.Allowed+s.Denied)
	for _, v := range s.Verdicts {
		pen.printf("  %s\n", pen.outcomeLine(v))
	}
}

// section begins a part of a page, where it has any lines.
func (p pen) section(title string, lines int) {
	if lines > 0 {
		p.printf("\n%s\n", title)
	}
}

func (p pen) outcomeLine(v api.Outcome) string {
	verdict := "denied "
	if v.Allowed {
		verdict = "allowed"
	}
	target := v.Host + ":" + strconv.Itoa(v.Port)
	if v.Method != "" {
		target = v.Method + " " + target + v.Path
	}
	why := v.Reason
	if v.Rule != "" {
		why += " (" + v.Rule + ", " + v.Layer + ")"
	}
	if v.Failure != "" {
		why += "; but " + v.Failure
	}
	return fmt.Sprintf("%s %s %s %s: %s", v.Time.Local().Format(time.TimeOnly), verdict, v.ID, p.cell(target), p.cell(why))
}

func newSessionStop(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "stop ID…",
		Short: "end sessions: SIGTERM first, everything after five seconds",
		Long: `End sessions: SIGTERM first, everything after five seconds. It asks for the end and
does not wait for it; "mojoup-node session logs -f ID" returns when it has come.
Where one of several cannot be ended the others are, and the exit code is not 0.
One that has ended already is as it should be.`,
		Args: atLeast("a session id"),
		RunE: func(cmd *cobra.Command, args []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			return stopAll(cmd.Context(), h.client(), args)
		},
	}
}

// stopAll asks for the end of each session, also of those that are named after
// one that cannot be ended, and says at the end which those were.
func stopAll(ctx context.Context, c *client.Client, ids []string) error {
	var first *fault.Fault
	for _, id := range ids {
		err := checkSessionID(id)
		if err == nil {
			err = c.Stop(ctx, id)
		}
		if errors.Is(err, client.ErrNotRunning) {
			return noNode(err) // of none of them
		}
		switch f := fault.As(err); {
		case f == nil:
		case first == nil:
			first = f
		default:
			first = first.And(f)
		}
	}
	if first == nil {
		return nil
	}
	return first
}
