package openshell_test

import (
	"bufio"
	"errors"
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

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/network"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// measured is what was seen of a real gateway of 0.0.111 and is relied on, row
// by row: the double does the same.
func measured(t *testing.T, w world) {
	t.Run("who runs inside", func(t *testing.T) { whoRuns(t, w) })
	t.Run("a way out", func(t *testing.T) { wayOut(t, w) })
	t.Run("single files", func(t *testing.T) { singleFiles(t, w) })
	t.Run("a working directory in the way", func(t *testing.T) { workdirInTheWay(t, w) })
	t.Run("labels", func(t *testing.T) { labels(t, w) })
	t.Run("a path that is not there", func(t *testing.T) { missingPath(t, w) })
}

func whoRuns(t *testing.T, w world) {
	s := w.up(t, w.request(t))
	status := w.sh(t, s.Ref, "grep -E '^(Uid|Gid|Groups|CapEff|CapBnd|CapAmb|NoNewPrivs|Seccomp):' /proc/self/status | tr '\\t' ' '")
	id := fmt.Sprint(w.uid)
	for _, want := range []string{"Uid: " + strings.Repeat(id+" ", 3) + id, "Gid: " + strings.Repeat(id+" ", 3) + id,
		"CapEff: 0000000000000000", "CapBnd: 0000000000000000", "CapAmb: 0000000000000000", "NoNewPrivs: 1", "Seccomp: 2"} {
		if !strings.Contains(status, want) {
			t.Errorf("no %q in %q", want, status)
		}
	}
	// The supplementary group 0 stays: one more reason why root's files need
	// their modes.
	if !strings.Contains(strings.ReplaceAll(status, "Groups: ", "Groups:  "), " 0 ") {
		t.Errorf("no group 0 in %q", status)
	}
	if got := w.sh(t, s.Ref, "pwd; echo $HOME"); got != "/sandbox\n/sandbox" {
		t.Errorf("%q", got)
	}
	w.sh(t, s.Ref, "! ls / 2>/dev/null && ! ls /home 2>/dev/null && ! ls /root 2>/dev/null")
	w.sh(t, s.Ref, "case $HTTPS_PROXY in http://*:*) ;; *) exit 1;; esac")
	res, err := w.client.Run(bounded(t), s.Ref, openshell.Short{Argv: []string{"/bin/sh", "-c", "echo $HTTPS_PROXY"}, Env: map[string]string{"HTTPS_PROXY": "http://127.0.0.1:1"}})
	if err != nil || string(res.Stdout) != "http://127.0.0.1:1\n" {
		t.Errorf("a variable of the command: %q %v", res.Stdout, err)
	}
}

// wayOut: nothing leaves but by the one program, to the one host and port.
func wayOut(t *testing.T, w world) {
	busybox, err := exec.LookPath("busybox")
	kerneltest.Require(t, "busybox (Debian: busybox-static)", err)
	text, err := os.ReadFile(busybox)
	if err != nil {
		t.Fatal(err)
	}
	dir := place(t, w.uid)
	// It is many programs by its name, so that must be its own.
	one, two := filepath.Join(dir, "one/busybox"), filepath.Join(dir, "two/busybox")
	for _, name := range []string{one, two} {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	address := "127.0.0.1"
	if w.client.Gateway().Generation == openshell.V00 {
		w.up(t, w.request(t)) // the network is there once a sandbox is
		n, err := gatewaytest.Docker(t).NetworkInspect(t.Context(), product.Network, network.InspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		address = n.IPAM.Config[0].Gateway
	}
	peers := make(chan netip.Addr, 16)
	port := echo(t, address, peers)
	r := w.request(t, openshell.Mount{Source: dir, Target: dir, ReadOnly: true})
	r.Name = openshell.Name(w.node, "way")
	r.Ways = []openshell.Way{{Host: product.HostAlias, Port: port, Program: one}}
	s := w.up(t, r)

	// ask speaks to the injected proxy as a program would, but without waiting
	// for its answer: what comes before that is lost, so it takes its time where
	// an answer matters. A real gateway reads the whole program the first time.
	pause := "2"
	ask := func(program, head string) string {
		t.Helper()
		line := fmt.Sprintf(`p=${HTTPS_PROXY#http://}; (printf '%s\r\nHost: x\r\n\r\n'; sleep %s; printf 'hello\n'; sleep 0.5) | %s nc ${p%%:*} ${p##*:}`, head, pause, program)
		res, err := w.client.Run(bounded(t), s.Ref, openshell.Short{Argv: []string{"/bin/sh", "-c", line}})
		if err != nil {
			t.Fatal(err)
		}
		return string(res.Stdout)
	}
	target := fmt.Sprintf("%s:%d", product.HostAlias, port)
	if got := ask(one, "CONNECT "+target+" HTTP/1.1"); !strings.Contains(got, " 200 ") || !strings.Contains(got, "echo hello") {
		t.Errorf("the way out: %q", got)
	} else if peer := <-peers; address != "127.0.0.1" && peer == netip.MustParseAddr(address) {
		t.Errorf("the connection comes from %s and not from the container", peer)
	}
	pause = "0.3"
	for name, got := range map[string]string{
		"another program": ask(two, "CONNECT "+target+" HTTP/1.1"),
		"another port":    ask(one, fmt.Sprintf("CONNECT %s:%d HTTP/1.1", product.HostAlias, port+1)),
		"another host":    ask(one, "CONNECT pypi.example:443 HTTP/1.1"),
		"the metadata":    ask(one, "CONNECT 169.254.169.254:80 HTTP/1.1"),
		"without TLS":     ask(one, "GET http://example.com/ HTTP/1.1"),
	} {
		if !strings.Contains(got, " 403 ") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if got := ask(one, "GET http://example.com/ HTTP/1.1"); !strings.Contains(got, `"error":"policy_denied"`) || !strings.Contains(got, `"detail":`) {
		t.Errorf("a denial reads: %q", got)
	}
	// Without the proxy there is nothing at all.
	res, err := w.client.Run(bounded(t), s.Ref, openshell.Short{Within: 30 * time.Second, Argv: []string{"/bin/sh", "-c", fmt.Sprintf(
		"for a in %s 192.0.2.1 172.17.0.1; do %s nc -w 1 $a %d </dev/null >/dev/null 2>&1 && echo reached $a; done; true", address, one, port)}})
	if err != nil || strings.TrimSpace(string(res.Stdout)) != "" {
		t.Errorf("a way around: %s %v", res.Stdout, err)
	}
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
				conn.SetDeadline(time.Now().Add(2 * time.Minute))
				line, _ := bufio.NewReader(conn).ReadString('\n')
				io.WriteString(conn, "echo "+line)
			}()
		}
	}()
	return l.Addr().(*net.TCPAddr).Port
}

// singleFiles: a bind of one file cannot be replaced inside, and goes when the
// host replaces it. So directories are mounted, and nothing else.
func singleFiles(t *testing.T, w world) {
	dir := place(t, w.uid)
	make := func(name string) string {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("old\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		os.Chown(filepath.Dir(path), w.uid, w.uid)
		os.Chown(path, w.uid, w.uid)
		return path
	}
	credentials, config := make("stage/credentials"), make("tree/config")
	r := w.request(t, openshell.Mount{Source: credentials, Target: "/var/staged/credentials"},
		openshell.Mount{Source: filepath.Dir(config), Target: filepath.Dir(config)}, openshell.Mount{Source: config, Target: config, ReadOnly: true})
	r.ReadWrite = append(r.ReadWrite, "/var/staged")
	r.ReadOnly = append(r.ReadOnly, config)
	s := w.up(t, r)
	if got := w.sh(t, s.Ref, "stat -c '%u %a' /var/staged"); got != "0 755" {
		t.Errorf("the directory of a mounted file: %s", got)
	}
	w.sh(t, s.Ref, "echo new > /tmp/new && ! mv /tmp/new /var/staged/credentials 2>/dev/null")
	w.sh(t, s.Ref, "echo direct > /var/staged/credentials")
	w.sh(t, s.Ref, "! (echo evil > "+config+") 2>/dev/null")
	if err := os.WriteFile(config+".lock", []byte("of the host\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	os.Chmod(config+".lock", 0o666)
	if err := os.Rename(config+".lock", config); err != nil {
		t.Fatal(err)
	}
	w.sh(t, s.Ref, "echo evil > "+config)
}

// workdirInTheWay: an image whose working directory the session's user cannot
// write makes a container that ends, and nobody but its own log says why.
func workdirInTheWay(t *testing.T, w world) {
	docker := gatewaytest.Docker(t)
	made, err := docker.ContainerCreate(t.Context(), &container.Config{Image: w.image, Cmd: []string{"true"}}, nil, nil, nil, "")
	if err != nil {
		t.Fatal(err)
	}
	defer docker.ContainerRemove(t.Context(), made.ID, container.RemoveOptions{Force: true})
	name := "mojoup-double-workdir-" + w.node + ":latest"
	if _, err := docker.ContainerCommit(t.Context(), made.ID, container.CommitOptions{Reference: name, Changes: []string{"WORKDIR /usr/lib"}}); err != nil {
		t.Fatal(err)
	}
	defer docker.ImageRemove(t.Context(), name, image.RemoveOptions{})
	r := w.request(t)
	r.Image = name
	made2, err := w.client.Create(bounded(t), r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.down(t, made2.Ref)
	_, err = w.client.Ready(bounded(t), made2.Ref, nil)
	wants(t, err, openshell.ContainerFailed, "container's own log")
}

func labels(t *testing.T, w world) {
	s := w.up(t, w.request(t))
	units, err := gatewaytest.Docker(t).ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", product.LabelID+"="+s.ID))})
	if err != nil || len(units) != 1 {
		t.Fatalf("%v %v", units, err)
	}
	for key, want := range map[string]string{product.LabelManagedBy: product.ManagedBy, product.LabelName: s.Name, product.LabelWorkspace: "default", openshell.LabelNode: w.node} {
		if got := units[0].Labels[key]; got != want {
			t.Errorf("%s is %q, wanted %q", key, got, want)
		}
	}
	if want := "/" + product.ContainerPrefix + "default--" + s.Name + "-" + s.ID; units[0].Names[0] != want {
		t.Errorf("it is called %s, wanted %s", units[0].Names[0], want)
	}
}

// missingPath: hard enforcement wants every path to be there.
func missingPath(t *testing.T, w world) {
	r := w.request(t)
	r.ReadOnly = append(r.ReadOnly, "/no/such/path")
	made, err := w.client.Create(bounded(t), r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.down(t, made.Ref)
	if _, err := w.client.Ready(bounded(t), made.Ref, nil); err == nil {
		// It may be ready for a moment, but runs nothing.
		res, err := w.client.Run(bounded(t), made.Ref, openshell.Short{Argv: []string{"true"}})
		if err == nil && res.Code == 0 {
			t.Error("a command runs in a sandbox whose policy cannot be enforced")
		}
	} else if !errors.Is(err, openshell.ContainerFailed) {
		t.Errorf("%v", err)
	}
}
