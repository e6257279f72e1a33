package policy

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func TestZeroDenies(t *testing.T) {
	var nobody *Effective
	empty, err := Compile(nil, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	silent := compile(t, layer(t, LayerOrganisation, `{}`), Layer{Name: LayerRepository})
	nothing := compile(t, layer(t, LayerOrganisation, `{"network":{}}`))
	for name, e := range map[string]*Effective{"nil": nobody, "zero": {}, "no layers": empty, "silent layers": silent, "an empty network": nothing} {
		for _, req := range []Request{{}, connect("x.example"), {Host: "x.example"}, {Port: 443}} {
			if d := e.Decide(req); d.Allowed || d.Reason == "" {
				t.Errorf("%s, %+v: %+v", name, req, d)
			}
			e.Explain(req)
		}
		e.Show()
		e.Asks()
		e.Digest()
		e.ToolRefusals()
	}
	if d := silent.Decide(connect("x.example")); d.Reason != nothingAllowed {
		t.Error(d.Reason)
	}
	wide := compile(t, layer(t, LayerOrganisation, `{"network":{"rules":[{"preset":"public"}]}}`))
	for _, req := range []Request{{}, {Host: "x.example"}, {Port: 443}, {Host: "x.example", Port: 443, Path: "/a"},
		{Host: "x.example", Port: 443, Method: "CONNECT", Path: "/"}, {Host: "x.example", Port: 443, Method: "GET"},
		{Host: "nodot", Port: 443}, {Host: "host.mojoup.internal", Port: 443}, {Host: "a.host.mojoup.internal.", Port: 443}} {
		if d := wide.Decide(req); d.Allowed || d.Reason == "" {
			t.Errorf("%+v: %+v", req, d)
		}
	}
	if d := wide.Decide(connect("x.example")); !d.Allowed || d.Inspect || d.Raw {
		t.Errorf("the preset public: %+v", d)
	}
}

func TestB16_PortsAreWhatTheRuleSays(t *testing.T) {
	for ports, open := range map[string][]uint16{
		`,"ports":[443]`:      {443},
		``:                    {443, 80},
		`,"ports":[443,8443]`: {443, 8443},
	} {
		e := rules(t, `{"hosts":["api.x.example"]`+ports+`}`, ``)
		for _, port := range []uint16{1, 22, 80, 443, 444, 8443, 9999, 65535} {
			want := slices.Contains(open, port)
			for _, req := range []Request{
				{Host: "api.x.example", Port: port, TLS: true}, {Host: "api.x.example", Port: port},
				{Host: "api.x.example", Port: port, Method: "GET", Path: "/"},
			} {
				if d := e.Decide(req); d.Allowed != want {
					t.Errorf("ports %q, %+v: %+v", ports, req, d)
				}
			}
		}
		if d := e.Decide(Request{Host: "api.x.example", Port: 22}); !strings.Contains(d.Reason, "allows this host on other ports only: 443") || d.Rule != "rule 1" {
			t.Errorf("%+v", d)
		}
	}
	for _, bad := range []string{`0`, `65536`, `-1`, `"443"`, `443.5`, `"443-445"`, `null`} {
		if p := refuse(t, `{"network":{"rules":[{"hosts":["x.example"],"ports":[`+bad+`]}]}}`)[0]; p.Column != 54 || p.Path != "network.rules[0].ports[0]" {
			t.Errorf("%s: %+v", bad, p)
		}
	}
	if got := rules(t, `{"hosts":["x.example"]}`, ``).Show()[0].Text; got != "x.example on 443, 80" {
		t.Errorf("a rule without ports is shown as %q", got)
	}
}

func TestB17_PlainHTTPIsJudgedAlike(t *testing.T) {
	e := rules(t, `{"hosts":["docs.x.example"],"ports":[80],"methods":["GET"],"paths":["/v1/**"]}`, ``)
	for _, c := range []struct {
		host, method, path string
		want               bool
		reason             string
	}{
		{"docs.x.example", "GET", "/v1/a", true, `rule 1 of the repository allows it`},
		{"other.x.example", "GET", "/v1/a", false, `no rule of the repository names this host`},
		{"docs.x.example", "POST", "/v1/a", false, `rule 1 of the repository allows other methods only: GET`},
		{"docs.x.example", "DELETE", "/v1/a", false, "methods"},
		{"docs.x.example", "get", "/v1/a", false, "methods"},
		{"docs.x.example", "PROPFIND", "/v1/a", false, "methods"},
		{"docs.x.example", "TRACE", "/v1/a", false, "methods"},
		{"docs.x.example", "CONNECT", "/v1/a", false, "a tunnel within a connection"},
		{"docs.x.example", "GET", "/v2/a", false, `allows other paths only: /v1/**`},
		{"docs.x.example", "GET", "/v1", false, "paths"},
		{"docs.x.example", "", "", false, "limits methods or paths, which can be seen in HTTP and TLS only"},
	} {
		d := e.Decide(Request{Host: c.host, Port: 80, Method: c.method, Path: c.path})
		if d.Allowed != c.want || !strings.Contains(d.Reason, c.reason) || d.Layer != LayerRepository && c.method != "CONNECT" {
			t.Errorf("%s %s%s: %+v", c.method, c.host, c.path, d)
		}
	}
}

func TestInspectWhereMethodsOrPathsDecide(t *testing.T) {
	const limited = `{"hosts":["x.example"],"methods":["GET"]}`
	const tunnel = `{"hosts":["x.example"]}`
	for _, c := range []struct {
		name             string
		rules, deny      string
		allowed, inspect bool
	}{
		{"a limited rule", limited, ``, true, true},
		{"a tunnel", tunnel, ``, true, false},
		{"both: the tunnel allows everything anyway", limited + `,` + tunnel, ``, true, false},
		{"a limited denial", tunnel, `{"hosts":["x.example"],"methods":["POST"]}`, true, true},
		{"a limited denial of another port", tunnel, `{"hosts":["x.example"],"methods":["POST"],"ports":[80]}`, true, false},
		{"a denial", limited, `{"hosts":["*.example"]}`, false, false},
	} {
		e := rules(t, c.rules, c.deny)
		if d := e.Decide(connect("x.example")); d.Allowed != c.allowed || d.Inspect != c.inspect {
			t.Errorf("%s: %+v", c.name, d)
		}
	}
	e := rules(t, tunnel, `{"hosts":["x.example"],"methods":["POST"]}`)
	if d := e.Decide(Request{Host: "x.example", Port: 443}); d.Allowed || !strings.Contains(d.Reason, "cannot be seen") {
		t.Errorf("what a denial cannot see passes: %+v", d)
	}
	if d := e.Decide(Request{Host: "x.example", Port: 443, TLS: true, Method: "POST", Path: "/"}); d.Allowed {
		t.Errorf("%+v", d)
	}
	if d := e.Decide(Request{Host: "x.example", Port: 443, TLS: true, Method: "GET", Path: "/"}); !d.Allowed || d.Inspect {
		t.Errorf("%+v", d)
	}
}

func TestRawNeedsEveryLayer(t *testing.T) {
	const raw = `{"network":{"rules":[{"hosts":["db.example"],"ports":[5432],"protocol":"tcp"}]}}`
	const tunnel = `{"network":{"rules":[{"hosts":["db.example"],"ports":[5432]}]}}`
	db := Request{Host: "db.example", Port: 5432}
	if d := compile(t, layer(t, LayerRepository, raw)).Decide(db); !d.Allowed || !d.Raw {
		t.Errorf("%+v", d)
	}
	for _, layers := range [][2]string{{raw, tunnel}, {tunnel, raw}} {
		if d := compile(t, layer(t, LayerTeam, layers[0]), layer(t, LayerRepository, layers[1])).Decide(db); !d.Allowed || d.Raw {
			t.Errorf("%+v", d)
		}
	}
	both := rules(t, `{"hosts":["db.example"],"ports":[5432],"protocol":"tcp"}`, `{"hosts":["db.example"],"methods":["POST"]}`)
	if d := both.Decide(db); d.Allowed {
		t.Errorf("raw bytes hide what is denied: %+v", d)
	}
	db.TLS = true
	if d := both.Decide(db); !d.Allowed || !d.Inspect || d.Raw {
		t.Errorf("raw bytes hide what is denied: %+v", d)
	}
	limited := rules(t, `{"hosts":["db.example"],"ports":[5432],"protocol":"tcp","methods":["GET"]}`, ``)
	if d := limited.Decide(Request{Host: "db.example", Port: 5432}); d.Allowed {
		t.Errorf("limits and raw bytes: %+v", d)
	}
	if d := limited.Decide(Request{Host: "db.example", Port: 5432, Method: "GET", Path: "/"}); !d.Allowed || d.Raw {
		t.Errorf("limits and raw bytes: %+v", d)
	}
}

func TestRangesOnlyWidenWhereEveryLayerSaysSo(t *testing.T) {
	with := func(ranges string) string {
		return `{"network":{"rules":[{"hosts":["db.example"],"addresses":[` + ranges + `]}]}}`
	}
	for _, c := range []struct{ high, low, want string }{
		{`"10.0.0.0/8"`, `"10.2.0.0/16"`, "10.2.0.0/16"},
		{`"10.2.0.0/16"`, `"10.0.0.0/8"`, "10.2.0.0/16"},
		{`"10.0.0.0/8"`, `"192.168.0.0/16"`, ""},
		{`"10.0.0.0/8","192.168.0.0/16"`, `"192.168.1.0/24","10.0.0.0/8"`, "10.0.0.0/8 192.168.1.0/24"},
	} {
		d := compile(t, layer(t, LayerTeam, with(c.high)), layer(t, LayerRepository, with(c.low))).Decide(connect("db.example"))
		var got []string
		for _, p := range d.Addresses {
			got = append(got, p.String())
		}
		if !d.Allowed || strings.Join(got, " ") != c.want {
			t.Errorf("%s and %s: %v, want %s", c.high, c.low, got, c.want)
		}
	}
	d := compile(t, layer(t, LayerTeam, `{"network":{"rules":[{"hosts":["*.example"]}]}}`), layer(t, LayerRepository, with(`"10.0.0.0/8"`))).Decide(connect("db.example"))
	if !d.Allowed || len(d.Addresses) != 0 {
		t.Errorf("a repository opened a range alone: %+v", d)
	}
}

func TestRangesNeverHoldTheMetadataAddress(t *testing.T) {
	e := rules(t, `{"hosts":["x.example"],"addresses":["0.0.0.0/0","169.254.0.0/16","100.64.0.0/10","fd00::/8","::/0","10.0.0.0/8"]}`, ``)
	d := e.Decide(connect("x.example"))
	in := func(s string) bool {
		return slices.ContainsFunc(d.Addresses, func(p netip.Prefix) bool { return p.Contains(netip.MustParseAddr(s)) })
	}
	for _, m := range metadata {
		if in(m.String()) {
			t.Errorf("%s is open", m)
		}
	}
	for _, a := range []string{"169.254.169.253", "169.254.169.255", "100.100.100.199", "10.1.2.3", "fd00:ec2::253", "fd00:ec2::255", "0.0.0.0", "255.255.255.255"} {
		if !in(a) {
			t.Errorf("%s is closed", a)
		}
	}
}

func TestRangesOfALimitedRuleAreNotLentToATunnel(t *testing.T) {
	e := rules(t, `{"hosts":["x.example"]},{"hosts":["x.example"],"methods":["GET"],"addresses":["10.0.0.0/8"]}`, ``)
	if d := e.Decide(connect("x.example")); !d.Allowed || len(d.Addresses) != 0 {
		t.Errorf("%+v", d)
	}
	e = rules(t, `{"hosts":["x.example"],"methods":["GET"],"addresses":["10.0.0.0/8"]}`, ``)
	if d := e.Decide(connect("x.example")); !d.Allowed || !d.Inspect || len(d.Addresses) != 1 {
		t.Errorf("%+v", d)
	}
}

func TestHostServiceNeedsItsOwnRule(t *testing.T) {
	e := rules(t, `{"hosts":["host.mojoup.internal"],"ports":[5432],"protocol":"tcp","addresses":["127.0.0.1/32"]},
		{"hosts":["*.mojoup.internal","**.internal"],"ports":[5432,443]}`, ``)
	if d := e.Decide(Request{Host: "host.mojoup.internal", Port: 5432}); !d.Allowed || !d.Raw || len(d.Addresses) != 1 {
		t.Errorf("%+v", d)
	}
	if d := e.Decide(Request{Host: "host.mojoup.internal", Port: 443, TLS: true}); d.Allowed {
		t.Errorf("a wildcard reaches the host: %+v", d)
	}
	if d := e.Decide(Request{Host: "other.mojoup.internal", Port: 443, TLS: true}); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestRuleAndLayerAreNamed(t *testing.T) {
	org := layer(t, LayerOrganisation, `{"network":{"rules":[{"hosts":["**.example"]}],"deny":[{"name":"no gists","hosts":["gist.example"]}]}}`)
	repo := layer(t, LayerRepository, `{"network":{"rules":[{"name":"read github","hosts":["x.example","gist.example","y.test"]},{"hosts":["z.example"]},{"preset":"github"}],"deny":[{"hosts":["q.example"]}]}}`)
	e := compile(t, org, repo)
	for host, want := range map[string]Decision{
		"x.example":      {Allowed: true, Rule: "read github", Layer: "repository", Reason: `rule "read github" of the repository allows it`},
		"z.example":      {Allowed: true, Rule: "rule 2", Layer: "repository", Reason: `rule 2 of the repository allows it`},
		"gist.example":   {Rule: "no gists", Layer: "organisation", Reason: `deny "no gists" of the organisation forbids it`},
		"y.test":         {Layer: "organisation", Reason: `no rule of the organisation names this host`},
		"q.example":      {Rule: "deny 1", Layer: "repository", Reason: `deny 1 of the repository forbids it`},
		"w.example":      {Layer: "repository", Reason: `no rule of the repository names this host`},
		"api.github.com": {Layer: "organisation", Reason: `no rule of the organisation names this host`},
	} {
		if d := e.Decide(connect(host)); d.Allowed != want.Allowed || d.Rule != want.Rule || d.Layer != want.Layer || d.Reason != want.Reason {
			t.Errorf("%s:\n got %+v\nwant %+v", host, d, want)
		}
	}
	alone := compile(t, repo)
	if d := alone.Decide(connect("api.github.com")); !d.Allowed || !d.Inspect || d.Rule != "preset github" {
		t.Errorf("%+v", d)
	}
	x := e.Explain(connect("gist.example"))
	if len(x.Layers) != 2 || x.Layers[0].Allowed || !x.Layers[0].Denied || !x.Layers[1].Allowed {
		t.Errorf("%+v", x)
	}
	if at := x.Layers[1].Source.String(); at != "repository.json:1:22" {
		t.Errorf("the place of a rule: %s", at)
	}
}

func TestDecideMakesNoGarbage(t *testing.T) {
	e := many(t, 1000)
	for _, req := range manyRequests {
		if n := testing.AllocsPerRun(100, func() { e.Decide(req) }); n != 0 {
			t.Errorf("%+v: %v allocations", req, n)
		}
	}
}

var manyRequests = []Request{
	{Host: "host-500.x.example", Port: 443, TLS: true},
	{Host: "a.wild-500.x.example", Port: 443, TLS: true, Method: "GET", Path: "/v1/a/b/c"},
	{Host: "a.b.deep-998.x.example", Port: 443, TLS: true},
	{Host: "unknown.of.all.x.example", Port: 443, TLS: true},
	{Host: "denied-7.x.example", Port: 443, TLS: true},
	{Host: "10.0.0.1", Port: 443, TLS: true},
	{Host: "a.wild-500.x.example", Port: 443, TLS: true, Method: "GET", Path: "/v1/@a%2Fb;c"},
}
