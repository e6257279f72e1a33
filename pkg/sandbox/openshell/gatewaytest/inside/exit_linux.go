package inside

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// exit is the only way out of a container: an HTTP proxy that opens a tunnel
// where a rule names the host, the port and the program that asks, and refuses
// everything else.
type exit struct {
	rules []Rule
	host  string
}

func (e *exit) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		go e.one(conn.(*net.TCPConn))
	}
}

func (e *exit) one(conn *net.TCPConn) {
	defer conn.Close()
	conn.SetReadDeadline(time.Now().Add(30 * time.Second))
	in := bufio.NewReaderSize(conn, 8<<10)
	target, err := head(in)
	if err != nil {
		answer(conn, 400, "bad_request", err.Error())
		return
	}
	host, port, err := net.SplitHostPort(target)
	if err != nil {
		answer(conn, 403, "policy_denied", "only CONNECT is allowed")
		return
	}
	programs := asker(conn)
	rule, why := e.allowed(host, port, programs)
	if why != "" {
		answer(conn, 403, "policy_denied", why)
		return
	}
	up, err := e.dial(port)
	if err != nil {
		answer(conn, 502, "upstream_unreachable", err.Error())
		return
	}
	defer up.Close()
	io.WriteString(conn, "HTTP/1.1 200 Connection Established\r\n\r\n")
	if !rule.Opaque {
		// It would be read as HTTP to the host itself, and another proxy's
		// CONNECT is no such thing.
		if first, err := in.Peek(8); err == nil && string(first) == "CONNECT " {
			answer(conn, 400, "bad_request", "request-target is not a valid origin-form path")
			return
		}
	}
	conn.SetReadDeadline(time.Time{})
	both(conn, in, up)
}

// head reads a request's head and answers its target; without CONNECT it is
// something that is no host and port.
func head(in *bufio.Reader) (string, error) {
	target, size := "", 0
	for i := 0; ; i++ {
		line, err := in.ReadString('\n')
		if size += len(line); err != nil || size > 8<<10 {
			return "", fmt.Errorf("no head of a request")
		}
		line = strings.TrimRight(line, "\r\n")
		if i == 0 {
			words := strings.Fields(line)
			if len(words) != 3 {
				return "", fmt.Errorf("no request")
			}
			if words[0] == "CONNECT" {
				target = words[1]
			}
		}
		if line == "" {
			return target, nil
		}
	}
}

func (e *exit) allowed(host, port string, programs []string) (Rule, string) {
	why := fmt.Sprintf("%s:%s is not in the policy", host, port)
	for _, r := range e.rules {
		if !strings.EqualFold(r.Host, host) || strconv.Itoa(int(r.Port)) != port {
			continue
		}
		if slices.ContainsFunc(r.Programs, func(p string) bool { return slices.Contains(programs, p) }) {
			return r, ""
		}
		why = fmt.Sprintf("binary %s not allowed for %s:%s", strings.Join(programs, " < "), host, port)
	}
	return Rule{}, why
}

// dial connects to the host. Only its alias can be in a rule that holds: there
// is nothing else to connect to.
func (e *exit) dial(port string) (net.Conn, error) {
	if e.host != "" {
		return net.DialTimeout("tcp", net.JoinHostPort(e.host, port), 10*time.Second)
	}
	conn, err := net.Dial("unix", Channel)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(conn, port)
	var ok [1]byte
	if _, err := io.ReadFull(conn, ok[:]); err != nil || ok[0] != '+' {
		conn.Close()
		return nil, fmt.Errorf("%s:%s does not answer", product.HostAlias, port)
	}
	return conn, nil
}

func answer(w io.Writer, code int, what, detail string) {
	body := fmt.Sprintf(`{"detail":%q,"error":%q}`, detail, what)
	fmt.Fprintf(w, "HTTP/1.1 %d Refused\r\nContent-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", code, len(body), body)
}

// both carries bytes either way until both have ended.
func both(down net.Conn, in io.Reader, up net.Conn) {
	var wait sync.WaitGroup
	wait.Go(func() {
		io.Copy(up, in)
		if half, ok := up.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	})
	io.Copy(down, up)
	if half, ok := down.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
	wait.Wait()
}

// asker are the programs behind a connection: the one that holds the other
// end, and its ancestors.
func asker(conn *net.TCPConn) []string {
	inode := inodeOf(conn)
	if inode == "" {
		return nil
	}
	links, _ := filepath.Glob("/proc/[0-9]*/fd/*")
	for _, link := range links {
		if to, err := os.Readlink(link); err == nil && to == "socket:["+inode+"]" {
			return chain(strings.Split(link, "/")[2])
		}
	}
	return nil
}

// inodeOf finds the other end in the table of the namespace that it is in.
func inodeOf(conn *net.TCPConn) string {
	tid, err := os.ReadFile(netnsFile)
	if err != nil {
		return ""
	}
	table, err := os.ReadFile("/proc/1/task/" + strings.TrimSpace(string(tid)) + "/net/tcp")
	if err != nil {
		return ""
	}
	local, remote := conn.RemoteAddr().(*net.TCPAddr), conn.LocalAddr().(*net.TCPAddr)
	want := [2]string{kernel(local), kernel(remote)}
	for line := range strings.Lines(string(table)) {
		fields := strings.Fields(line)
		if len(fields) > 9 && fields[1] == want[0] && fields[2] == want[1] {
			return fields[9]
		}
	}
	return ""
}

func kernel(a *net.TCPAddr) string {
	ip := a.IP.To4()
	return fmt.Sprintf("%02X%02X%02X%02X:%04X", ip[3], ip[2], ip[1], ip[0], a.Port)
}

func chain(pid string) []string {
	var programs []string
	for range 32 {
		exe, err := os.Readlink("/proc/" + pid + "/exe")
		if err != nil {
			break
		}
		programs = append(programs, exe)
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		if err != nil {
			break
		}
		// The name may hold anything; after the last parenthesis it does not.
		rest := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
		if len(rest) < 2 || rest[1] == "0" {
			break
		}
		pid = rest[1]
	}
	return programs
}
