package node

import (
	"context"
	"path/filepath"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/effective"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/registries"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// input is what a policy in r is made of.
func (n *Node) input(home string, r repo.Repository, tool *policy.ToolRules, own *effective.Text) effective.Input {
	env := registries.Env{
		Home: home, Vars: n.environ, Avoid: []string{r.Top, r.CommonDir},
		Cache: &n.registries, CacheDir: filepath.Join(n.o.Paths.State, "registries"),
	}
	return effective.Input{
		Top: r.Top, Given: own, Tool: tool, Private: n.o.Settings.Prefixes(config.NetworkPrivate),
		Find: func(ctx context.Context, name string) (registries.Found, error) {
			return registries.Find(ctx, name, env)
		},
	}
}

// policy is the effective policy of a session in r, where the person has
// approved what the repository asks for. Both come from one reading of the
// repository's file: what was approved is what holds.
func (n *Node) policy(ctx context.Context, home string, uid int, r repo.Repository, tool *policy.ToolRules, own *effective.Text) (*policy.Effective, error) {
	in := n.input(home, r, tool, own)
	layers, err := effective.Layers(ctx, in)
	if err != nil {
		return nil, err
	}
	e, err := effective.Compile(ctx, layers, in)
	if err != nil {
		return nil, err
	}
	return e, n.approved(ctx, uid, r, layers, in)
}

// approval is the key under which a yes to this policy is kept.
func approval(uid int, r repo.Repository, e *policy.Effective) store.Approval {
	return store.Approval{UID: uid, Repository: r.Top + "\x00" + r.CommonDir, Digest: e.Digest()}
}

// approved refuses a repository that asks for what nobody has said yes to.
func (n *Node) approved(ctx context.Context, uid int, r repo.Repository, layers []policy.Layer, in effective.Input) error {
	e, err := effective.Own(ctx, layers, in)
	if err != nil {
		return err
	}
	switch trust := n.o.Settings.String(config.PolicyTrust); {
	case len(effective.Asks(e)) == 0 || trust == "always":
		return nil
	case trust != "ask":
		return fault.CannotRun("node.policy.trust %s is not part of this version yet", trust).
			WithHint("mojoup-node config set node.policy.trust ask")
	}
	ok, err := n.store.Approved(ctx, approval(uid, r, e))
	if err != nil || ok {
		return err
	}
	return fault.CannotRun("the policy of %s asks for what nobody has approved yet", r.Top).
		WithCode(api.CodeApproval).WithHint("mojoup-node policy approve --repo %s", fault.Quoted(r.Top))
}

// Approval says what a repository asks for and, with the digest of exactly
// that, approves it.
func (n *Node) Approval(ctx context.Context, c console.Caller, req api.ApprovalRequest) (api.Approval, error) {
	if err := n.mayAsk(c); err != nil {
		return api.Approval{}, err
	}
	out, err := n.approval(ctx, c, req)
	if err != nil {
		return out, fault.As(err).Problem()
	}
	return out, nil
}

func (n *Node) approval(ctx context.Context, c console.Caller, req api.ApprovalRequest) (api.Approval, error) {
	if !filepath.IsAbs(req.Directory) {
		return api.Approval{}, fault.Usage("the working directory %q is not absolute", req.Directory)
	}
	home := n.home(req.Env)
	r, err := n.look(home, req.Directory, req.Repository)
	if err != nil {
		return api.Approval{}, err
	}
	in := n.input(home, r, nil, nil)
	layers, err := effective.Layers(ctx, in)
	if err != nil {
		return api.Approval{}, err
	}
	e, err := effective.Own(ctx, layers, in)
	if err != nil {
		return api.Approval{}, err
	}
	return n.settle(ctx, approval(c.UID, r, e), req.Digest, r.Top, effective.Asks(e))
}

// settle answers what is asked for, and notes a yes to exactly that.
func (n *Node) settle(ctx context.Context, key store.Approval, digest, top string, asks []policy.Ask) (out api.Approval, err error) {
	out = api.Approval{Repository: top, Asks: []string{}, Digest: key.Digest}
	for _, a := range asks {
		out.Asks = append(out.Asks, a.Text)
	}
	switch digest {
	case "":
		out.Approved, err = n.store.Approved(ctx, key)
		return out, err
	case out.Digest:
		out.Approved = true
		return out, n.store.Approve(ctx, key)
	}
	return out, fault.Negative("the policy changed while you were looking at it").
		WithHint("look again: mojoup-node policy approve --repo %s", fault.Quoted(top))
}
