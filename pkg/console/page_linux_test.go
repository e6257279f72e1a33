package console

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// shower shows what it holds to one user.
type shower struct {
	status api.Status
	checks api.Checks
	uid    int
	err    error
}

func (s shower) Status(_ context.Context, c Caller) (api.Status, error) {
	if c.UID != s.uid {
		return api.Status{}, &api.Problem{Code: "not-allowed", Sentence: fmt.Sprintf("this node serves user %d only", s.uid)}
	}
	return s.status, s.err
}

func (s shower) Checks(context.Context, Caller) (api.Checks, error) { return s.checks, nil }

// showing serves a page to connections of this user's, as the kernel tells.
func showing(t *testing.T, n PageNode) *PageListener {
	t.Helper()
	ln, err := ListenPage("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := NewPageServer(PageOptions{Node: n})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return ln
}

// said is the answer to a request, written as it stands but for $HOST.
func said(t *testing.T, ln *PageListener, request string) (*http.Response, string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", ln.Addr().String(), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	request = strings.ReplaceAll(strings.ReplaceAll(request, "$HOST", pageHost(ln.Addr())), "\n", "\r\n")
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	method, _, _ := strings.Cut(request, " ")
	r, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: method})
	if err != nil {
		t.Fatalf("%q: %v", request, err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, string(body)
}

// TestH14_OnePageOneHost: cookies do not know ports, and names that lead here do
// not make a page of somebody else's this one.
func TestH14_OnePageOneHost(t *testing.T) {
	t.Parallel()
	n := mine()
	n.status.Verdict.Sentence = "canary sentence"
	ln := showing(t, n)
	_, port, _ := net.SplitHostPort(ln.Addr().String())
	for _, tc := range []struct {
		request string
		want    int
	}{
		{"GET / HTTP/1.1\nHost: $HOST\n", 200},
		{"HEAD / HTTP/1.0\nHost: $HOST\n", 200},
		{"GET / HTTP/1.1\nHost: $HOST\nOrigin: http://$HOST\nSec-Fetch-Site: same-origin\n", 200},
		{"GET / HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: none\nSec-Fetch-Mode: navigate\n", 200},
		// A link on another page may be followed.
		{"GET / HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: document\n", 200},
		{"GET /style.css HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: same-origin\nSec-Fetch-Dest: style\n", 200},
		{"GET /other HTTP/1.1\nHost: $HOST\n", 404},
		{"GET /v1/status HTTP/1.1\nHost: $HOST\n", 404},
		{"GET //$HOST/../ HTTP/1.1\nHost: $HOST\n", 404},

		{"GET / HTTP/1.1\nHost: 127.0.0.1:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: localhost:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: mojoup-node.localhost\n", 421},
		{"GET / HTTP/1.1\nHost: mojoup-node.localhost:1\n", 421},
		{"GET / HTTP/1.1\nHost: mojoup-node.localhost.:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: x.mojoup-node.localhost:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: mojoup-node.localhost.evil.example:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: evil.example:" + port + "\n", 421}, // rebinding
		{"GET / HTTP/1.1\nHost: 127.0.0.1.nip.example:" + port + "\n", 421},
		{"GET / HTTP/1.1\nHost: user@$HOST\n", 400},
		{"GET / HTTP/1.0\n", 421},
		{"GET http://evil.example/ HTTP/1.1\nHost: $HOST\n", 421},
		{"GET /style.css HTTP/1.1\nHost: evil.example\n", 421},
		{"GET / HTTP/1.1\n", 400},
		{"GET / HTTP/1.1\nHost: $HOST\nHost: $HOST\n", 400},

		{"GET / HTTP/1.1\nHost: $HOST\nOrigin: http://evil.example\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nOrigin: null\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nOrigin: https://$HOST\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nOrigin: http://mojoup-node.localhost:3000\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: image\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: same-site\nSec-Fetch-Mode: cors\nSec-Fetch-Dest: empty\n", 403},
		{"GET / HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: navigate\nSec-Fetch-Dest: iframe\n", 403},
		{"GET /style.css HTTP/1.1\nHost: $HOST\nSec-Fetch-Site: cross-site\nSec-Fetch-Mode: no-cors\nSec-Fetch-Dest: style\n", 403},

		{"POST / HTTP/1.1\nHost: $HOST\nContent-Length: 0\n", 405},
		{"DELETE / HTTP/1.1\nHost: $HOST\n", 405},
		{"OPTIONS * HTTP/1.1\nHost: $HOST\n", 405},
		{"CONNECT $HOST HTTP/1.1\nHost: $HOST\n", 405},
	} {
		r, body := said(t, ln, tc.request)
		if r.StatusCode != tc.want {
			t.Errorf("%q is answered %d, want %d", tc.request, r.StatusCode, tc.want)
		}
		if tc.want != 200 && strings.Contains(body, "canary sentence") {
			t.Errorf("%q is shown what the node said", tc.request)
		}
		if tc.want == 400 {
			continue // before anything of ours
		}
		for name, want := range map[string]string{
			"Content-Security-Policy": pagePolicy, "X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff",
			"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "Cross-Origin-Resource-Policy": "same-origin",
			"Set-Cookie": "", "Access-Control-Allow-Origin": "",
		} {
			if got := r.Header.Get(name); got != want {
				t.Errorf("%q: %s is %q, want %q", tc.request, name, got, want)
			}
		}
		if !r.Close {
			t.Errorf("%q: the connection is kept, whoever may have it later", tc.request)
		}
	}
}

// TestTextStaysText: what a session or a repository is called never becomes a
// part of the page, nor is it other than it looks.
func TestTextStaysText(t *testing.T) {
	t.Parallel()
	n := mine()
	hostile := "<script>alert(1)</script>\" onmouseover='x' \u202egnp.exe\x1b[31m\x00\xff{{.}}"
	n.status.Verdict.Sentence, n.status.Verdict.Reason, n.status.Verdict.Note = hostile, hostile, hostile
	n.status.Sessions = []api.Session{{
		ID: hostile, Command: []string{hostile, hostile}, Tool: hostile, Repository: hostile, State: hostile, User: hostile, Engine: hostile, Sandboxed: true,
		Notices: []string{hostile},
	}}
	n.status.Queue = []api.Waiting{{User: hostile, Reason: hostile}}
	n.status.Leftovers, n.status.Repaired, n.status.Unheard = []string{hostile}, []string{hostile}, []string{hostile}
	n.checks = api.Checks{At: time.Now(), Engines: []api.EngineLine{{Engine: hostile, Reason: hostile}}, Checks: []api.Check{{Title: hostile, State: "fail\" x=\"", Found: hostile, Needed: hostile, Mend: hostile}}}
	_, body := said(t, showing(t, n), "GET / HTTP/1.1\nHost: $HOST\n")
	for _, bad := range []string{"<script", "onmouseover='", "\u202e", "\x1b", "\x00", `x="`, "ZgotmplZ"} {
		if strings.Contains(body, bad) {
			t.Errorf("the page holds %q", bad)
		}
	}
	if n := strings.Count(body, `\u{202e}gnp.exe\u{1b}[31m\u{0}`); n < 20 {
		t.Errorf("the text is shown %d times", n)
	}
}

// TestThePageSaysWhatStatusSays in each of its states.
func TestThePageSaysWhatStatusSays(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		change func(*shower)
		want   []string
	}{
		"able": {func(s *shower) { s.status.Verdict.Note = "not offered: set node.roles.sandbox" },
			[]string{`class="verdict able"`, "<h1 id=\"verdict\">Agents run in a sandbox</h1>", "not offered: set node.roles.sandbox", "No session lives", "auto (takes native)", "Sessions (0)"}},
		"unable": {func(s *shower) {
			s.status.Verdict = api.Verdict{Sentence: "This machine cannot sandbox agents", Reason: "there is no wall", Engine: "native"}
			s.checks.Checks = append(s.checks.Checks, api.Check{Title: "Wall", State: "fail", Found: "none", Reason: "there is no wall", Mend: "build one"})
		}, []string{`class="verdict unable"`, "there is no wall", "<strong>To mend it:</strong> build one", `<li class="fail"><span class="state">failed</span> <strong>Wall:</strong> none`}},
		"off": {func(s *shower) {
			s.status.Verdict = api.Verdict{Sentence: "Sandboxing is switched off on this node", Engine: "off"}
		}, []string{`class="verdict off"`}},
		"pending": {func(s *shower) { s.status.Verdict.Pending, s.status.Verdict.Able, s.checks = true, false, api.Checks{} }, []string{`class="verdict pending"`, "They still run"}},
		"sessions": {func(s *shower) {
			s.status.Sessions = []api.Session{
				{ID: "abcdefgh", Tool: "claude", State: "running", Engine: "docker", Sandboxed: true, User: "ann", Repository: "/home/ann/x", Since: time.Now().Add(-3 * time.Minute),
					Stages: []api.Stage{{Name: api.StageQueue, Milliseconds: 9000}, {Name: "sandbox", Milliseconds: 20}, {Name: "check", Milliseconds: 5}}, Allowed: 3, Denied: 1},
				{ID: "ijklmnop", Command: []string{"make", "test"}, State: "running", Engine: "process", Notices: []string{"a plain warning"}},
			}
			s.status.Queue = []api.Waiting{{User: "bob", Reason: "all slots are taken", Since: time.Now()}}
		}, []string{"Sessions (2)", "<h3>claude</h3>", "25 ms", "3 allowed, 1 denied", "(3 min)", "<h3>make test</h3>", "<strong>not sandboxed</strong>", "a plain warning", "Waiting for a slot (1)", "all slots are taken"}},
		"a system node": {func(s *shower) { s.status.Node.System, s.status.Unheard = true, []string{"ann: no answer"} }, []string{"for several people", "no answer about ann: no answer"}},
		"somebody else": {func(s *shower) { s.uid++ }, []string{"<h1>this node serves user"}},
		"a fault":       {func(s *shower) { s.err = io.ErrUnexpectedEOF }, []string{"<h1>the node met an error of its own</h1>", "log has the details"}},
	} {
		n := mine()
		tc.change(&n)
		_, body := said(t, showing(t, n), "GET / HTTP/1.1\nHost: $HOST\n")
		for _, want := range tc.want {
			if !strings.Contains(body, want) {
				t.Errorf("%s: the page lacks %q:\n%s", name, want, body)
			}
		}
	}
}

// TestThePageStaysOnThisMachine: there is no TLS.
func TestThePageStaysOnThisMachine(t *testing.T) {
	t.Parallel()
	for text, good := range map[string]bool{
		"127.0.0.1:7717": true, "127.0.0.1:0": true, "[::1]:7717": true,
		"0.0.0.0:7717": false, "[::]:7717": false, ":7717": false, "192.0.2.1:7717": false, "10.0.0.1:7717": false, "[fe80::1%lo]:7717": false,
		"localhost:7717": false, "mojoup-node.localhost:7717": false, "127.0.0.1": false, "127.0.0.1:65536": false, "127.0.0.1:-1": false, "127.0.0.1:http": false,
		"127.0.0.2:7717": false, "[::ffff:127.0.0.1]:7717": false, "[::1%1]:7717": false, "": false, "off": false,
	} {
		if _, err := ParsePageAddress(text); (err == nil) != good {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestAPlaceThatIsTaken is no reason not to serve, and is had once it is free.
func TestAPlaceThatIsTaken(t *testing.T) {
	t.Parallel()
	other, err := ListenPage("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := OpenPage(other.Addr().String())
	if url, why := p.Shown(); url != "" || why != "another program listens on "+other.Addr().String() {
		t.Errorf("a taken place is shown as %q, %q", url, why)
	}
	if at := p.Ports(); len(at) != 1 || at[0].String() != other.Addr().String() {
		t.Errorf("sessions are kept from %v", at)
	}
	if err := other.Close(); err != nil {
		t.Fatal(err)
	}
	if ln := p.Await(t.Context()); ln == nil {
		t.Fatal("a free place is not had")
	}
	defer p.Close()
	if url, why := p.Shown(); url != "http://"+pageHost(other.Addr())+"/" || why != "" {
		t.Errorf("it is shown as %q, %q", url, why)
	}
	off := OpenPage(PageOff)
	if url, why := off.Shown(); url+why != "" || off.Ports() != nil || off.Await(t.Context()) != nil {
		t.Errorf("a page that is off is shown as %q, %q", url, why)
	}
}
