package policy

import (
	"strings"
	"testing"
)

// TestB100_WhatDoesNothingIsSaid: each line gives the document and a part of
// the one warning that it earns, with its column; none is a clean document.
func TestB100_WhatDoesNothingIsSaid(t *testing.T) {
	network := func(rules string) string { return `{"network":{"rules":[` + rules + `]}}` }
	for _, c := range []struct {
		src    string
		column int
		want   string
		hint   string
	}{
		{network(`{"hosts":["api.x.example"],"ports":[443]}`), 0, "", ""},
		{network(`{"preset":"github"},{"preset":"npm"},{"preset":"claude"}`), 0, "", ""},
		{network(`{"hosts":["db.example"],"ports":[5432],"protocol":"tcp","addresses":["10.2.0.0/16"]}`), 0, "", ""},
		{`{}`, 0, "", ""},
		{`{"network":{}}`, 12, "this layer allows nothing at all", "leave the key out"},
		{network(`{"preset":"gihub"}`), 32, `unknown preset "gihub"`, `"github"`},
		{`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[{"hosts":["*.example"]}]}}`, 22, "rule 1 allows nothing: deny 1 forbids all of it", ""},
		{`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[{"hosts":["*.example"],"methods":["GET"]}]}}`, 0, "", ""},
		{`{"network":{"rules":[{"hosts":["a.example"],"ports":[22,443],"protocol":"tcp"}],"deny":[{"hosts":["a.example"],"ports":[443]}]}}`, 0, "", ""},
		{`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[{"hosts":["b.example"]},{"hosts":["b.example"],"ports":[443]}]}}`, 79, "deny 2 adds nothing: deny 1 forbids all of it", "remove"},
		{`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[{"hosts":["b.example"],"ports":[443]},{"hosts":["b.example"]}]}}`, 55, "deny 1 adds nothing: deny 2 forbids all of it", "remove"},
		{network(`{"hosts":["a.example"]},{"hosts":["*.x.example"]},{"hosts":["a.x.example"]}`), 72, "rule 3 adds nothing: rule 2 allows all of it", "remove"},
		{network(`{"hosts":["a.x.example"]},{"hosts":["*.x.example"]}`), 22, "rule 1 adds nothing: rule 2", "remove"},
		{network(`{"hosts":["a.example"]},{"hosts":["a.example"]}`), 46, "rule 2 adds nothing: rule 1", "remove"},
		{network(`{"hosts":["a.example"],"methods":["GET"]},{"hosts":["a.example"],"methods":["GET"],"paths":["/a"]}`), 64, "rule 2 adds nothing: rule 1", ""},
		{network(`{"hosts":["a.example"],"paths":["/a/**"]},{"hosts":["a.example"],"paths":["/a/b/*"]}`), 64, "rule 2 adds nothing: rule 1", ""},
		{network(`{"hosts":["a.example"],"paths":["/a/*"]},{"hosts":["a.example"],"paths":["/a/**"],"methods":["GET"]}`), 0, "", ""},
		{network(`{"hosts":["a.example"],"ports":[443]},{"hosts":["a.example"],"ports":[8443]}`), 0, "", ""},
		{network(`{"hosts":["a.example"]},{"hosts":["a.example"],"methods":["GET"]}`), 46, "the limits of rule 2 have no effect: rule 1 allows the same hosts without any", "take these hosts out of rule 1"},
		{network(`{"hosts":["a.example"]},{"hosts":["a.example","b.example"],"methods":["GET"]}`), 46, "have no effect where rule 1 allows the same host and port without any: a.example", ""},
		{network(`{"hosts":["a.example"],"ports":[5432],"protocol":"tcp","methods":["GET"]}`), 71, "cannot be seen in raw tcp", `"protocol"`},
		{network(`{"hosts":["a.example"],"protocol":"tcp"}`), 56, "raw tcp without ports means 443 and 80", "name the ports"},
		{network(`{"hosts":["a.example"],"ports":[22]}`), 54, "22 is usually ssh", `"protocol": "tcp"`},
		{network(`{"hosts":["a.example"],"ports":[8443,8443]}`), 59, "8443 stands there twice", ""},
		{network(`{"hosts":["a.example"],"methods":["GTE"]}`), 56, "GTE is no method that this program knows", `"GET"`},
		{network(`{"hosts":["*.com"]}`), 32, "*.com is everybody's", "one by one"},
		{network(`{"hosts":["**.co.uk"]}`), 32, "**.co.uk is everybody's", ""},
		{network(`{"hosts":["*.github.io"],"methods":["GET"]}`), 32, "*.github.io is wide", "one by one"},
		{network(`{"hosts":["*.cloudfront.net"]}`), 32, "*.cloudfront.net is wide", ""},
		{network(`{"hosts":["acme.github.io"]}`), 32, "a front that many share", `"methods"`},
		{network(`{"hosts":["acme.github.io"],"methods":["GET"]}`), 0, "", ""},
		{network(`{"hosts":["storage.googleapis.com"]}`), 32, "a front that many share", ""},
		{network(`{"hosts":["raw.githubusercontent.com"]}`), 32, "a front that many share", ""},
		{network(`{"hosts":["**.x.example"]}`), 32, "lets any text out as labels", "*."},
		{network(`{"hosts":["x.invalid"]}`), 32, "can never be resolved", ""},
		{network(`{"hosts":["localhost"]}`), 32, "localhost is the session itself to programs inside", HostService},
		{network(`{"hosts":["*.localhost"]}`), 32, "*.localhost is the session itself", HostService},
		{network(`{"hosts":["127.0.0.1"]}`), 32, "127.0.0.1 is the session itself", HostService},
		{network(`{"hosts":["::1"]}`), 32, "::1 is the session itself", HostService},
		{network(`{"hosts":["a.example"],"addresses":["169.254.0.0/16"]}`), 58, "holds a cloud's metadata address", ""},
		{network(`{"name":"n","hosts":["a.example"]},{"name":"n","hosts":["b.example"]}`), 65, `"n" is also the name of network.rules[0]`, ""},
		{`{"secrets":["path"]}`, 13, "a variable that programs obey", "name of its own"},
		{`{"secrets":["LD_PRELOAD"]}`, 13, "a variable that programs obey", ""},
		{`{"secrets":["github_token"]}`, 13, "not in the usual shape", `"GITHUB_TOKEN"`},
		{`{"secrets":["A","B","A"]}`, 21, "A stands there twice", ""},
		{`{"signIns":["cluade"]}`, 13, "no tool that has a sign-in here", `"claude"`},
		{`{"signIns":["mine"]}`, 0, "", ""},
		{`{"secrets":[]}`, 12, "it is empty, and says nothing", "take it out"},
		{`{"signIns":[]}`, 12, "it is empty", ""},
		{`{"agents":{}}`, 11, "it is empty", ""},
		{`{"files":{"hide":[]}}`, 10, "it is empty", ""},
		{`{"limits":{}}`, 11, "it is empty", ""},
		{`{"ports":[]}`, 10, "it is empty", ""},
		{`{"skills":[]}`, 11, "it is empty", ""},
		{`{"network":{"rules":[{"hosts":["a.example"]}],"deny":[]}}`, 54, "it is empty", ""},
	} {
		got := Lint(parse(t, c.src), "mine")
		if c.want == "" {
			if len(got) != 0 {
				t.Errorf("%s\n got %+v, want nothing", c.src, got)
			}
			continue
		}
		if len(got) != 1 || got[0].Line != 1 || got[0].Column != c.column || !strings.Contains(got[0].Message, c.want) || !strings.Contains(got[0].Hint, c.hint) {
			t.Errorf("%s\n got %+v\nwant column %d, %q", c.src, got, c.column, c.want)
		}
	}
	if Lint(nil) != nil {
		t.Error("warnings about nothing")
	}
}

func TestLintOfTheExampleIsQuiet(t *testing.T) {
	got := Lint(parse(t, example))
	if len(got) != 1 || got[0].Path != "network.rules[1].hosts[1]" {
		t.Errorf("%+v", got)
	}
}

// TestCoversNeverClaimsTooMuch: what lint calls swallowed must be.
func TestCoversNeverClaimsTooMuch(t *testing.T) {
	hosts := []string{"x.example", "a.x.example", "*.x.example", "**.x.example", "*.a.x.example", "**.a.x.example", "10.0.0.1", "**.example"}
	probes := []string{"x.example", "a.x.example", "b.x.example", "c.a.x.example", "d.c.a.x.example", "y.example", "10.0.0.1", "10.0.0.2"}
	for _, a := range hosts {
		for _, b := range hosts {
			p, _ := parseHostPattern(a)
			q, _ := parseHostPattern(b)
			shared := false
			r, _ := newRule(Rule{Hosts: []string{a}}, Source{}, "", false)
			r.set = map[hostPattern]bool{p: true}
			if r.coversHost(q) != p.covers(q) {
				t.Errorf("%s covers %s: %v by the map, %v by hand", a, b, r.coversHost(q), p.covers(q))
			}
			for _, host := range probes {
				if p.covers(q) && q.matches(host) && !p.matches(host) {
					t.Errorf("%s does not cover %s: %s", a, b, host)
				}
				shared = shared || p.matches(host) && q.matches(host)
			}
			if shared && !p.overlaps(q) {
				t.Errorf("%s and %s share a host", a, b)
			}
		}
	}
	paths := []string{"/a", "/a/*", "/a/**", "/a/b", "/a/b*", "/**", "/*/b", "/**/b", "/a/*/c", "/a/**/c", "/a/b/**", "/a/"}
	tries := []string{"/", "/a", "/a/", "/a/b", "/a/bc", "/a/b/", "/a/b/c", "/x/b", "/a/x/c", "/a/c", "/b", "/a/b%2Fc", "/a/x/y/c"}
	claimed := 0
	for _, a := range paths {
		for _, b := range paths {
			p, _ := parsePathPattern(a)
			q, _ := parsePathPattern(b)
			if !p.covers(q) {
				continue
			}
			claimed++
			for _, path := range tries {
				if q.match(path) && !p.match(path) {
					t.Errorf("%s does not cover %s: %s", a, b, path)
				}
			}
		}
	}
	if claimed < 20 {
		t.Errorf("only %d pairs were put to the test", claimed)
	}
}
