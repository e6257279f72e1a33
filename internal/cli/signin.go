package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

func newSignIn(p Process) *cobra.Command {
	return group("signin", "sign-ins of your tools, and how sessions get them", newSignInStatus(p))
}

func newSignInStatus(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "which sign-ins were found, for which account, until when, and in which mode a session gets them",
		Long: `Say for each tool whether you are signed in to it on this machine, where that is
kept (variables that move the tool's directories count), for which account, and in which mode a
session gets it, which node.signin.mode.TOOL sets:

  standin  a stand-in is inside; the token takes its place on the way out
  lease    the real access token is inside
  hold     as lease in this version
  copy     the real access token is inside, as it is at the session's start
  off      nothing is inside

In no mode does a refresh token go inside, and what a session asks of the
service that makes tokens is answered by the node.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			var all api.SignIns
			err = h.withNode(cmd.Context(), p, func() (err error) {
				all, err = h.client().SignIns(cmd.Context(), api.SignInsRequest{Env: plan.CallerEnv(p.Environ()), SignIns: signInPlaces(p)})
				return err
			})
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, all)
			}
			printSignIns(p, all)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func printSignIns(p Process, all api.SignIns) {
	var rows [][]string
	say := talk{w: p.Stderr}
	for _, s := range all.SignIns {
		row := []string{s.Tool, s.Service, s.Account, s.Kept, "", s.Mode}
		switch {
		case s.State == string(signin.None):
			row[3] = "not signed in"
		case s.State != stateFound:
			row[3] = s.State
		case !s.Expires.IsZero():
			row[4] = s.Expires.Local().Format(time.DateTime)
		}
		if s.RealInside {
			row[5] += ": a real token is inside"
		}
		rows = append(rows, row)
	}
	newPen(p).rows([]string{"TOOL", "SERVICE", "ACCOUNT", "KEPT IN", "EXPIRES", "MODE"}, rows)
	for _, s := range all.SignIns {
		if s.Sentence != "" && s.State != string(signin.None) {
			say.line("%s", s.Sentence)
			if s.Hint != "" {
				say.line("hint: %s", s.Hint)
			}
		}
	}
}

const stateFound = "found"

// signInPlaces is what the node must know of the caller's variables to find
// their sign-ins. No token is among it.
func signInPlaces(p Process) (out api.SignInPlaces) {
	names := signin.PlaceVariables(signin.Builtin())
	for _, kv := range p.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && slices.Contains(names, name) {
			out.Variables = append(out.Variables, kv)
		}
	}
	return out
}
