// Package keyringtest promises a real desktop keyring for one test: GNOME's,
// on a session bus of its own, with nothing of the person who runs the test.
package keyringtest

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// Start starts a bus and an unlocked keyring, makes them those of this process
// and ends them with the test. Where they are not installed, it is skipped.
func Start(t *testing.T) {
	t.Helper()
	for _, name := range []string{"dbus-daemon", "gnome-keyring-daemon"} {
		if _, err := exec.LookPath(name); err != nil {
			kerneltest.Lacking(t, name, "none")
		}
	}
	home, err := os.MkdirTemp("", "keyring") // a socket's path must be short
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(home) })
	for name, value := range map[string]string{"HOME": home, "XDG_DATA_HOME": filepath.Join(home, "data"), "XDG_RUNTIME_DIR": home, "GNOME_KEYRING_CONTROL": ""} {
		t.Setenv(name, value)
	}
	bus := exec.Command("dbus-daemon", "--session", "--nofork", "--print-address=1", "--address=unix:path="+filepath.Join(home, "bus"))
	out, err := bus.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin(t, bus)
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the bus says no address: %v", err)
	}
	t.Setenv("DBUS_SESSION_BUS_ADDRESS", strings.TrimSpace(address))
	keyring := exec.Command("gnome-keyring-daemon", "--foreground", "--components=secrets", "--unlock")
	keyring.Stdin = strings.NewReader("password")
	begin(t, keyring)
	await(t, strings.TrimSpace(address))
}

func begin(t *testing.T, c *exec.Cmd) {
	t.Helper()
	said := &bytes.Buffer{}
	c.Stderr = said
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = c.Process.Kill()
		_ = c.Wait()
		if t.Failed() {
			t.Logf("%s: %s", c.Path, said)
		}
	})
}

// await waits until the keyring has its name on the bus, and its collection.
func await(t *testing.T, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	conn, err := dbus.Connect(address, dbus.WithContext(ctx))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	signals := make(chan *dbus.Signal, 16)
	conn.Signal(signals)
	if err := conn.AddMatchSignal(dbus.WithMatchInterface("org.freedesktop.DBus"), dbus.WithMatchMember("NameOwnerChanged")); err != nil {
		t.Fatal(err)
	}
	for {
		owned := false
		if err := conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.NameHasOwner", 0, "org.freedesktop.secrets").Store(&owned); err != nil {
			t.Fatal(err)
		}
		if owned {
			return
		}
		select {
		case <-signals:
		case <-ctx.Done():
			t.Fatal("the keyring does not come")
		}
	}
}

// Lock locks the keyring, as it is before its person has signed in.
func Lock(t *testing.T) {
	t.Helper()
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	service := conn.Object("org.freedesktop.secrets", "/org/freedesktop/secrets")
	var collection dbus.ObjectPath
	if err := service.Call("org.freedesktop.Secret.Service.ReadAlias", 0, "default").Store(&collection); err != nil {
		t.Fatal(err)
	}
	var locked []dbus.ObjectPath
	var prompt dbus.ObjectPath
	if err := service.Call("org.freedesktop.Secret.Service.Lock", 0, []dbus.ObjectPath{collection}).Store(&locked, &prompt); err != nil {
		t.Fatal(err)
	}
}

// Clear removes every item with these attributes.
func Clear(t *testing.T, attributes map[string]string) {
	t.Helper()
	conn, err := dbus.Connect(os.Getenv("DBUS_SESSION_BUS_ADDRESS"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	var open, locked []dbus.ObjectPath
	service := conn.Object("org.freedesktop.secrets", "/org/freedesktop/secrets")
	if err := service.Call("org.freedesktop.Secret.Service.SearchItems", 0, attributes).Store(&open, &locked); err != nil {
		t.Fatal(err)
	}
	for _, item := range open {
		if err := conn.Object("org.freedesktop.secrets", item).Call("org.freedesktop.Secret.Item.Delete", 0).Err; err != nil {
			t.Fatal(err)
		}
	}
}
