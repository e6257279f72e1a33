package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// Whoever asks must not be able to fill the disk with what is recorded of it.
func TestRecordedVerdictsAreBounded(t *testing.T) {
	long := func(n int) string { return strings.Repeat("&", n) }
	small := func(t *testing.T, v Verdict) {
		t.Helper()
		if len(v.Method) > 32 || len(v.Host) > 253 || len(v.Path) > 2048 || len(v.Reason) > 512 || len(v.Rule) > 512 || len(v.Layer) > 512 {
			t.Errorf("recorded method %d, host %d, path %d, reason %d, rule %d, layer %d bytes",
				len(v.Method), len(v.Host), len(v.Path), len(v.Reason), len(v.Rule), len(v.Layer))
		}
	}
	for name, tt := range map[string]struct {
		raw    string
		status int
		method string
	}{
		"longest":     {long(32) + " http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 200, long(32)},
		"too long":    {long(33) + " http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 501, long(32)},
		"60 000":      {long(60000) + " http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 501, long(32)},
		"host":        {"GET http://" + long(60000) + "/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n", 400, ""},
		"host field":  {"GET http://api.x.example/ HTTP/1.1\r\nHost: " + long(60000) + "\r\n\r\n", 400, ""},
		"path":        {"GET http://evil.example/" + long(60000) + " HTTP/1.1\r\nHost: evil.example\r\n\r\n", 403, "GET"},
		"CONNECT":     {"CONNECT " + strings.Repeat("a", 60000) + ":443 HTTP/1.1\r\n\r\n", 400, "CONNECT"},
		"long reason": {"GET http://reason.example/ HTTP/1.1\r\nHost: reason.example\r\n\r\n", 403, "GET"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, judgeFunc(func(r policy.Request) policy.Decision {
				if r.Host == "reason.example" {
					return policy.Decision{Reason: long(9000), Rule: long(9000), Layer: long(9000)}
				}
				return policy.Decision{Allowed: r.Host == "api.x.example"}
			}))
			w.serve(80, false, func(http.ResponseWriter, *http.Request) {})
			res, _ := w.send(tt.raw)
			if res.StatusCode != tt.status {
				t.Errorf("answered %d, want %d", res.StatusCode, tt.status)
			}
			v := w.wait("any", func(Verdict) bool { return true })
			small(t, v)
			if v.Method != tt.method || v.Allowed != (tt.status == 200) {
				t.Errorf("recorded %.40q, allowed %t, want %.40q", v.Method, v.Allowed, tt.method)
			}
		})
	}
	for _, allowed := range []bool{true, false} {
		t.Run(fmt.Sprintf("HTTP/2, allowed=%t", allowed), func(t *testing.T) {
			host := "api.x.example"
			if !allowed {
				host = "evil.example"
			}
			w := newWorld(t, inspecting("api.x.example"))
			w.serve(443, true, func(http.ResponseWriter, *http.Request) { t.Error("it reached the host") })
			req, err := http.NewRequest(long(40000), "https://"+host+"/", nil)
			if err != nil {
				t.Fatal(err)
			}
			res, err := w.client(true).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			res.Body.Close()
			v := w.wait("the refusal", func(v Verdict) bool { return !v.Allowed })
			small(t, v)
			if v.Method != long(32) || res.StatusCode != 501 || v.Host != host {
				t.Errorf("answered %d, recorded %s %.40q", res.StatusCode, v.Host, v.Method)
			}
		})
	}
}

// net/http would answer OPTIONS * by itself: for denied hosts too, and nobody
// would know.
func TestOptionsOfTheWholeServerIsJudged(t *testing.T) {
	const star = "OPTIONS * HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n"
	w := newWorld(t, judgeFunc(func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: r.Host == "api.x.example", Inspect: r.TLS && r.Method == "", Rule: "rule 1"}
	}))
	seen := make(chan string, 4)
	origin := func(rw http.ResponseWriter, r *http.Request) {
		seen <- r.Method + " " + r.RequestURI
		rw.WriteHeader(http.StatusAccepted)
	}
	server := w.serve(443, true, origin)
	server.Config.DisableGeneralOptionsHandler = true

	if res, _ := w.send(fmt.Sprintf(star, "api.x.example")); res.StatusCode != 400 {
		t.Errorf("to the proxy itself: %d", res.StatusCode)
	}
	if got := w.recorded(); len(got) != 1 || got[0].Allowed || got[0].Method != "OPTIONS" {
		t.Errorf("recorded %+v", got)
	}
	ask := func(host string) int {
		c := w.inside(host+":443", "http/1.1")
		fmt.Fprintf(c, star, host)
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode
	}
	if got := ask("evil.example"); got != 403 {
		t.Errorf("to a denied host: %d", got)
	}
	w.wait("the denial", func(v Verdict) bool { return v.Host == "evil.example" && v.Method == "OPTIONS" && !v.Allowed })
	if got := ask("api.x.example"); got != 202 {
		t.Errorf("to an allowed host: %d", got)
	}
	w.wait("the allow", func(v Verdict) bool { return v.Host == "api.x.example" && v.Method == "OPTIONS" && v.Allowed })
	if got := <-seen; got != "OPTIONS *" {
		t.Errorf("the host saw %q", got)
	}
}

// What lies in one segment with the head of an upgrade, or of its answer,
// arrives whole.
func TestBytesBehindAnUpgradeArriveWhole(t *testing.T) {
	const early, late = "GET /first", " and the rest"
	for _, secure := range []bool{false, true} {
		t.Run(fmt.Sprintf("secure=%t", secure), func(t *testing.T) {
			port, line := uint16(80), "GET http://api.x.example/v1/ws HTTP/1.1\r\n"
			if secure {
				port, line = 443, "GET /v1/ws HTTP/1.1\r\n"
			}
			w := newWorld(t, reading("api.x.example", port))
			got := make(chan string, 1)
			w.serve(port, secure, func(rw http.ResponseWriter, r *http.Request) {
				c, brw, err := http.NewResponseController(rw).Hijack()
				if err != nil {
					t.Error(err)
					return
				}
				defer c.Close()
				io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+early)
				all, err := io.ReadAll(brw)
				if err != nil {
					t.Error(err)
				}
				got <- string(all)
			})
			var c net.Conn = w.raw()
			if secure {
				c = w.inside("api.x.example:443", "http/1.1")
			}
			io.WriteString(c, line+"Host: api.x.example\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n"+early)
			br := bufio.NewReader(c)
			res, err := http.ReadResponse(br, nil)
			if err != nil || res.StatusCode != 101 {
				t.Fatalf("%v %v", res, err)
			}
			io.WriteString(c, late)
			back := make([]byte, len(early))
			if _, err := io.ReadFull(br, back); err != nil || string(back) != early {
				t.Errorf("the client got %q, %v", back, err)
			}
			c.(interface{ CloseWrite() error }).CloseWrite()
			if all := <-got; all != early+late {
				t.Errorf("the host got %q", all)
			}
		})
	}
}

// A node that cannot write down what it lets through lets nothing through,
// whatever the policy says, and what asks can read why.
func TestClosedWayOutLetsNothingPass(t *testing.T) {
	const why = "the node cannot record what it lets through"
	w := newWorld(t, judgeFunc(func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: true, Inspect: r.TLS && r.Port == 443 && r.Method == ""}
	}))
	w.serve(443, true, func(http.ResponseWriter, *http.Request) {})
	w.serve(80, false, func(http.ResponseWriter, *http.Request) {})
	w.stop()
	var closed atomic.Bool
	w.session.Closed = func() string {
		if closed.Load() {
			return why
		}
		return ""
	}
	w.start()
	kept := w.client(false)
	if status, body, _ := w.get(kept, "https://api.x.example/"); status != 200 {
		t.Fatalf("open: %d %q", status, body)
	}
	dialled := len(w.dials())
	closed.Store(true)
	if status, body, _ := w.get(kept, "https://api.x.example/"); status != 503 || !strings.Contains(body, why) {
		t.Errorf("on a connection from before: %d %q", status, body)
	}
	for _, h2 := range []bool{false, true} {
		if status, body, _ := w.get(w.client(h2), "https://api.x.example/"); status != 503 || !strings.Contains(body, why) {
			t.Errorf("in TLS: %d %q", status, body)
		}
	}
	if res, body := w.send("GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n"); res.StatusCode != 503 || !strings.Contains(body, why) {
		t.Errorf("plain: %d %q", res.StatusCode, body)
	}
	if _, line := w.connect("api.x.example:8443"); !strings.HasPrefix(line, "503 ") || !strings.Contains(line, why) {
		t.Errorf("CONNECT: %q", line)
	}
	if n := w.count(false); n != 5 || len(w.dials()) != dialled {
		t.Errorf("%d denials are recorded, %d dialled", n, len(w.dials())-dialled)
	}
	closed.Store(false)
	if status, body, _ := w.get(w.client(true), "https://api.x.example/"); status != 200 {
		t.Errorf("open again: %d %q", status, body)
	}
}

// What was allowed and could not be done is no denial, and its record says why
// it came to nothing.
func TestFailuresAreRecorded(t *testing.T) {
	for name, tt := range map[string]struct {
		judge  judgeFunc
		target string
		route  string
		says   string
	}{
		"tunnel, no such name":  {only("unknown.example", 443), "https://unknown.example/", "", "no such name"},
		"tunnel, refused":       {only("api.x.example", 443), "https://api.x.example/", "127.0.0.1:1", "refused the connection"},
		"inspect, no such name": {inspecting("unknown.example"), "https://unknown.example/", "", "no such name"},
		"inspect, refused":      {inspecting("api.x.example"), "https://api.x.example/", "127.0.0.1:1", "refused the connection"},
		"plain, refused":        {only("api.x.example", 80), "http://api.x.example/", "127.0.0.1:1", "refused the connection"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.judge)
			w.route(443, tt.route)
			w.route(80, tt.route)
			w.stop()
			var late []Verdict
			w.session.Failed = func(v Verdict) {
				w.mu.Lock()
				defer w.mu.Unlock()
				late = append(late, v)
			}
			w.start()
			if res, err := w.client(false).Get(tt.target); err == nil {
				res.Body.Close()
				if res.StatusCode != 502 {
					t.Errorf("answered %d", res.StatusCode)
				}
			}
			w.stop() // so that all is recorded
			failed := 0
			for _, v := range append(w.recorded(), late...) {
				if !v.Allowed {
					t.Errorf("a failure counts as a denial: %+v", v)
				}
				if v.Failure != "" {
					failed++
					if !strings.Contains(v.Failure, tt.says) {
						t.Errorf("failure %q", v.Failure)
					}
				}
			}
			if failed != 1 {
				t.Errorf("%d failures: recorded %+v, late %+v", failed, w.recorded(), late)
			}
		})
	}
}
