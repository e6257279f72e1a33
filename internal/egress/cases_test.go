package egress

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// rules compiles a repository's network rules with the real policy.
func rules(t *testing.T, network string) Judge {
	t.Helper()
	doc, err := policy.Parse("policy.json", []byte(`{"version": 1, "network": `+network+`}`))
	if err != nil {
		t.Fatal(err)
	}
	e, err := policy.Compile([]policy.Layer{{Name: policy.LayerRepository, Document: doc}}, nil, policy.BuiltinPresets())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// status is the answer to a CONNECT. The tests ask for port 8443, where a
// denial needs no TLS to be seen.
func (w *world) status(target string) string {
	_, line := w.connect(target)
	return line[:3]
}

func TestB11_SuffixNeedsALabelBoundary(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [{"hosts": ["*.corp.example", "pypi.example"], "ports": [8443]}]}`))
	w.echo(8443)
	for target, want := range map[string]string{
		"a.corp.example":              "200",
		"PyPI.EXAMPLE":                "200",
		"a.b.corp.example":            "403",
		"corp.example":                "403",
		"evilcorp.example":            "403",
		"a.corp.example.evil.example": "403",
		"notpypi.example":             "403",
		"pypi.example.evil.example":   "403",
	} {
		w.resolver.set(target, publicAddr)
		if got := w.status(target + ":8443"); got != want {
			t.Errorf("CONNECT %s:8443 = %s, want %s", target, got, want)
		}
	}
}

func (r *resolver) set(name string, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers[strings.ToLower(name)] = [][]string{addrs}
}

func TestB13_OneHostOneSpelling(t *testing.T) {
	allow := rules(t, `{"rules": [{"hosts": ["api.x.example"], "ports": [8443]}]}`)
	deny := rules(t, `{"rules": [{"hosts": ["**.x.example"], "ports": [8443]}], "deny": [{"hosts": ["api.x.example"]}]}`)
	for _, tt := range []struct {
		target, allowed, denied string
	}{
		{"api.x.example:8443", "200", "403"},
		{"API.X.example:8443", "200", "403"},
		{"api.x.example.:8443", "200", "403"},
		{"api.x.example..:8443", "400", "400"},
		{".api.x.example:8443", "400", "400"},
		{"api.x.example:08443", "400", "400"},
		{"[api.x.example]:8443", "400", "400"},
		{"api.x.example:8443\t", "400", "400"},
		{"api.x.example :8443", "400", "400"},
		{"api\x00.x.example:8443", "400", "400"},
		{"api.x.example%00:8443", "400", "400"},
		{"äpi.x.example:8443", "400", "400"},
	} {
		for judge, want := range map[Judge]string{allow: tt.allowed, deny: tt.denied} {
			w := newWorld(t, judge)
			w.echo(8443)
			res, _ := w.send("CONNECT " + tt.target + " HTTP/1.1\r\n\r\n")
			if got := fmt.Sprint(res.StatusCode); got != want {
				t.Errorf("CONNECT %q = %s, want %s", tt.target, got, want)
			}
			if want == "200" && fmt.Sprint(w.resolver.names(), w.dials()) != "[api.x.example] [203.0.113.7:8443]" {
				t.Errorf("CONNECT %q asked for %v and dialled %v", tt.target, w.resolver.names(), w.dials())
			}
			if want != "200" && len(w.dials())+len(w.resolver.names()) > 0 {
				t.Errorf("CONNECT %q asked for %v and dialled %v", tt.target, w.resolver.names(), w.dials())
			}
			if n := len(w.recorded()); n != 1 {
				t.Errorf("CONNECT %q: %d verdicts", tt.target, n)
			}
		}
	}
}

func TestB15_SpecialAddressesByLiteralAndByName(t *testing.T) {
	everything := judgeFunc(func(r policy.Request) policy.Decision {
		return policy.Decision{Allowed: true, Rule: "rule 1"}
	})
	for _, tt := range []struct {
		addr, literal string // literal: answer to CONNECT [addr]:8443
	}{
		{"::ffff:127.0.0.1", "403"},
		{"::ffff:7f00:1", "403"},
		{"::ffff:0:7f00:1", "403"},
		{"::127.0.0.1", "403"},
		{"64:ff9b::7f00:1", "403"},
		{"2002:7f00:1::", "403"},
		{"fd00::1", "403"},
		{"fd00::1%eth0", "400"},
		{"fd00::1%25eth0", "400"},
		{"fe80::1", "403"},
		{"::", "403"},
		{"::1", "403"},
		{"0.0.0.0", "403"},
		{"127.0.0.1", "403"},
		{"10.1.2.3", "403"},
		{"100.64.0.1", "403"},
		{"198.18.0.1", "403"},
		{"224.0.0.1", "403"},
		{"169.254.169.254", "403"},
		{"2001:db8::1", "200"},
		{publicAddr, "200"},
	} {
		w := newWorld(t, everything)
		w.echo(8443)
		host := tt.addr
		if strings.Contains(host, ":") {
			host = "[" + host + "]"
		}
		if got := w.status(host + ":8443"); got != tt.literal {
			t.Errorf("CONNECT %s = %s, want %s", tt.addr, got, tt.literal)
		}
		want := tt.literal
		if want == "400" {
			want = "403"
		}
		w.resolver.set("flip.example", tt.addr)
		if got := w.status("flip.example:8443"); got != want {
			t.Errorf("CONNECT to a name with %s = %s, want %s", tt.addr, got, want)
		}
		if tt.literal != "200" && len(w.dials()) > 0 {
			t.Errorf("%s was dialled: %v", tt.addr, w.dials())
		}
	}
}

func TestB15_MixedAnswerIsDialledOnThePublicAddressOnly(t *testing.T) {
	w := newWorld(t, only("mixed.example", 8443))
	w.echo(8443)
	w.resolver.set("mixed.example", "10.0.0.1", publicAddr, "169.254.169.254")
	if got := w.status("mixed.example:8443"); got != "200" {
		t.Errorf("got %s", got)
	}
	if diff := cmp.Diff([]string{publicAddr + ":8443"}, w.dials()); diff != "" {
		t.Error(diff)
	}
}

func TestB15_PrivateAddressNeedsRuleAndNode(t *testing.T) {
	for _, tt := range []struct {
		rule, node bool
		want       string
	}{{true, true, "200"}, {true, false, "403"}, {false, true, "403"}} {
		judge := judgeFunc(func(policy.Request) policy.Decision {
			d := policy.Decision{Allowed: true, Raw: true}
			if tt.rule {
				d.Addresses = []netip.Prefix{netip.MustParsePrefix("10.1.2.3/32")}
			}
			return d
		})
		w := newWorld(t, judge, func(o *Options, _ *limits) {
			if tt.node {
				o.Private = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
			}
		})
		w.echo(5432)
		for _, host := range []string{"10.1.2.3", "[::ffff:10.1.2.3]"} {
			if got := w.status(host + ":5432"); got != tt.want {
				t.Errorf("%s, rule %t, node %t: %s, want %s", host, tt.rule, tt.node, got, tt.want)
			}
		}
		if got := w.status("10.1.2.4:5432"); got != "403" {
			t.Errorf("10.1.2.4: %s", got)
		}
	}
}

func TestB16_PortIsPartOfTheRule(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [{"hosts": ["api.x.example"], "ports": [8443]}]}`))
	w.echo(8443)
	for _, tt := range []struct{ target, want string }{
		{"api.x.example:8443", "200"}, {"api.x.example:22", "403"}, {"api.x.example:80", "403"},
		{"api.x.example:8080", "403"}, {"api.x.example:9999", "403"},
		{"api.x.example:0", "400"}, {"api.x.example:65536", "400"}, {"api.x.example:-1", "400"}, {"api.x.example:84430", "400"},
	} {
		if got := w.status(tt.target); got != tt.want {
			t.Errorf("CONNECT %s = %s, want %s", tt.target, got, tt.want)
		}
	}
	for _, port := range []string{"", ":80", ":22", ":443"} {
		if res, _ := w.send("GET http://api.x.example" + port + "/ HTTP/1.1\r\nHost: api.x.example" + port + "\r\n\r\n"); res.StatusCode != 403 {
			t.Errorf("plain to %q: %d", port, res.StatusCode)
		}
	}
}

func TestB17_PlainRequestsAreJudgedLikeTunnels(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [{"hosts": ["docs.x.example"], "ports": [80], "methods": ["GET"], "paths": ["/v1/**"]}]}`))
	w.resolver.set("docs.x.example", publicAddr)
	var reached atomic.Int32
	var upgrade atomic.Value
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) {
		reached.Add(1)
		upgrade.Store(fmt.Sprint(r.Header["Upgrade"], r.Header["Http2-Settings"], r.Header["Connection"]))
		fmt.Fprint(rw, r.Method, " ", r.RequestURI)
	})
	for _, tt := range []struct {
		line, fields string
		status       int
		body         string
	}{
		{"GET http://docs.x.example/v1/a HTTP/1.1", "", 200, "GET /v1/a"},
		{"GET HTTP://DOCS.x.example.:80/v1/a?q=%2f HTTP/1.1", "", 200, "GET /v1/a?q=%2f"},
		{"GET http://docs.x.example/v1//a/./%62 HTTP/1.1", "", 200, "GET /v1/a/b"},
		{"GET http://docs.x.example/v1/a HTTP/1.0", "", 200, "GET /v1/a"},
		{"GET http://docs.x.example/v1/a HTTP/1.1", "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n", 200, "GET /v1/a"},
		{"GET http://other.x.example/v1/a HTTP/1.1", "", 403, ""},
		{"POST http://docs.x.example/v1/a HTTP/1.1", "Content-Length: 3\r\n", 403, ""},
		{"DELETE http://docs.x.example/v1/a HTTP/1.1", "", 403, ""},
		{"get http://docs.x.example/v1/a HTTP/1.1", "", 403, ""},
		{"PROPFIND http://docs.x.example/v1/a HTTP/1.1", "", 403, ""},
		{"TRACE http://docs.x.example/v1/a HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example/v2/a HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example/v1/../v2/a HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example/v1/%2e%2e/v2/a HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example?/v1/a HTTP/1.1", "", 403, ""},
		{"GET http://docs.x.example/../v1/a HTTP/1.1", "", 400, ""},
		{"GET http://docs.x.example/v1/a HTTP/1.1", "Host: other.x.example\r\n", 400, ""},
		{"GET https://docs.x.example/v1/a HTTP/1.1", "", 400, ""},
		{"GET ftp://docs.x.example/v1/a HTTP/1.1", "", 400, ""},
		{"GET http://user@docs.x.example/v1/a HTTP/1.1", "", 400, ""},
		{"GET http://docs.x.example:80:80/v1/a HTTP/1.1", "", 400, ""},
		{"GET http:///v1/a HTTP/1.1", "", 400, ""},
		{"GET /v1/a HTTP/1.1", "", 400, ""},
		{"GET * HTTP/1.1", "", 400, ""},
	} {
		before := reached.Load()
		host := "Host: docs.x.example\r\n"
		switch {
		case strings.Contains(tt.fields, "Host:"):
			host = ""
		case strings.Contains(tt.line, "other."):
			host = "Host: other.x.example\r\n"
		}
		res, body := w.send(tt.line + "\r\n" + host + tt.fields + "\r\n")
		if res.StatusCode != tt.status || tt.body != "" && body != tt.body {
			t.Errorf("%s: %d %q, want %d %q", tt.line, res.StatusCode, body, tt.status, tt.body)
		}
		if (reached.Load() > before) != (tt.status == 200) {
			t.Errorf("%s: reached the server %d times", tt.line, reached.Load()-before)
		}
		if tt.status == 403 && (!strings.Contains(body, "work around") || res.Header.Get("Content-Type") != "text/plain; charset=utf-8") {
			t.Errorf("%s: the denial reads %q", tt.line, body)
		}
		if v := upgrade.Load(); v != nil && v != "[] [] []" {
			t.Errorf("%s: upstream sees upgrade fields %v", tt.line, v)
		}
	}
	if allowed := w.count(true); allowed != int(reached.Load()) {
		t.Errorf("%d allows are recorded, %d requests arrived", allowed, reached.Load())
	}
}

func (w *world) count(allowed bool) (n int) {
	for _, v := range w.recorded() {
		if v.Allowed == allowed {
			n++
		}
	}
	return n
}

func TestB17_CONNECTToPort80IsJudgedPerRequest(t *testing.T) {
	w := newWorld(t, rules(t, `{"rules": [{"hosts": ["docs.x.example"], "ports": [80], "methods": ["GET"], "paths": ["/v1/**"]}]}`))
	w.resolver.set("docs.x.example", publicAddr)
	w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, r.Method, r.URL.Path) })
	c, line := w.connect("docs.x.example:80")
	if !strings.HasPrefix(line, "200") {
		t.Fatal(line)
	}
	br := bufio.NewReader(c)
	for _, tt := range []struct {
		method, path string
		status       int
	}{{"GET", "/v1/a", 200}, {"POST", "/v1/a", 403}, {"GET", "/v2/a", 403}} {
		fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: docs.x.example\r\n\r\n", tt.method, tt.path)
		res, err := http.ReadResponse(br, nil)
		if err != nil || res.StatusCode != tt.status {
			t.Fatalf("%s %s: %v %v", tt.method, tt.path, res, err)
		}
		io.Copy(io.Discard, res.Body)
	}
}

func TestB32_MalformedCONNECT(t *testing.T) {
	w := newWorld(t, only("host.example", 443))
	for _, tt := range []struct {
		target string
		want   string
	}{
		{"host.example", "400"},
		{"host.example:", "400"},
		{":443", "400"},
		{"host.example:443/path", "400"},
		{"http://host.example:443", "400"},
		{"user@host.example:443", "400"},
		{"host.example:443#x", "400"},
		{"host.example:443@evil.example:443", "400"},
		{"host.example:443?x", "400"},
		{"host.example\\:443", "400"},
		{"[::1:443", "400"},
		{"::1:443", "400"},
		{"[::1]", "400"},
		{"[::1]x:443", "400"},
		{"3405803783:443", "400"},
		{"0xcb007107:443", "400"},
		{"203.0.113.07:443", "400"},
		{"203.0.113:443", "400"},
		{"host.example:+443", "400"},
		{"host.example:443 x", "400"},
		{"", "400"},
		{"host.example,evil.example:443", "400"},
		{strings.Repeat("a", 70000), "431"},
		{strings.Repeat("a", 300) + ".example:443", "400"},
		{"203.0.113.7:8443", "403"},
	} {
		res, body := w.send("CONNECT " + tt.target + " HTTP/1.1\r\nHost: x\r\n\r\n")
		if tt.want == "403" {
			res, body = w.send("CONNECT " + tt.target + " HTTP/1.1\r\nHost: " + tt.target + "\r\n\r\n")
		}
		if got := fmt.Sprint(res.StatusCode); got != tt.want || !res.Close {
			t.Errorf("CONNECT %.50q = %s %q (close %t), want %s", tt.target, got, body, res.Close, tt.want)
		}
	}
	if len(w.resolver.names())+len(w.dials()) > 0 {
		t.Errorf("asked for %v, dialled %v", w.resolver.names(), w.dials())
	}
	if w.count(true) > 0 || w.count(false) < 24 {
		t.Errorf("recorded %d allows and %d denials", w.count(true), w.count(false))
	}
}

func TestB32_HostMustAgreeWithCONNECT(t *testing.T) {
	w := newWorld(t, only("api.x.example", 8443))
	w.echo(8443)
	for host, want := range map[string]int{
		"Host: api.x.example:8443\r\n": 200,
		"Host: API.x.example\r\n":      200,
		"":                             200,
		"Host: evil.example:8443\r\n":  400,
		"Host: api.x.example:443\r\n":  400,
		"Host: \r\n":                   400,
		"Host: api.x.example\r\nHost: api.x.example\r\n": 400,
	} {
		if res, _ := w.send("CONNECT api.x.example:8443 HTTP/1.1\r\n" + host + "\r\n"); res.StatusCode != want {
			t.Errorf("%q: %d, want %d", host, res.StatusCode, want)
		}
	}
}

// A rebinding name is asked for once per connection, and whatever it answers
// later, nothing but a public address is ever dialled.
func TestB26_RebindingNames(t *testing.T) {
	flip := [][]string{{publicAddr}, {"127.0.0.1"}, {"169.254.169.254"}, {"::1"}}
	newFlip := func(t *testing.T, judge Judge) *world {
		w := newWorld(t, judge)
		w.resolver.answers["flip.x.example"] = append([][]string(nil), flip...)
		return w
	}
	public := func(t *testing.T, w *world) {
		for _, d := range w.dials() {
			if !strings.HasPrefix(d, publicAddr+":") {
				t.Errorf("dialled %s", d)
			}
		}
		v := w.wait("the denial", func(v Verdict) bool { return !v.Allowed })
		if !strings.Contains(v.Reason, "flip.x.example leads to 127.0.0.1, a loopback address") {
			t.Errorf("recorded %+v", v)
		}
	}
	t.Run("CONNECT", func(t *testing.T) {
		w := newFlip(t, only("flip.x.example", 8443))
		w.echo(8443)
		for _, want := range []string{"200", "403", "403", "403"} {
			if got := w.status("flip.x.example:8443"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		if n := len(w.resolver.names()); n != 4 {
			t.Errorf("four connections asked %d times", n)
		}
		public(t, w)
	})
	t.Run("CONNECT to 443", func(t *testing.T) {
		w := newFlip(t, only("flip.x.example", 443))
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) { fmt.Fprint(rw, "in") })
		for _, want := range []int{200, 403, 403} {
			if got, body, _ := w.get(w.client(false), "https://flip.x.example/"); got != want {
				t.Errorf("got %d %q, want %d", got, body, want)
			}
		}
		public(t, w)
	})
	t.Run("dial fails and is tried again", func(t *testing.T) {
		w := newFlip(t, only("flip.x.example", 8443))
		w.route(8443, "127.0.0.1:1")
		for _, want := range []string{"502", "403"} {
			if got := w.status("flip.x.example:8443"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}
		public(t, w)
	})
	for _, upgrade := range []string{"", "Connection: Upgrade\r\nUpgrade: websocket\r\n"} {
		t.Run("plain"+upgrade, func(t *testing.T) {
			w := newFlip(t, only("flip.x.example", 80))
			w.serve(80, false, func(rw http.ResponseWriter, r *http.Request) {
				rw.Header().Set("Connection", "close") // each request dials
				http.Redirect(rw, r, "http://flip.x.example/again", http.StatusFound)
			})
			for _, want := range []int{302, 403, 403} {
				res, body := w.send("GET http://flip.x.example/ HTTP/1.1\r\nHost: flip.x.example\r\n" + upgrade + "\r\n")
				if res.StatusCode != want {
					t.Errorf("got %d %q, want %d", res.StatusCode, body, want)
				}
			}
			public(t, w)
		})
	}
	t.Run("inspected", func(t *testing.T) {
		w := newFlip(t, inspecting("flip.x.example"))
		w.serve(443, true, func(rw http.ResponseWriter, r *http.Request) { rw.Header().Set("Connection", "close") })
		for _, want := range []int{200, 403, 403} {
			if got, body, _ := w.get(w.client(false), "https://flip.x.example/"); got != want {
				t.Errorf("got %d %q, want %d", got, body, want)
			}
		}
		public(t, w)
	})
}

// The name decides where TLS upstream is verified, also when the address is
// pinned.
func TestB26_UpstreamIsVerifiedAgainstTheName(t *testing.T) {
	w := newWorld(t, inspecting("other.example"))
	w.resolver.set("other.example", publicAddr)
	server := w.serve(443, true, func(http.ResponseWriter, *http.Request) {})
	wrong, err := testAuthority().Leaf("somebody.else.example")
	if err != nil {
		t.Fatal(err)
	}
	server.TLS.GetCertificate = nil
	server.TLS.Certificates = append(server.TLS.Certificates[:0], *wrong)
	status, body, _ := w.get(w.client(false), "https://other.example/")
	if status != 502 || !strings.Contains(body, "not for this name") {
		t.Errorf("got %d %q", status, body)
	}
	if w.count(false) > 0 {
		t.Errorf("a bad certificate counts as denial: %+v", w.recorded())
	}
}

func TestOwnListenersAreNeverDialled(t *testing.T) {
	own := netip.MustParseAddrPort("127.0.0.1:7717")
	judge := judgeFunc(func(policy.Request) policy.Decision {
		return policy.Decision{Allowed: true, Raw: true, Addresses: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	})
	w := newWorld(t, judge, func(o *Options, _ *limits) {
		o.Own = []netip.AddrPort{own}
		o.Private = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	})
	w.echo(7717)
	w.echo(7718)
	if got := w.status("127.0.0.1:7717"); got != "403" {
		t.Errorf("the node itself: %s", got)
	}
	if got := w.status("127.0.0.1:7718"); got != "200" {
		t.Errorf("beside it: %s", got)
	}
}

// A service of the host has a name of its own, and needs what every private
// address needs.
func TestHostServiceNeedsRuleAndNode(t *testing.T) {
	for _, rule := range []bool{true, false} {
		judge := judgeFunc(func(policy.Request) policy.Decision {
			d := policy.Decision{Allowed: true, Raw: true}
			if rule {
				d.Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
			}
			return d
		})
		w := newWorld(t, judge, func(o *Options, _ *limits) { o.Private = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")} })
		w.echo(5432)
		want := map[bool]string{true: "200", false: "403"}[rule]
		if got := w.status("host.mojoup.internal:5432"); got != want {
			t.Errorf("rule %t: %s, want %s", rule, got, want)
		}
		if len(w.resolver.names()) > 0 {
			t.Error("the name was asked for on the network")
		}
	}
}

func TestDeniedLiteralAddressIsExplainedInTLS(t *testing.T) {
	w := newWorld(t, only("api.x.example", 443))
	if status, body, _ := w.get(w.client(false), "https://203.0.113.9/"); status != 403 || !strings.Contains(body, "203.0.113.9:443") {
		t.Errorf("got %d %q", status, body)
	}
}

func TestH28_NamesAreRationed(t *testing.T) {
	w := newWorld(t, judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true} }), func(_ *Options, l *limits) { l.maxAskNew = 3 })
	var got []string
	for i := range 5 {
		got = append(got, w.status(fmt.Sprintf("data%d.example:8443", i)))
	}
	got = append(got, w.status("data0.example:8443"))
	if diff := cmp.Diff([]string{"502", "502", "502", "403", "403", "502"}, got); diff != "" {
		t.Error(diff)
	}
	if n := len(w.resolver.names()); n != 4 {
		t.Errorf("%d names were asked for", n)
	}
}

func TestProgramIsShownAndAskedOnce(t *testing.T) {
	w := newWorld(t, only("api.x.example", 80))
	w.serve(80, false, func(http.ResponseWriter, *http.Request) {})
	var asked atomic.Int32
	s := w.session
	s.WhoAsked = func(net.Addr) (Program, bool) {
		asked.Add(1)
		return Program{PID: 7, Name: "curl"}, true
	}
	w.session = s
	w.start()
	c := w.client(false)
	w.get(c, "http://api.x.example/")
	w.get(c, "http://api.x.example/b")
	var programs []string
	for _, v := range w.recorded() {
		programs = append(programs, v.Program)
	}
	if diff := cmp.Diff([]string{"curl", "curl"}, programs, cmpopts.EquateEmpty()); diff != "" || asked.Load() != 1 {
		t.Errorf("asked %d times\n%s", asked.Load(), diff)
	}
}

// A target may name the host of its tunnel once more, as clients do that go by
// a proxy (ureq 2): it is judged, and sent on, by its path.
func TestTargetsInTunnelsMayNameTheirHost(t *testing.T) {
	w := newWorld(t, judgeFunc(func(r policy.Request) policy.Decision {
		d := inspecting("api.x.example")(r)
		d.Allowed = d.Allowed && (r.Method == "" || strings.HasPrefix(r.Path, "/a/"))
		return d
	}))
	got := make(chan string, 1)
	w.serve(443, true, func(_ http.ResponseWriter, r *http.Request) { got <- r.RequestURI + " of " + r.Host })
	for target, want := range map[string]int{"https://api.x.example/a/b?c": 200, "https://api.x.example:443/a/b?c": 200, "https://api.x.example/other": 403} {
		c := w.inside("api.x.example:443", "http/1.1")
		io.WriteString(c, "GET "+target+" HTTP/1.1\r\nHost: api.x.example\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(c), nil)
		if err != nil || res.StatusCode != want {
			t.Fatalf("%s: %v %v, want %d", target, res, err, want)
		}
		if want == 200 {
			if uri := <-got; uri != "/a/b?c of api.x.example" {
				t.Errorf("%s arrived as %s", target, uri)
			}
		}
		c.Close()
	}
}
