package policy

import (
	"strings"
	"testing"
)

func TestB13_OneSpellingPerHost(t *testing.T) {
	allow := rules(t, `{"hosts":["api.x.example"],"ports":[443]}`, ``)
	deny := rules(t, `{"hosts":["*.x.example"]}`, `{"hosts":["api.x.example"]}`)
	for _, spelling := range []string{"api.x.example", "API.X.example", "api.x.example.", "ＡＰＩ.x.example", "api。x.example"} {
		host, err := NormalHost(spelling)
		if err != nil || host != "api.x.example" {
			t.Errorf("%q: %q, %v", spelling, host, err)
			continue
		}
		if d := allow.Decide(connect(host)); !d.Allowed {
			t.Errorf("%q: not allowed: %s", spelling, d.Reason)
		}
		if d := deny.Decide(connect(host)); d.Allowed || d.Rule != "deny 1" {
			t.Errorf("%q: not denied: %+v", spelling, d)
		}
	}
	for _, spelling := range []string{
		"", ".", "..", "api.x.example..", ".api.x.example", "api..example", "[api.x.example]", "api.x.example ", " api.x.example",
		"api.x.example:443", "api.x.example:0443", "api.x.example\x00", "a\tpi.x.example", "api.x.example\n", "api%2ex.example",
		"user@api.x.example", "api.x.example/", "api.x.example?", "api.x.example#", `api\x.example`, "*.x.example", "api,x", `"api"`,
		"-a.example", "a-.example", "api.x.example\u200b", "\u202eapi.x.example", "xn--a", "xn--0.example", "xn--.example", "a\xff.example",
		strings.Repeat("a", 64) + ".example", strings.Repeat("a.", 127) + "example", strings.Repeat("ä", 2000),
	} {
		host, err := NormalHost(spelling)
		if err == nil {
			t.Errorf("%q became %q", spelling, host)
		}
		// A caller who forgets NormalHost must not get past a deny rule.
		for _, e := range []*Effective{allow, deny} {
			if d := e.Decide(connect(spelling)); d.Allowed {
				t.Errorf("%q was allowed", spelling)
			}
		}
	}
	for _, notNormal := range []string{"API.x.example", "api.x.example.", "API.X.EXAMPLE"} {
		if d := deny.Decide(connect(notNormal)); d.Allowed || d.Reason != "the host is missing or not in its normal form" {
			t.Errorf("%q: %+v", notNormal, d)
		}
	}
}

func TestNormalHostKeepsNames(t *testing.T) {
	for in, want := range map[string]string{
		"localhost":               "localhost",
		"_dmarc.x.example":        "_dmarc.x.example",
		"my_host.x.example":       "my_host.x.example",
		"r3---sn-a.x.example":     "r3---sn-a.x.example",
		"münchen.example":         "xn--mnchen-3ya.example",
		"XN--MNCHEN-3YA.example":  "xn--mnchen-3ya.example",
		"MÜNCHEN.example":         "xn--mnchen-3ya.example",
		"faß.example":             "xn--fa-hia.example",
		"a.0x":                    "", // WHATWG: ends in a number
		"1.2.3.example":           "1.2.3.example",
		"3com.example":            "3com.example",
		"x.3com":                  "x.3com",
		"cafe":                    "cafe",
		"xn--mnchen-3ya.example.": "xn--mnchen-3ya.example",
	} {
		got, err := NormalHost(in)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
}

// TestB15_OneAddressOneSpelling has the forms that have passed for harmless.
func TestB15_OneAddressOneSpelling(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3":           "10.1.2.3",
		"10.1.2.3.":          "10.1.2.3",
		"::ffff:10.1.2.3":    "10.1.2.3",
		"[::ffff:10.1.2.3]":  "10.1.2.3",
		"::ffff:7f00:1":      "127.0.0.1",
		"::FFFF:127.0.0.1":   "127.0.0.1",
		"0:0:0:0:0:ffff:1:1": "0.1.0.1",
		"::ffff:0:7f00:1":    "::ffff:0:7f00:1",
		"::127.0.0.1":        "::7f00:1",
		"64:ff9b::7f00:1":    "64:ff9b::7f00:1",
		"2002:7f00:1::":      "2002:7f00:1::",
		"FD00:0:0::1":        "fd00::1",
		"[2001:db8::1]":      "2001:db8::1",
		"::":                 "::",
		"0.0.0.0":            "0.0.0.0",
		"１２７.0.0.1":          "127.0.0.1",
	} {
		if got, err := NormalHost(in); err != nil || got != want {
			t.Errorf("%q: %q, %v, want %q", in, got, err, want)
		}
	}
	for _, in := range []string{
		"fd00::1%eth0", "fd00::1%25eth0", "[fe80::1%lo]", "3405803783", "0xcb007107", "0xcb.0.71.7", "203.0.113.07", "203.0.113", "203.0.28935",
		"0313.0.113.7", "203.0.113.7.1", "203.0.113.256", "1.2.3.4:80", "[1.2.3.4]", "[[::1]]", "[::1", "::1]", ":", ":::", "1", "0x", "x.1", "::1.",
	} {
		if got, err := NormalHost(in); err == nil {
			t.Errorf("%q became %q", in, got)
		}
	}
}

func TestB15_LiteralsNeedARuleThatNamesThem(t *testing.T) {
	wide := compile(t, layer(t, LayerOrganisation, `{"network":{"rules":[{"preset":"public"},{"hosts":["**.example","*.example"],"addresses":["10.0.0.0/8"]}]}}`))
	for _, literal := range []string{
		"127.0.0.1", "::1", "::ffff:0:7f00:1", "::7f00:1", "64:ff9b::7f00:1", "2002:7f00:1::", "fd00::1", "fe80::1", "::", "0.0.0.0",
		"100.64.0.1", "198.18.0.1", "224.0.0.1", "10.1.2.3", "203.0.113.7", "2001:db8::1",
	} {
		if d := wide.Decide(connect(literal)); d.Allowed {
			t.Errorf("%s was allowed by %s", literal, d.Rule)
		}
	}
	named := rules(t, `{"hosts":["10.1.2.3","2001:db8::1"]}`, ``)
	mapped, err := NormalHost("::ffff:10.1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	if d := named.Decide(connect(mapped)); !d.Allowed || len(d.Addresses) == 0 || d.Addresses[0].String() != "10.1.2.3/32" {
		t.Errorf("a literal that a rule names: %+v", d)
	}
	for _, other := range []string{"10.1.2.4", "::a01:203", "64:ff9b::a01:203", "2001:db8::2"} {
		if d := named.Decide(connect(other)); d.Allowed {
			t.Errorf("%s was allowed", other)
		}
	}
	if d := named.Decide(connect("::ffff:10.1.2.3")); d.Allowed {
		t.Error("a mapped address is not in normal form")
	}
	for _, m := range metadata {
		if d := named.Decide(connect(m.String())); d.Allowed || d.Reason != "a cloud's metadata address is never opened" {
			t.Errorf("%s: %+v", m, d)
		}
	}
}

// TestB12_EveryPatternMeansSomething: matched as documented, or refused with
// its place and what to write instead.
func TestB12_EveryPatternMeansSomething(t *testing.T) {
	for _, c := range []struct {
		pattern string
		host    string // that it matches; "" where it is refused
		hint    string
	}{
		{"*.x.example", "a.x.example", ""},
		{"**.x.example", "a.b.x.example", ""},
		{"X.example.", "x.example", ""},
		{"*.MÜNCHEN.example", "a.xn--mnchen-3ya.example", ""},
		{"[2001:DB8::1]", "2001:db8::1", ""},
		{"::ffff:10.0.0.1", "10.0.0.1", ""},
		{"*", "", `{"preset": "public"}`},
		{"**", "", `{"preset": "public"}`},
		{".x.example", "", `"**.x.example"`},
		{"*-api.x.example", "", "one by one"},
		{"api.*.example", "", "one by one"},
		{"*.*.example", "", "one by one"},
		{"***.example", "", "one by one"},
		{"*example", "", "one by one"},
		{"x.example/path", "", `"paths"`},
		{"https://x.example", "", `write "x.example"`},
		{"https://x.example/a", "", `write "x.example"`},
		{"x.example:443", "", `"ports": [443]`},
		{"10.0.0.0/8", "", `"addresses"`},
		{"*.10.0.0.1", "", "the address alone"},
		{"*.*", "", "one by one"},
		{"", "", `as "api.example.com"`},
		{" ", "", ""},
		{"x.example ", "", ""},
		{"x example", "", ""},
		{"x.example,y.example", "", ""},
		{"(x|y).example", "", ""},
		{"~x", "", ""},
		{"!x.example", "", ""},
		{"fe80::1%eth0", "", "without its zone"},
	} {
		if c.host == "" {
			p := refuse(t, `{"network":{"rules":[{"hosts":["`+c.pattern+`"]}]}}`)[0]
			if p.Line != 1 || p.Column != 32 || !strings.Contains(p.Hint, c.hint) {
				t.Errorf("%q: %+v, want the hint %q", c.pattern, p, c.hint)
			}
			continue
		}
		e := rules(t, `{"hosts":["`+c.pattern+`"]}`, ``)
		if d := e.Decide(connect(c.host)); !d.Allowed {
			t.Errorf("%q does not match %q: %s", c.pattern, c.host, d.Reason)
		}
		if x := e.Explain(connect(c.host)); !x.Decision.Allowed || !x.Layers[0].Allowed {
			t.Errorf("%q: explaining differs: %+v", c.pattern, x)
		}
	}
}
