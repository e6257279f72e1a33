package realtest

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/enginetest"
)

// dockerSocket is the one of the tests' Docker.
const dockerSocket = "/var/run/docker.sock"

// everywhere runs a test as [everybody] does, and as an ordinary user whose
// sessions are containers of a double of a gateway, of each generation.
func everywhere(t *testing.T, test func(*testing.T, somebody)) {
	t.Helper()
	everybody(t, test)
	for _, generation := range enginetest.Generations {
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
	var programs []string
	if r.program != "" {
		programs = append(programs, r.program)
	}
	r.double = enginetest.Start(r.t, enginetest.Options{Generation: r.who.gateway, Machine: true}, programs...)
	r.write("openshell/openshell", "#!/bin/sh\necho openshell 0.0.111\n", 0o755)
	r.env = append(r.env,
		"OPENSHELL_GATEWAY_ENDPOINT="+r.double.Endpoint(), "MOJOUP_NODE_SANDBOX_ENGINE=docker", "MOJOUP_NODE_SANDBOX_IMAGE="+r.double.Image)
}

// having gives sessions a program: on native in a directory of the person's
// PATH, on docker in their image.
func having(file string) rigOption {
	return func(r *rig) {
		if r.program = file; r.who.gateway == "" {
			r.path = append(r.path, filepath.Dir(file))
		}
	}
}
