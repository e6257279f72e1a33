package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

func newSignIn(p Process) *cobra.Command {
	return group("signin", "sign-ins of your tools, and how sessions get them", newSignInStatus(p), newSignInRenew(p))
}

// newSignInRenew is the process that a node starts to renew a sign-in. It is
// not for people: their tool renews by itself.
func newSignInRenew(p Process) *cobra.Command {
	return &cobra.Command{
		Use: "renew", Short: "renew the sign-in that stdin names, where that is due", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			// SIGTERM ends what waits for a lock, and nothing that has begun.
			signal.Ignore(os.Interrupt, syscall.SIGHUP)
			err := node.RenewSignIn(cmd.Context(), p.Stdin, p.Stdout)
			if err != nil {
				f := fault.As(err)
				fmt.Fprintf(p.Stdout, "%s\n%s\n", f.Error(), f.Hint)
			}
			return err
		},
	}
}

func newSignInStatus(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "which sign-ins were found, for which account, until when, and in which mode a session gets them",
		Long: `Say for each tool whether you are signed in to it on this machine, where that is
kept (variables that move the tool's directories count), for which account, to which
hosts its token goes, and in which mode a session gets it, which
node.signin.mode.TOOL sets:

  standin  a stand-in is inside; the token takes its place on the way out
  lease    the real access token is inside, and a new one before it expires
  hold     the same, and the tool may ask for a new one: the node answers
  copy     the real access token is inside, as it is at the session's start
  off      nothing is inside

In no mode does a refresh token go inside, and what a session asks of the
service that makes tokens is answered by the node. While a session has a
sign-in, the node renews it ten minutes before it expires, where the tool keeps
it and with the tool's own locks.`,
		Args: noArgs,
		RunE: listing(p, func(c *client.Client, ctx context.Context) (api.SignIns, error) {
			return c.SignIns(ctx, api.SignInsRequest{Env: plan.CallerEnv(p.Environ()), SignIns: signInPlaces(p)})
		}, printSignIns, nil),
	}
	addJSON(cmd)
	return cmd
}

func printSignIns(p Process, all api.SignIns) {
	var rows [][]string
	say := talk{w: p.Stderr}
	for _, s := range all.SignIns {
		row := []string{s.Tool, s.Service, s.Account, s.Kept, "", s.Mode, strings.Join(s.Hosts, ", ")}
		switch {
		case s.State == string(signin.None):
			row[3] = "not signed in"
		case s.State == api.SignInProfile:
			row[3] = "not known: its profile cannot be used"
		case s.State != stateFound:
			row[3] = s.State
		case !s.Expires.IsZero():
			row[4] = s.Expires.Local().Format(time.DateTime)
			if s.Renews {
				row[4] += ", renewed before"
			}
		}
		if s.RealInside {
			row[5] += ": a real token is inside"
		}
		rows = append(rows, row)
	}
	newPen(p).rows([]string{"TOOL", "SERVICE", "ACCOUNT", "KEPT IN", "EXPIRES", "MODE", "GOES TO"}, rows)
	for _, s := range all.SignIns {
		if s.Sentence != "" && s.State != string(signin.None) {
			say.line("%s", s.Sentence)
			if s.Hint != "" {
				say.hint("%s", s.Hint)
			}
		}
	}
}

const stateFound = "found"

// signInPlaces is what the node must know of the caller's variables to find
// their sign-ins. No token is among it.
func signInPlaces(p Process) (out api.SignInPlaces) {
	known := signin.Builtin()
	if paths, err := config.FindPaths(p.Getenv, p.UID); err == nil {
		known = toolDirs(p, paths).SignIns()
	}
	names := signin.PlaceVariables(known)
	for _, kv := range p.Environ() {
		if name, _, ok := strings.Cut(kv, "="); ok && slices.Contains(names, name) {
			out.Variables = append(out.Variables, kv)
		}
	}
	return out
}
