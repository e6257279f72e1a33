package console

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

func mine() shower {
	return shower{
		uid:    os.Getuid(),
		status: api.Status{Node: api.Node{Running: true, Since: time.Now()}, Verdict: api.Verdict{Able: true, Sentence: "Agents run in a sandbox", Engine: "auto", Chosen: "native"}},
		checks: api.Checks{At: time.Now(), Checks: []api.Check{{Title: "System", State: "ok", Found: "Linux"}}},
	}
}

// TestT8_VisitorsAreKnownByTheKernel: on loopback anybody can connect.
func TestT8_VisitorsAreKnownByTheKernel(t *testing.T) {
	t.Parallel()
	ln := showing(t, mine())
	if r, _ := said(t, ln, "GET / HTTP/1.1\nHost: $HOST\n"); r.StatusCode != 200 {
		t.Errorf("the node's own user is answered %d", r.StatusCode)
	}
	if os.Getuid() != 0 {
		t.Skip("wanted root, which can become another user")
	}
	if _, err := exec.LookPath("curl"); err != nil {
		kerneltest.Lacking(t, "curl", err.Error())
	}
	for uid, want := range map[uint32]string{0: "200", 1000: "403", 65534: "403"} {
		cmd := exec.Command("curl", "-s", "-o", "/dev/null", "-m", "60", "-w", "%{http_code}", "-H", "Host: "+pageHost(ln.Addr()), "http://"+ln.Addr().String()+"/")
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: uid}}
		cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH")}
		if out, err := cmd.Output(); err != nil || string(out) != want {
			t.Errorf("user %d is answered %s, want %s: %v", uid, out, want, err)
		}
	}
}

// pairOf is both ends of a connection within this machine.
func pairOf(t *testing.T, dial func(at string) (net.Conn, error)) (client net.Conn, served *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = dial(ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	conn, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return client, conn.(*net.TCPConn)
}

func straight(at string) (net.Conn, error) { return net.DialTimeout("tcp4", at, time.Minute) }

// mapped connects a socket of IPv6 to an address of IPv4, as Java does.
func mapped(at string) (net.Conn, error) {
	to := netip.MustParseAddrPort(at)
	fd, err := syscall.Socket(syscall.AF_INET6, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	if err := syscall.Connect(fd, &syscall.SockaddrInet6{Port: int(to.Port()), Addr: netip.AddrFrom16(to.Addr().As16()).As16()}); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

func TestOwnersOfConnections(t *testing.T) {
	t.Parallel()
	for name, dial := range map[string]func(string) (net.Conn, error){"IPv4": straight, "IPv4 in IPv6": mapped} {
		client, served := pairOf(t, dial)
		if uid, err := ownerOf(served); err != nil || uid != os.Getuid() {
			t.Errorf("%s: made by %d, %v", name, uid, err)
		}
		// Whoever has said all may still listen.
		if half, ok := client.(*net.TCPConn); !ok || half.CloseWrite() != nil {
			t.Fatal("cannot half-close")
		}
		if uid, err := ownerOf(served); err != nil || uid != os.Getuid() {
			t.Errorf("%s: half-closed, made by %d, %v", name, uid, err)
		}
	}
}

// TestNobodyOwnsWhatIsGone: the kernel calls a socket that nobody has open
// root's, and where it finds none it names a listener of the same port.
func TestNobodyOwnsWhatIsGone(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(*net.TCPConn) error{
		"closed": func(c *net.TCPConn) error { return c.Close() },
		"reset":  func(c *net.TCPConn) error { _ = c.SetLinger(0); return c.Close() },
	} {
		client, served := pairOf(t, straight)
		port := client.LocalAddr().String()
		if err := end(client.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		if uid, err := ownerOf(served); err == nil {
			t.Errorf("%s: made by %d", name, uid)
		}
		if name != "reset" {
			continue
		}
		other, err := net.Listen("tcp", port)
		if err != nil {
			t.Fatal(err)
		}
		if uid, err := ownerOf(served); err == nil {
			t.Errorf("%s, and its port listened on: made by %d", name, uid)
		}
		_ = other.Close()
	}
}

// TestTheSamePortOfAnotherAddress is another connection.
func TestTheSamePortOfAnotherAddress(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	first, err := straight(ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	one, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer one.Close()
	from := &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2), Port: first.LocalAddr().(*net.TCPAddr).Port}
	second, err := (&net.Dialer{LocalAddr: from}).Dial("tcp4", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	two, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer two.Close()
	_ = second.(*net.TCPConn).SetLinger(0)
	_ = second.Close()
	if uid, err := ownerOf(two.(*net.TCPConn)); err == nil {
		t.Errorf("what is gone is told as made by %d, who made another one", uid)
	}
	if _, err := ownerOf(one.(*net.TCPConn)); err != nil {
		t.Errorf("the other one: %v", err)
	}
}

// FuzzOwnerAnswer: whatever the kernel said, an owner is named only of the
// connection that was asked about.
func FuzzOwnerAnswer(f *testing.F) {
	f.Add(make([]byte, sizeAnswer))
	f.Fuzz(func(t *testing.T, answer []byte) {
		local, remote := netip.MustParseAddrPort("127.0.0.1:1"), netip.MustParseAddrPort("127.0.0.1:2")
		uid, err := ownerIn(answer, local, remote)
		if err != nil {
			return
		}
		from, to := ends(answer[sizeHeader], answer[offsetID:offsetID+sizeID])
		if from != local || to != remote || uid < 0 {
			t.Errorf("%d for %v to %v", uid, from, to)
		}
	})
}

// TestOneUserDoesNotTakeAllConnections, and what is closed makes room.
func TestOneUserDoesNotTakeAllConnections(t *testing.T) {
	t.Parallel()
	ln := showing(t, mine())
	var open []net.Conn
	for range mostVisits {
		conn, err := net.DialTimeout("tcp", ln.Addr().String(), time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		open = append(open, conn)
	}
	more, err := net.DialTimeout("tcp", ln.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer more.Close()
	_ = more.SetDeadline(time.Now().Add(time.Minute))
	if _, err := more.Read(make([]byte, 1)); err != io.EOF && !strings.Contains(err.Error(), "reset") {
		t.Errorf("one connection too many is not closed: %v", err)
	}
	for _, conn := range open {
		_ = conn.Close()
	}
	for deadline := time.Now().Add(time.Minute); ; {
		ln.mu.Lock()
		n := len(ln.visits)
		ln.mu.Unlock()
		if n == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("closed connections still count")
		}
		conn, err := net.Dial("tcp", ln.Addr().String()) // makes the server run
		if err == nil {
			_ = conn.Close()
		}
	}
	if r, _ := said(t, ln, "GET / HTTP/1.1\nHost: $HOST\n"); r.StatusCode != 200 {
		t.Errorf("with room again the answer is %d", r.StatusCode)
	}
}
