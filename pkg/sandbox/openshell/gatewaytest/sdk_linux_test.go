package gatewaytest_test

import (
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest/sdk"
)

// sdkScript is what the public SDK does with the double. Every line that it
// prints is an error but the last.
const sdkScript = `
import grpc, json, sys
from openshell import Sandbox, SandboxClient, SandboxError, DeletionOutcome
from openshell._proto import openshell_pb2 as o, sandbox_pb2 as s

image, repo, uid = sys.argv[1:4]

def spec(**more):
    t = o.SandboxTemplate(image=image)
    t.driver_config.update({"docker": {"mounts": [{"type": "bind", "source": repo, "target": repo, "read_only": False}]}})
    p = s.SandboxPolicy(version=1)
    p.filesystem.include_workdir = True
    p.filesystem.read_only.extend(["/bin", "/etc", "/lib"])
    p.filesystem.read_write.append(repo)
    p.landlock.compatibility = "hard_requirement"
    p.process.run_as_user = p.process.run_as_group = uid
    r = p.network_policies["way"]
    e = r.endpoints.add(host="host.openshell.internal", port=9, tls=s.NETWORK_TLS_MODE_SKIP, enforcement=s.NETWORK_ENFORCEMENT_MODE_ENFORCE)
    r.binaries.add(path="/bin/busybox")
    return o.SandboxSpec(template=t, policy=p, command=["/bin/sleep", "1000"], environment={"GREETING": "hello"})

def check(what, ok):
    if not ok:
        print("wrong:", what)

def code(f):
    try:
        f()
    except grpc.RpcError as e:
        return e.code()

with SandboxClient.from_active_cluster() as c:
    h = c.health()
    check("health", h.version == "0.1.5" and h.status == o.SERVICE_STATUS_HEALTHY)
    check("missing", code(lambda: c.get("none", workspace="default")) == grpc.StatusCode.NOT_FOUND)
    check("delete missing", c.delete("none", workspace="default", allow_missing=True).outcome == DeletionOutcome.ALREADY_ABSENT)
    check("delete missing strictly", code(lambda: c.delete("none", workspace="default")) == grpc.StatusCode.NOT_FOUND)
    check("no workspace", code(lambda: c._stub.GetSandbox(o.GetSandboxRequest(name="x"))) == grpc.StatusCode.INVALID_ARGUMENT)
    check("unknown method", code(lambda: c.stop("x", workspace="default")) == grpc.StatusCode.UNIMPLEMENTED)
    made = c.create(workspace="default", spec=spec(), name="sdk-one", labels={"kind": "test"})
    check("made", made.name == "sdk-one" and made.id)
    check("early command", code(lambda: list(c.exec_stream("sdk-one", ["true"], workspace="default"))) == grpc.StatusCode.FAILED_PRECONDITION)
    check("twice", code(lambda: c.create(workspace="default", spec=spec(), name="sdk-one")) == grpc.StatusCode.ALREADY_EXISTS)
    ready = c.wait_ready("sdk-one", workspace="default")
    check("same", ready.id == made.id)
    r = c.exec("sdk-one", ["sh", "-c", 'echo $GREETING $1; id -u; pwd; cat >&2; exit 7', "sh", "two words"], workspace="default", stdin=b"input", env={"A": "b"})
    check("command: %r" % (r,), r.exit_code == 7 and r.stdout == "hello two words\n%s\n/sandbox\n" % uid and r.stderr == "input")
    r = c.exec("sdk-one", ["sh", "-c", "sleep 60"], workspace="default", timeout_seconds=1)
    check("too long: %r" % (r,), r.exit_code == 124)
    r = c.exec("sdk-one", ["sh", "-c", "echo made > %s/by-sdk" % repo], workspace="default", no_login_shell=True)
    check("mount: %r" % (r,), r.exit_code == 0)
    chunks = [x for x in c.exec_stream("sdk-one", ["head", "-c", "3000000", "/bin/busybox"], workspace="default")]
    check("stream", len(chunks) > 5 and chunks[-1].exit_code == 0 and sum(len(x.data) for x in chunks[:-1]) == len(open("/bin/busybox", "rb").read(3000000)))
    c.create(workspace="default", spec=spec(), name="sdk-two", labels={"kind": "other"})
    check("by label", [x.name for x in c.list_all(workspace="default", label_selector="kind=test")] == ["sdk-one"])
    check("pages", sorted(x.name for x in c.list_all(workspace="default", page_size=1)) == ["sdk-one", "sdk-two"])
    c.wait_ready("sdk-two", workspace="default")
    for name in ("sdk-one", "sdk-two"):
        d = c.delete(name, workspace="default")
        check("deleted", d.outcome in (DeletionOutcome.ACCEPTED, DeletionOutcome.COMPLETED) and d.sandbox_id)
        c.wait_deleted(name, workspace="default", expected_sandbox_id=d.sandbox_id)
    bad = spec(); bad.template.image = "127.0.0.1:1/none:none"
    c.create(workspace="default", spec=bad, name="sdk-bad")
    try:
        c.wait_ready("sdk-bad", workspace="default")
        print("wrong: ready without an image")
    except SandboxError as e:
        check(str(e), "error phase" in str(e))
    c.delete("sdk-bad", workspace="default")

with Sandbox(workspace="default", spec=spec(), name="sdk-three") as box:
    check("python", box.exec(["echo", "in a context"]).stdout == "in a context\n")
print("done")
`

// TestSDK lets somebody else's client use the double as it would a gateway.
func TestSDK(t *testing.T) {
	kerneltest.Long(t)
	image := gatewaytest.Image(t)
	python := sdk.Python(t)
	for name, o := range map[string]gatewaytest.Options{
		"plaintext":  {Generation: gatewaytest.V01},
		"mutual TLS": {Generation: gatewaytest.V01, TLS: true},
	} {
		t.Run(name, func(t *testing.T) {
			g := gatewaytest.Start(t, o)
			repo := open(t)
			cmd := exec.Command(python, "-c", sdkScript, image, repo, strconv.Itoa(ordinary()))
			cmd.Env = append(os.Environ(), g.Register(t.TempDir())...)
			out, err := cmd.CombinedOutput()
			if err != nil || string(out) != "done\n" {
				t.Fatalf("%v: %s", err, out)
			}
			if text, err := os.ReadFile(repo + "/by-sdk"); err != nil || string(text) != "made\n" {
				t.Errorf("%q %v", text, err)
			}
			first := g.Requests()[0]
			if p := first.Policy; len(p.Rules) != 1 || !p.Rules[0].Skip || !p.Rules[0].Enforce || p.Landlock != "hard_requirement" || len(first.Mounts) != 1 || first.Mounts[0].ReadOnly {
				t.Errorf("the double understood %+v", first)
			}
		})
	}
}

// open is a directory that the sandbox's user can get to and write.
func open(t *testing.T) string {
	t.Helper()
	dir := reachable(t)
	if err := os.Chown(dir, ordinary(), ordinary()); err != nil {
		t.Fatal(err)
	}
	return dir
}

// ordinary is who sandboxes run as: a gateway takes no root.
func ordinary() int {
	if uid := os.Getuid(); uid != 0 {
		return uid
	}
	return 1000
}
