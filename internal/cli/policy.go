package cli

import (
	"cmp"
	"context"
	"errors"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/effective"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/registries"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

func newPolicy(p Process) *cobra.Command {
	return group("policy", "check, explain, show and approve policies",
		newPolicyCheck(p), newPolicyExplain(p), newPolicyShow(p), newPolicyApprove(p), newPolicySchema(p))
}

// policyOptions say which layers a question is about.
type policyOptions struct{ repo, file, tool string }

func (o *policyOptions) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.repo, "repo", "", "the repository, where it is not the one around the current directory")
	cmd.Flags().StringVar(&o.file, "policy", "", "a policy `file` of your own, as one more layer")
	cmd.Flags().StringVar(&o.tool, "tool", "", "with the hosts of this agent tool, and of the keys for it in your environment")
}

// compose is the policy that a session asked for in the same way would have.
func (o policyOptions) compose(ctx context.Context, p Process) (composed, error) {
	r, err := repositoryOf(p, o.repo)
	if err != nil {
		return composed{}, err
	}
	h, err := look(p)
	if err != nil {
		return composed{}, err
	}
	rules, err := toolRules(p, h.paths, o.tool)
	if err != nil {
		return composed{}, err
	}
	in := effective.Input{Top: r.Top, Tool: rules, Private: h.private(ctx), Find: finder(p, r.Top)}
	if o.file != "" {
		source, err := readNamed(o.file)
		if err != nil {
			return composed{}, err
		}
		in.Given = &effective.Text{Name: o.file, Source: source}
	}
	layers, err := effective.Layers(ctx, in)
	if err != nil {
		return composed{}, err
	}
	e, err := effective.Compile(ctx, layers, in)
	if err != nil {
		return composed{}, err
	}
	return composed{Effective: e, here: h, repository: r, layers: layers, in: in}, nil
}

// composed is a policy with what it was made of.
type composed struct {
	*policy.Effective
	here       here
	repository repo.Repository
	layers     []policy.Layer
	in         effective.Input
}

// What [composed.approval] answers.
const (
	approvalNotNeeded = "not needed"
	approvalGiven     = "given"
	approvalMissing   = "missing"
)

// approval says how it stands with the person's yes to what the repository asks
// for: without it no session starts there, whatever its rules allow.
func (c composed) approval(ctx context.Context, p Process) (string, error) {
	own, err := effective.Own(ctx, c.layers, c.in)
	if err != nil {
		return "", err
	}
	if len(effective.Asks(own)) == 0 || c.here.settings.String(config.PolicyTrust) == "always" {
		return approvalNotNeeded, nil
	}
	if outside(p) != nil {
		return "", nil // nobody can be asked in here
	}
	req := api.ApprovalRequest{Directory: c.repository.Top, Repository: c.repository.Top, Env: plan.CallerEnv(p.Environ())}
	a, err := c.here.client().Approval(ctx, req)
	if errors.Is(err, client.ErrNotRunning) {
		a.Approved, err = node.NewOffline(c.here.paths).Approved(ctx, p.UID, c.repository, own)
	}
	if err != nil || !a.Approved {
		return approvalMissing, err
	}
	return approvalGiven, nil
}

// approvalLine is [composed.approval] for people.
func approvalLine(state string) string {
	switch state {
	case approvalGiven:
		return "approval: given, so this holds now\n"
	case approvalMissing:
		return "approval: missing, so no session starts in this repository yet; this is what holds after `mojoup-node policy approve`\n"
	}
	return ""
}

func repositoryOf(p Process, given string) (repo.Repository, error) {
	dir, named, err := whereabouts(p, given)
	if err != nil {
		return repo.Repository{}, err
	}
	return repo.Look(cmp.Or(named, dir))
}

// finder asks the package clients of this machine, as the person who asks.
func finder(p Process, top string) func(context.Context, string) (registries.Found, error) {
	env := registries.Env{Home: p.Getenv("HOME"), Vars: p.Environ(), Avoid: []string{top}, Cache: &registries.Cache{}}
	return func(ctx context.Context, name string) (registries.Found, error) {
		return registries.Find(ctx, name, env)
	}
}

func inBrackets(hint string) string {
	if hint == "" {
		return ""
	}
	return " (" + visible(hint) + ")"
}

func newPolicyShow(p Process) *cobra.Command {
	var o policyOptions
	var whole bool
	cmd := &cobra.Command{
		Use:   "show --effective",
		Short: "show what all layers together mean, each line with its source",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !whole {
				return fault.Usage("policy show needs --effective").WithHint("the document itself is .mojoup/policy.json")
			}
			e, err := o.compose(cmd.Context(), p)
			if err != nil {
				return err
			}
			approval, err := e.approval(cmd.Context(), p)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, shownPolicy{e.Sandbox, orEmpty(e.Show()), orEmpty(e.Notes), orEmpty(effective.Asks(e.Effective)), e.Digest(), approval})
			}
			printEffective(newPen(p), e.Effective)
			newPen(p).printf("%s", approvalLine(approval))
			return nil
		},
	}
	cmd.Flags().BoolVar(&whole, "effective", false, "all layers, presets expanded")
	o.flags(cmd)
	addJSON(cmd)
	return cmd
}

// shownPolicy is the answer of policy show.
type shownPolicy struct {
	Sandbox  policy.Sandbox `json:"sandbox"`
	Lines    []policy.Line  `json:"lines"`
	Notes    []policy.Note  `json:"notes"`
	Asks     []policy.Ask   `json:"asks"`
	Digest   string         `json:"digest"`
	Approval string         `json:"approval,omitempty"`
}

func orEmpty[T any](s []T) []T {
	if s == nil {
		return []T{}
	}
	return s
}

func printEffective(pen pen, e *policy.Effective) {
	lines := make([][]string, 0, len(e.Show()))
	for _, l := range e.Show() {
		lines = append(lines, []string{l.Key, l.Rule, l.Text, l.Source.Layer + " " + l.Source.String()})
	}
	pen.rows([]string{"KEY", "RULE", "MEANS", "SOURCE"}, lines)
	if len(lines) == 0 {
		pen.printf("no layer says anything: nothing is reachable\n")
	}
	for _, n := range e.Notes {
		pen.printf("note: %s\n", visible(n.String()))
	}
}

func newPolicySchema(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "schema",
		Short: "print the JSON Schema of a policy, for editors",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			_, _ = p.Stdout.Write(policy.Schema()) // the writer remembers
			return nil
		},
	}
}
