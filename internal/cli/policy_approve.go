package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

func newPolicyApprove(p Process) *cobra.Command {
	var o policyOptions
	var yes bool
	cmd := &cobra.Command{
		Use:   "approve",
		Short: "trust what this repository's policy asks for, as it is now",
		Long: `Show what the policy of this repository asks for beyond what is free (a tool's
own hosts and read-only package registries), ask, and approve exactly that, for
you and this working tree. When the policy changes, or a preset that it uses, it
is asked again. Without a terminal --yes is the answer.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			req := api.ApprovalRequest{Env: plan.CallerEnv(p.Environ())}
			if req.Directory, req.Repository, err = whereabouts(p, o.repo); err != nil {
				return err
			}
			return h.withNode(cmd.Context(), p, func() error { return h.approve(cmd.Context(), p, req, yes) })
		},
	}
	cmd.Flags().StringVar(&o.repo, "repo", "", "the repository, where it is not the one around the current directory")
	cmd.Flags().BoolVar(&yes, "yes", false, "approve without asking")
	return cmd
}

// approve shows what a repository asks for and approves exactly that, where the
// person says yes or has said so beforehand. Without a terminal nobody can be
// asked: then what is asked for is shown and nothing is approved.
func (h here) approve(ctx context.Context, p Process, req api.ApprovalRequest, yes bool) error {
	a, err := h.client().Approval(ctx, req)
	if err != nil {
		return err
	}
	say := talk{w: p.Stderr}
	if len(a.Asks) == 0 {
		say.line("the policy of %s asks for nothing that needs a yes", a.Repository)
		return nil
	}
	fmt.Fprintf(p.Stderr, "The policy of %s asks for:\n", visible(a.Repository))
	for _, line := range a.Asks {
		fmt.Fprintf(p.Stderr, "  - %s\n", visible(line)) // whole: it is what the person says yes to
	}
	switch {
	case a.Approved:
		say.line("approved already")
		return nil
	case yes:
	case !isTerminal(p.Stdin) || !isTerminal(p.Stderr):
		return fault.Negative("not approved: there is nobody to ask").WithHint("if you agree: mojoup-node policy approve --yes --repo %s", fault.Quoted(a.Repository))
	default:
		if !agreed(ctx, p, "Allow this for this repository?") {
			return fault.Negative("not approved").WithHint("edit .mojoup/policy.json, or approve later with `mojoup-node policy approve`")
		}
	}
	req.Digest = a.Digest
	if _, err = h.client().Approval(ctx, req); err != nil {
		return err
	}
	say.line("approved, for %s and exactly this policy", a.Repository)
	if h.served(ctx).by != nil {
		say.line("the system node knows it: a node of your own asks for itself")
	}
	return nil
}
