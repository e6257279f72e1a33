package realtest

import (
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/realtest/upstream"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// TestClaudeAtAGateway runs the real agent in an image, at the real gateway
// that MOJOUP_TEST_GATEWAY names, through OpenShell's proxy and the node's, to
// an upstream of the test's own. MOJOUP_TEST_GATEWAY_CLAUDE is the image, which
// `mojoup-node image build --tool claude` makes.
func TestClaudeAtAGateway(t *testing.T) {
	at, image := os.Getenv("MOJOUP_TEST_GATEWAY"), os.Getenv("MOJOUP_TEST_GATEWAY_CLAUDE")
	if at == "" || image == "" {
		t.Skip("wanted MOJOUP_TEST_GATEWAY, found none")
	}
	if os.Getuid() != 0 {
		t.Skip("wanted root, who can give an ordinary user's node the group of Docker's socket")
	}
	u, err := user.LookupId("1000")
	kerneltest.Require(t, "a user with uid 1000", err)
	docker, err := user.LookupGroup("docker")
	kerneltest.Require(t, "a group docker", err)
	r := newRig(t, somebody{uid: 1000, gid: 1000, name: u.Username}, map[string]string{webName: "127.0.0.1", claudeHost: "127.0.0.1"}, func(r *rig) {
		r.groups = docker.Gid
		r.path = []string{filepath.Dir(os.Getenv("MOJOUP_TEST_OPENSHELL"))}
		r.env = []string{"OPENSHELL_GATEWAY_ENDPOINT=" + at, "MOJOUP_NODE_SANDBOX_ENGINE=docker", "MOJOUP_NODE_SANDBOX_IMAGE=" + image}
	})
	up := &upstream.Server{Answer: answer, Keys: []string{claudeKey}}
	port := r.serve("127.0.0.1:0", up, webName)
	env := claudeEnv("ANTHROPIC_BASE_URL=https://" + webName + ":" + port)
	before := len(up.Requests())
	res := r.inside(opened(webName, port, ""), "-p", "say that all is well").as("claude").with(env...).succeed()
	r.mention(res, "the upstream answers: all is well")
	streamed(t, up, before)
	t.Logf("answered after %v", res.took)
	res = r.inside(opened(webName, port, ""), "claude", "-p", "USE THE SHELL", "--permission-mode", "bypassPermissions").with(env...).succeed()
	r.mention(res, "the shell said")
	made, err := os.ReadFile(filepath.Join(r.repo, "made-by-the-agent.txt"))
	if err != nil || strings.TrimSpace(string(made)) != r.repo {
		t.Errorf("the agent's shell wrote %q (%v), want %s", made, err, r.repo)
	}
	res = r.inside(`{"version": 1, "network": {"rules": []}}`, "claude", "-p", "say that all is well").with(claudeEnv()...).fail()
	r.mention(res, "denied by policy")
	t.Logf("denied after %v", res.took)
}
