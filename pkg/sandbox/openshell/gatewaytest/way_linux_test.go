package gatewaytest_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// TestWayOut: a container has no other way out than the one that its policy
// names, for the one program that it names.
func TestWayOut(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range []string{gatewaytest.V00, gatewaytest.V01} {
		t.Run(generation, func(t *testing.T) { wayOut(t, generation) })
	}
}

func wayOut(t *testing.T, generation string) {
	image := gatewaytest.Image(t)
	g := gatewaytest.Start(t, gatewaytest.Options{Generation: generation})
	c := connect(t, g)
	// A program of its own, by its path: everything else in the image is one
	// program under many names.
	busybox, err := exec.LookPath("busybox")
	if err != nil {
		t.Fatal(err)
	}
	dir := reachable(t)
	text, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	way := filepath.Join(dir, "busybox")
	if err := os.WriteFile(way, text, 0o755); err != nil {
		t.Fatal(err)
	}

	up := func(ways ...openshell.Way) openshell.Ref {
		t.Helper()
		r := openshell.Request{Name: openshell.Name(t.Name(), fmt.Sprint(len(ways))), Image: image, Command: []string{"/bin/sleep", "1000"}, UID: ordinary(), GID: ordinary(), Workspace: true,
			ReadOnly: []string{"/bin", "/lib", "/etc", "/proc", dir}, Mounts: []openshell.Mount{{Source: dir, Target: dir, ReadOnly: true}}, Ways: ways}
		made, err := c.Create(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Ready(t.Context(), made.Ref, nil); err != nil {
			t.Fatal(err)
		}
		return made.Ref
	}
	first := up() // the network is there once a sandbox is
	address := "127.0.0.1"
	if generation == gatewaytest.V00 {
		n, err := gatewaytest.Docker(t).NetworkInspect(t.Context(), product.Network, network.InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		address = n.IPAM.Config[0].Gateway
	}
	peers := make(chan netip.Addr, 16)
	port := echo(t, address, peers)
	ref := up(openshell.Way{Host: product.HostAlias, Port: port, Program: way})

	// ask speaks to the injected proxy as a program would.
	ask := func(ref openshell.Ref, program, target string) string {
		t.Helper()
		line := fmt.Sprintf(`p=${HTTPS_PROXY#http://}; (printf 'CONNECT %s HTTP/1.1\r\nHost: x\r\n\r\n'; sleep 0.5; printf 'hello\n'; sleep 0.5) | %s nc ${p%%:*} ${p##*:}`, target, program)
		res, err := c.Run(t.Context(), ref, openshell.Short{Argv: []string{"/bin/sh", "-c", line}})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	target := fmt.Sprintf("%s:%d", product.HostAlias, port)
	if got := ask(ref, way, target); !strings.Contains(got, " 200 ") || !strings.Contains(got, "echo hello") {
		t.Errorf("the way out: %q", got)
	} else {
		peer := <-peers
		if bridge := netip.MustParseAddr(address); generation == gatewaytest.V00 && peer == bridge {
			t.Errorf("the connection comes from %s and not from the container", peer)
		}
	}
	for name, got := range map[string]string{
		"another program":  ask(ref, "/bin/busybox", target),
		"another port":     ask(ref, way, fmt.Sprintf("%s:%d", product.HostAlias, port+1)),
		"another host":     ask(ref, way, fmt.Sprintf("127.0.0.1:%d", port)),
		"another sandbox":  ask(first, way, target),
		"another metadata": ask(ref, way, "169.254.169.254:80"),
	} {
		if !strings.Contains(got, " 403 ") || !strings.Contains(got, "policy_denied") {
			t.Errorf("%s: %q", name, got)
		}
	}
	// Without the proxy there is nothing at all.
	res, err := c.Run(t.Context(), ref, openshell.Short{Argv: []string{"/bin/sh", "-c", fmt.Sprintf(
		"grep -v lo: /proc/net/dev | tail -n +3; for a in %s 1.1.1.1 172.17.0.1; do %s nc -w 2 $a %d </dev/null >/dev/null 2>&1 && echo reached $a; done; true", address, way, port)}})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != "" {
		t.Errorf("a way around: %s %v", res.Stdout, err)
	}
}

// reachable is a directory that everybody can get to.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for at := dir; at != os.TempDir() && at != "/"; at = filepath.Dir(at) {
		os.Chmod(at, 0o755)
	}
	return dir
}

// echo answers each line on an address, and tells who came.
func echo(t *testing.T, address string, peers chan<- netip.Addr) int {
	t.Helper()
	l, err := net.Listen("tcp", address+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			peers <- conn.RemoteAddr().(*net.TCPAddr).AddrPort().Addr()
			go func() {
				defer conn.Close()
				conn.SetDeadline(time.Now().Add(20 * time.Second))
				line, _ := bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, "echo "+line)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

func connect(t *testing.T, g *gatewaytest.Gateway) openshell.Client {
	t.Helper()
	config := t.TempDir()
	g.Register(config)
	reg, err := openshell.Discover(openshell.Where{UID: os.Getuid(), Getenv: func(name string) string {
		return map[string]string{"XDG_CONFIG_HOME": config}[name]
	}})
	if err != nil {
		t.Fatal(err)
	}
	c, err := openshell.Connect(t.Context(), reg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}
