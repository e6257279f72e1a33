package cli

import (
	"context"
	"time"

	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/trial"
)

// examine asks everything about this machine. Thorough tries what takes
// seconds too, for somebody who waits for the answer.
func (h here) examine(ctx context.Context, e capability.Engine, thorough bool) capability.Report {
	host := capability.ThisHost(capability.Options{})
	asker := trial.New(trial.Options{
		Discover: h.discover, Connect: h.gateway, Docker: h.docker,
		Image: h.sandboxImage(), Fetch: h.fetches(), Node: h.nodeID(), Staging: h.staging(), Within: thoroughWithin,
	})
	defer asker.Close()
	host.Registered, host.CLIVersion = asker.Registered, trial.CLIVersion
	host.Gateway, host.Image, host.Binds = asker.Answer, asker.Image, asker.Binds
	if thorough {
		host.Served = h.by != nil
		host.Reach = asker.Reach
		host.Limit = thoroughWithin
	}
	return capability.Examine(ctx, host, e)
}

// thoroughWithin bounds each check of doctor: a container has to start.
const thoroughWithin = 15 * time.Second
