package realtest

import (
	"os"
	"os/user"
	"strconv"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// Gateways of the older generation, of the newer, and all that there are.
var (
	older = enginetest.Generations[:1]
	newer = enginetest.Generations[1:]
	both  = enginetest.Generations
)

// dockerSocket is the one of the tests' Docker.
const dockerSocket = "/var/run/docker.sock"

// everywhere runs a test as [everybody] does, and as an ordinary user whose
// sessions are containers of a double of a gateway, of each of these generations:
// one is enough where a test takes long and what is below them is the same.
func everywhere(t *testing.T, test func(*testing.T, somebody), generations ...string) {
	t.Helper()
	everybody(t, test)
	for _, generation := range generations {
		t.Run("docker "+generation, func(t *testing.T) { test(t, atGateway(t, generation)) })
	}
}

// atGateway is an ordinary user whose sessions run at a gateway.
func atGateway(t *testing.T, generation string) somebody {
	t.Helper()
	kerneltest.Long(t)
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can give an ordinary user's node the group of Docker's socket")
	}
	u, err := user.LookupId("1000")
	kerneltest.Require(t, "a user with uid 1000", err)
	return somebody{uid: 1000, gid: 1000, name: u.Username, gateway: generation}
}

// onDouble has the rig's node use engine docker, on a double of its own. What
// sessions have of programs is this machine's, as on native.
func (r *rig) onDouble() {
	r.t.Helper()
	st, err := os.Stat(dockerSocket)
	kerneltest.Require(r.t, "Docker's socket", err)
	r.groups = strconv.Itoa(int(st.Sys().(*syscall.Stat_t).Gid))
	r.double = enginetest.Start(r.t, enginetest.Options{Generation: r.who.gateway, Machine: true, Programs: r.programs})
	r.write("openshell/openshell", "#!/bin/sh\necho openshell 0.0.111\n", 0o755)
	r.env = append(r.env,
		"OPENSHELL_GATEWAY_ENDPOINT="+r.double.Endpoint(), "MOJOUP_NODE_SANDBOX_ENGINE=docker", "MOJOUP_NODE_SANDBOX_IMAGE="+r.double.Image)
}

// having gives sessions the programs of a directory: on native by the person's
// PATH, on docker in their image. Outside they are there as well.
func having(dir string) rigOption {
	return func(r *rig) {
		r.programs = dir
		if r.who.gateway == "" {
			r.path = append(r.path, dir)
		}
	}
}
