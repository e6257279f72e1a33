package unit

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	systemd "github.com/coreos/go-systemd/v22/dbus"
	"github.com/godbus/dbus/v5"

	"github.com/mojoup/mojoup-node/pkg/sandbox/native/cgroup"
)

// within bounds the asking: a node never waits long for a service manager.
const within = 3 * time.Second

// A Person is whose service manager is asked.
type Person struct {
	Name string
	UID  int
	// Runtime is the directory below which the manager listens, usually
	// /run/user/UID.
	Runtime string
}

// Divide puts this process into a scope of its own of the person's service
// manager, with the right to divide it, and reports the scope's name. It does
// nothing, and reports "", where this process may divide a group already or the
// manager has nothing to give.
func Divide(ctx context.Context, p Person) (string, error) {
	if len(cgroup.Offered(os.DirFS("/"), p.Name, p.UID)) == 0 || cgroup.Here().Has(cgroup.Memory) {
		return "", nil
	}
	return ask(ctx, p)
}

func ask(ctx context.Context, p Person) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	manager, err := systemd.NewConnection(func() (*dbus.Conn, error) { return dial(ctx, p) })
	if err != nil {
		return "", fmt.Errorf("asking the service manager of %s: %w", p.Name, err)
	}
	defer manager.Close()
	name := "mojoup-node-" + strconv.Itoa(os.Getpid()) + ".scope"
	done := make(chan string, 1)
	if _, err := manager.StartTransientUnitContext(ctx, name, "fail", []systemd.Property{
		systemd.PropDescription("mojoup-node and its sessions"),
		systemd.PropPids(uint32(os.Getpid())),
		{Name: "Delegate", Value: dbus.MakeVariant(true)},
		{Name: "CollectMode", Value: dbus.MakeVariant("inactive-or-failed")},
	}, done); err != nil {
		return "", fmt.Errorf("asking the service manager of %s for %s: %w", p.Name, name, err)
	}
	select {
	case result := <-done:
		if result != "done" {
			return "", fmt.Errorf("the service manager of %s ended the making of %s with %q", p.Name, name, result)
		}
		return name, nil
	case <-ctx.Done():
		return "", fmt.Errorf("waiting for the service manager of %s to make %s: %w", p.Name, name, ctx.Err())
	}
}

// dial takes the manager's own socket: a message bus may not run, and godbus
// would start one.
func dial(ctx context.Context, p Person) (*dbus.Conn, error) {
	socket := filepath.Join(p.Runtime, "systemd/private")
	conn, err := dbus.Dial("unix:path="+dbus.EscapeBusAddressValue(socket), dbus.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(p.UID))}); err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}
