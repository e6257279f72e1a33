package openshell_test

import (
	"io/fs"
	"os"
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
