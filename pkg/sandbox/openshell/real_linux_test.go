package openshell_test

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
)

func owner(info fs.FileInfo) int { return int(info.Sys().(*syscall.Stat_t).Uid) }

// TestRealGateway runs the suite against a gateway that MOJOUP_TEST_GATEWAY
// names by its address, with the image that MOJOUP_TEST_GATEWAY_IMAGE names.
func TestRealGateway(t *testing.T) {
	endpoint := os.Getenv("MOJOUP_TEST_GATEWAY")
	if endpoint == "" {
		t.Skip("wanted MOJOUP_TEST_GATEWAY, found none: there is no real gateway here")
	}
	reg, err := openshell.Discover(openshell.Where{UID: os.Getuid(), Getenv: func(name string) string {
		if name == "OPENSHELL_GATEWAY_ENDPOINT" {
			return endpoint
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openshell.Connect(bounded(t), reg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	t.Logf("%+v", c.Gateway())
	if info, err := c.Info(bounded(t)); err != nil || len(info.Drivers) != 1 || info.Drivers[0].Name != "docker" {
		t.Errorf("%+v %v", info, err)
	} else {
		t.Logf("%+v", info)
	}
	suite(t, world{client: c, image: os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), uid: 1000, node: newNode()})
}

// TestRealGatewayRestarts restarts a real gateway by the command line that
// MOJOUP_TEST_GATEWAY_RESTART holds, with a command running.
func TestRealGatewayRestarts(t *testing.T) {
	endpoint, restart := os.Getenv("MOJOUP_TEST_GATEWAY"), os.Getenv("MOJOUP_TEST_GATEWAY_RESTART")
	if endpoint == "" || restart == "" {
		t.Skip("wanted MOJOUP_TEST_GATEWAY, found none: there is no real gateway here to be restarted")
	}
	c, err := openshell.Connect(bounded(t), at(t, endpoint))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	w := world{client: c, image: os.Getenv("MOJOUP_TEST_GATEWAY_IMAGE"), uid: 1000, node: newNode()}
	s := w.up(t, w.request(t))
	x, err := c.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"sleep", "1000"}, Stdin: strings.NewReader("")})
	if err != nil {
		t.Fatal(err)
	}
	w.sh(t, s.Ref, "true")
	if out, err := exec.Command("sh", "-c", restart).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	_, err = x.Wait(bounded(t))
	// The containers are stopped and started anew: what ran is gone.
	if !errors.Is(err, openshell.Unreachable) && !errors.Is(err, openshell.Lost) && !errors.Is(err, openshell.NoExit) {
		t.Errorf("%v", err)
	}
	t.Logf("the command: %v", err)
	r, err := c.Ready(bounded(t), s.Ref, func(p openshell.Progress) { t.Logf("%s %s %s", p.Phase, p.Reason, p.Message) })
	if err != nil {
		t.Fatal(err)
	}
	if r.Instance == s.Instance {
		t.Errorf("the main process is still %s", r.Instance)
	}
	if got := w.sh(t, s.Ref, "echo still here"); got != "still here" {
		t.Errorf("%q", got)
	}
	t.Logf("processes inside: %s", w.sh(t, s.Ref, "cat /proc/[0-9]*/cmdline | tr '\\000' ' '"))
}
