package node

import (
	"context"
	"os"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/internal/host"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// BenchSpecs makes the specifications that sessions in a repository would have,
// for measuring what it costs to carry them out. Like a node it keeps the
// machine's certificates.
func BenchSpecs(paths config.Paths, env []string) func(ctx context.Context, repository, id string) (sandbox.Spec, error) {
	var trust host.Trust
	return func(ctx context.Context, repository, id string) (sandbox.Spec, error) {
		if err := makePlaces(paths); err != nil {
			return sandbox.Spec{}, err
		}
		r, err := repo.Look(repository)
		if err != nil {
			return sandbox.Spec{}, err
		}
		user := host.Person(os.Getuid(), os.Getgid(), nil)
		facts, err := host.Gather(ctx, &trust, user.Home, plan.CallerEnv(env))
		if err != nil {
			return sandbox.Spec{}, err
		}
		ca, err := leafcert.New(id)
		if err != nil {
			return sandbox.Spec{}, err
		}
		made, err := plan.Make(plan.Input{
			ID: id, Repository: r, User: user, Host: facts, Env: plan.CallerEnv(env),
			SessionCA: ca.CertificatePEM(), WorkDir: paths.Empty(),
		})
		return made.Spec, err
	}
}
