package sandboxtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// testDirect has programs that know no proxy reach what tcp rules name in full,
// and others the same by the proxy. What an engine does not open it must say.
func testDirect(t *testing.T, s *suite) {
	spec := s.spec(t, s.newPlace(t))
	spec.Direct = []sandbox.Direct{
		{Host: "db.example", Port: 5432, Address: "127.0.1.1"}, {Host: "db.example", Port: 5433, Address: "127.0.1.1"},
		{Host: "refused.example", Port: 5432, Address: "127.0.1.2"}, {Host: "low.example", Port: 22, Address: "127.0.1.3"},
	}
	b, tunnels := s.tunnelled(t, spec)
	facts, err := b.Check(deadline(t))
	must(t, err)
	said := slices.IndexFunc(facts, func(f sandbox.Fact) bool { return f.Name == sandbox.FactDirect })
	if said < 0 {
		t.Fatalf("nothing is said of %s", sandbox.FactDirect)
	}
	fact := facts[said]
	// The server speaks first, as those of databases do.
	const speak = `read -r greeting <&3 && echo "$greeting" && echo select >&3 && read -r answer <&3 && echo "$answer"`
	byProxy := `exec 3<>/dev/tcp/` + strings.Replace(proxyAddress, ":", "/", 1) + ` && printf 'CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n' "$0" "$0" >&3 &&
while read -r line <&3 && [ "${line%?}" ]; do :; done && ` + speak
	direct := `exec 3<>"/dev/tcp/${0%:*}/${0##*:}" && ` + speak
	reach := func(script, to string) result {
		return b.run(sandbox.Command{Argv: []string{"bash", "-c", script, to}})
	}
	well := func(to string) string { return "welcome to " + to + "\nselect from " + to + "\n" }
	if r := reach(byProxy, "db.example:5432"); r.out != well("db.example:5432") {
		t.Errorf("by the proxy: exit %d, %q %q", r.Code, r.out, r.err)
	}
	t.Logf("%s: %s", fact.Strength, fact.Detail)
	if fact.Strength == sandbox.Absent {
		return
	}
	for _, d := range spec.Direct {
		to := fmt.Sprintf("%s:%d", d.Host, d.Port)
		r := reach(direct, to)
		switch {
		case d.Host == "refused.example":
			if r.Code == 0 || r.out != "" || !tunnels.asked(to) {
				t.Errorf("what the proxy refuses: exit %d, %q, asked: %t", r.Code, r.out, tunnels.asked(to))
			}
		case strings.Contains(fact.Detail, to):
			if r.Code == 0 || fact.Strength != sandbox.Weaker {
				t.Errorf("%s is said not to be reached, as %s, and is: %q", to, fact.Strength, r.out)
			}
		case r.out != well(to):
			t.Errorf("%s: exit %d, %q %q", to, r.Code, r.out, r.err)
		}
	}
	if r := reach(direct, "other.example:5432"); r.Code == 0 {
		t.Errorf("a name that nobody gave means something inside: %q", r.out)
	}
}

// tunnelled is a sandbox whose way out opens tunnels.
func (s *suite) tunnelled(t *testing.T, spec sandbox.Spec) (*box, *tunnels) {
	t.Helper()
	made, err := s.newEngine(t).Prepare(deadline(t), spec)
	must(t, err)
	served := make(chan struct{})
	var all tunnels
	go func() { defer close(served); all.serve(made.Listener()) }()
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := made.Remove(ctx); err != nil {
			t.Errorf("Remove: %v", err)
		}
		_ = made.Listener().Close()
		<-served
	})
	return &box{Sandbox: made, t: t}, &all
}

// tunnels is a proxy that opens all tunnels but those to refused.example, and is
// every server at their other end.
type tunnels struct {
	mu  sync.Mutex // guards all
	all []string
}

func (p *tunnels) asked(to string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Contains(p.all, to)
}

func (p *tunnels) serve(l net.Listener) {
	var all sync.WaitGroup
	defer all.Wait()
	for {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		all.Go(func() {
			defer conn.Close()
			_ = conn.SetDeadline(time.Now().Add(patience))
			p.one(conn)
		})
	}
}

func (p *tunnels) one(conn net.Conn) {
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	switch {
	case err != nil:
		return
	case req.Method != http.MethodConnect:
		_, _ = io.WriteString(conn, healthy)
		return
	}
	p.mu.Lock()
	p.all = append(p.all, req.Host)
	p.mu.Unlock()
	if strings.HasPrefix(req.Host, "refused.") {
		_, _ = io.WriteString(conn, "HTTP/1.1 403 No\r\nContent-Length: 0\r\n\r\n")
		return
	}
	fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n\r\nwelcome to %s\n", req.Host)
	if line, err := in.ReadString('\n'); err == nil {
		fmt.Fprintf(conn, "%s from %s\n", strings.TrimSpace(line), req.Host)
	}
}
