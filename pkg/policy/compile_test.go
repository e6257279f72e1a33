package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// texts are the notes without their places.
func texts(e *Effective) (out []string) {
	for _, n := range e.Notes {
		out = append(out, n.Text)
	}
	return out
}

const organisation = `{
	"agents": {"sandbox": "required"},
	"network": {"rules": [{"hosts": ["a.example", "b.example"], "methods": ["GET"]}]},
	"limits": {"memory": "4GiB", "cpus": 2},
	"files": {"protect": [".github/**"]},
}`

func TestB95_ARepositoryOnlyNarrows(t *testing.T) {
	repo := layer(t, LayerRepository, `{
	"agents": {"sandbox": "off"},
	"network": {"rules": [
		{"hosts": ["c.example"]},
		{"hosts": ["a.example"]}]},
	"limits": {"memory": "16GiB", "cpus": 1, "processes": 100},
	"files": {"protect": ["Makefile"], "mounts": [{"path": "/var/run", "mode": "rw"}]},
}`)
	e := compile(t, layer(t, LayerOrganisation, organisation), repo)
	if e.Sandbox != SandboxRequired {
		t.Errorf("the sandbox is %q", e.Sandbox)
	}
	if want := (Limits{Memory: 4 << 30, CPUs: 1, Processes: 100}); e.Limits != want {
		t.Errorf("limits %+v, want %+v", e.Limits, want)
	}
	if diff := cmp.Diff([]string{".github/**", "Makefile"}, e.Protect); diff != "" {
		t.Error(diff)
	}
	for host, want := range map[string]bool{"a.example": true, "b.example": false, "c.example": false} {
		d := e.Decide(Request{Host: host, Port: 443, TLS: true, Method: "GET", Path: "/"})
		if d.Allowed != want {
			t.Errorf("%s: %+v", host, d)
		}
	}
	if d := e.Decide(Request{Host: "a.example", Port: 443, TLS: true, Method: "POST", Path: "/"}); d.Allowed || d.Layer != LayerOrganisation {
		t.Errorf("wider methods: %+v", d)
	}
	if d := e.Decide(connect("a.example")); !d.Allowed || !d.Inspect {
		t.Errorf("one layer wants to look: %+v", d)
	}
	want := []string{
		`"off" has no effect: the organisation says "required"`,
		`16GiB has no effect: the organisation says 4GiB`,
		`/var/run is given only if the node's setting node.files.mounts lists it`,
		`rule 1 has no effect: the organisation allows nothing of c.example on 443, 80`,
		`rule 2 holds in part only: the organisation allows less of a.example`,
	}
	if diff := cmp.Diff(want, texts(e)); diff != "" {
		t.Error(diff)
	}
	for i, at := range []string{"repository.json:2:24", "repository.json:6:23", "repository.json:7:48", "repository.json:4:3", "repository.json:5:3"} {
		if got := e.Notes[i].Source.String(); got != at {
			t.Errorf("note %q is at %s, want %s", e.Notes[i].Text, got, at)
		}
	}
}

func TestB95_WhatARepositoryCannotEvenSay(t *testing.T) {
	for _, src := range []string{
		`{"agents":"off"}`, `{"image":"x"}`, `{"engine":"none"}`, `{"agents":{"engine":"none"}}`, `{"environment":["AWS_*"]}`,
		`{"secrets":["AWS_*"]}`, `{"secrets":[{"name":"A","host":"x.example"}]}`, `{"secrets":{"A":"value"}}`, `{"signIns":["../.claude"]}`,
		`{"files":{"mounts":["/:/host"]}}`, `{"files":{"mounts":[{"path":"/"}]}}`, `{"node":{"network":{"private":["10.0.0.0/8"]}}}`,
		`{"network":{"rules":[{"hosts":["*"]}]}}`, `{"network":{"private":["10.0.0.0/8"]}}`, `{"node.network.private":[]}`,
	} {
		refuse(t, src)
	}
	for _, name := range []string{LayerRepository, "", "Repository", "somebody"} {
		_, err := Compile([]Layer{layer(t, name, `{"network":{"rules":[{"hosts":["x.example"]},{"preset":"public"}]}}`)}, nil, BuiltinPresets())
		if errs, ok := err.(*Errors); !ok || errs.Problems[0].Path != "network.rules[1]" || errs.Problems[0].Column != 46 {
			t.Errorf("the preset public in %q: %v", name, err)
		}
	}
	for _, name := range []string{LayerOrganisation, LayerTeam, LayerNode, LayerCommandLine} {
		compile(t, layer(t, name, `{"network":{"rules":[{"preset":"public"}]}}`))
	}
}

func TestSandboxIsTheStrictest(t *testing.T) {
	say := func(s Sandbox) string {
		if s == "" {
			return `{"agents":{}}`
		}
		return `{"agents":{"sandbox":"` + string(s) + `"}}`
	}
	order := []Sandbox{"", SandboxOff, SandboxPreferred, SandboxRequired}
	for i, high := range order {
		for j, low := range order {
			e := compile(t, layer(t, LayerTeam, say(high)), layer(t, LayerRepository, say(low)))
			if e.Sandbox != order[max(i, j)] {
				t.Errorf("%q and %q give %q", high, low, e.Sandbox)
			}
			want := low != "" && j < i // what is less than the higher layer's
			for k, says := range []Sandbox{high, low} {
				// Nobody is asked for what nobody gives.
				want = want || says == SandboxOff && (k == 0 || i <= 1)
			}
			if noted := len(e.Notes) > 0; noted != want {
				t.Errorf("%q below %q: notes %v", low, high, e.Notes)
			}
		}
	}
}

func tool(t *testing.T, name string) *ToolRules {
	t.Helper()
	rules, ok := BuiltinPresets().Tool(name)
	if !ok {
		t.Fatalf("unknown tool %s", name)
	}
	return rules
}

type toolCase struct {
	name    string
	layers  []string // organisation, repository, command line; "" leaves it out
	allowed bool
	refuser string
}

// hubAlone reports whether no layer below the organisation speaks of the network.
func (c toolCase) hubAlone() bool {
	return strings.Contains(c.layers[0], "network") && !strings.Contains(c.layers[1]+c.layers[2], "network")
}

// rule is the one that allows.
func (c toolCase) rule() string {
	if c.hubAlone() {
		return "preset claude"
	}
	return "tool claude"
}

func TestToolHostsJoinTheLowestLayer(t *testing.T) {
	claude := tool(t, "claude")
	api := connect("api.anthropic.com")
	for _, c := range []toolCase{
		{"no layer at all", []string{"", "", ""}, true, ""},
		{"layers that say nothing", []string{`{}`, `{}`, `{}`}, true, ""},
		{"a repository", []string{"", `{"network":{"rules":[]}}`, ""}, true, ""},
		{"a repository that denies it", []string{"", `{"network":{"deny":[{"hosts":["*.anthropic.com"]}]}}`, ""}, false, "repository"},
		{"an organisation alone", []string{`{"network":{"rules":[]}}`, `{}`, ""}, false, "organisation"},
		{"an organisation alone that allows it", []string{`{"network":{"rules":[{"preset":"claude"}]}}`, `{}`, ""}, true, ""},
		{"a command line", []string{"", "", `{"network":{}}`}, true, ""},
		{"an organisation above a repository", []string{`{"network":{"rules":[]}}`, `{"network":{}}`, ""}, false, "organisation"},
		{"an organisation that allows it", []string{`{"network":{"rules":[{"preset":"claude"}]}}`, `{"network":{}}`, ""}, true, ""},
		{"an organisation that denies it", []string{`{"network":{"rules":[{"preset":"claude"}],"deny":[{"preset":"anthropic"}]}}`, ``, ""}, false, "organisation"},
		{"a command line above which a repository stands", []string{"", `{"network":{}}`, `{"network":{}}`}, false, "repository"},
	} {
		var layers []Layer
		for i, name := range []string{LayerOrganisation, LayerRepository, LayerCommandLine} {
			if c.layers[i] != "" {
				layers = append(layers, layer(t, name, c.layers[i]))
			}
		}
		e, err := Compile(layers, claude, BuiltinPresets())
		if err != nil {
			t.Fatal(err)
		}
		d := e.Decide(api)
		if d.Allowed != c.allowed || !c.allowed && d.Layer != c.refuser || c.allowed && d.Rule != c.rule() {
			t.Errorf("%s: %+v", c.name, d)
		}
		if d := e.Decide(connect("evil.example")); d.Allowed {
			t.Errorf("%s: %+v", c.name, d)
		}
		refusals := e.ToolRefusals()
		if (len(refusals) == 0) != c.allowed || !c.allowed && (refusals[0].Host != "api.anthropic.com" || refusals[0].Decision.Reason == "") {
			t.Errorf("%s: refusals %+v", c.name, refusals)
		}
		if shown := slices.ContainsFunc(e.Show(), func(l Line) bool { return l.Rule == "tool claude" }); shown == c.hubAlone() {
			t.Errorf("%s: the tool's hosts are shown: %v", c.name, shown)
		}
	}
}

func TestAMountIsReadOnlyIfAnyLayerSaysSo(t *testing.T) {
	mount := func(mode string) string { return `{"files":{"mounts":[{"path":"/m"` + mode + `}]}}` }
	for _, c := range []struct{ high, low, want string }{
		{`,"mode":"ro"`, `,"mode":"rw"`, "ro"}, {`,"mode":"rw"`, ``, "ro"}, {`,"mode":"rw"`, `,"mode":"rw"`, "rw"}, {``, ``, "ro"},
	} {
		e := compile(t, layer(t, LayerTeam, mount(c.high)), layer(t, LayerCommandLine, mount(c.low)))
		if diff := cmp.Diff([]Mount{{Path: "/m", Mode: c.want}}, e.Mounts); diff != "" {
			t.Errorf("%s and %s: %s", c.high, c.low, diff)
		}
	}
}

func TestShowHasEveryLineWithItsSource(t *testing.T) {
	e, err := Compile([]Layer{
		layer(t, LayerOrganisation, organisation),
		{Name: LayerRepository, Source: "repo.json", Document: parse(t, example)},
	}, tool(t, "claude"), BuiltinPresets())
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, l := range e.Show() {
		got.WriteString(strings.Join([]string{l.Key, l.Rule, l.Text, l.Source.String()}, " | ") + "\n")
	}
	for _, n := range e.Notes {
		got.WriteString("note: " + n.String() + "\n")
	}
	golden(t, "testdata/show.txt", []byte(got.String()))
}

// TestLayersAgreeWithTheirMeaning holds Decide against the plain reading of
// what layers mean together, which [plainly] spells out.
func TestLayersAgreeWithTheirMeaning(t *testing.T) {
	documents := []string{
		`{}`, `{"network":{}}`,
		`{"network":{"rules":[{"hosts":["a.example"]}]}}`,
		`{"network":{"rules":[{"hosts":["*.example"]}]}}`,
		`{"network":{"rules":[{"hosts":["*.example"]}],"deny":[{"hosts":["a.example"]}]}}`,
		`{"network":{"rules":[{"hosts":["*.example"],"methods":["GET"],"paths":["/p"]}]}}`,
		`{"network":{"rules":[{"hosts":["**.example"]}],"deny":[{"hosts":["b.example"],"methods":["GET"]}]}}`,
	}
	var requests []Request
	for _, host := range []string{"a.example", "b.example", "c.a.example"} {
		requests = append(requests, connect(host))
		for _, method := range []string{"GET", "POST"} {
			for _, path := range []string{"/p", "/q"} {
				requests = append(requests, Request{Host: host, Port: 443, TLS: true, Method: method, Path: path})
			}
		}
	}
	for _, high := range documents {
		for _, low := range documents {
			e := compile(t, layer(t, LayerTeam, high), layer(t, LayerRepository, low))
			one, two := compile(t, layer(t, LayerTeam, high)), compile(t, layer(t, LayerRepository, low))
			for _, req := range requests {
				d, x := e.Decide(req), e.Explain(req)
				want := high != `{}` || low != `{}`
				want = want && (high == `{}` || one.Decide(req).Allowed) && (low == `{}` || two.Decide(req).Allowed)
				if d.Allowed != want {
					t.Errorf("%s over %s, %+v: %+v", high, low, req, d)
				}
				all := len(x.Layers) > 0
				for _, l := range x.Layers {
					all = all && l.Allowed
				}
				if all != d.Allowed {
					t.Errorf("%s over %s, %+v: explaining differs", high, low, req)
				}
				inspect := one.Decide(req).Inspect || two.Decide(req).Inspect
				if d.Allowed && d.Inspect != inspect {
					t.Errorf("%s over %s, %+v: inspect %v", high, low, req, d.Inspect)
				}
			}
		}
	}
}

// TestB100_LinesThatDoNothing are noted by what decides, with their place.
func TestB100_LinesThatDoNothing(t *testing.T) {
	e := compile(t, layer(t, LayerRepository, `{
	"agents": {"sandbox": "off"},
	"signIns": ["claude", "codex", "claude"],
	"ports": [3000, 3000],
	"files": {"protect": ["a", ".env"], "hide": [".env"]},
}`))
	var got []string
	for _, n := range e.Notes {
		got = append(got, n.Path+" "+n.String())
	}
	want := []string{
		`agents.sandbox repository.json:2:24: "off" has no effect: a policy can ask for a sandbox, and what runs sessions is the node's setting node.sandbox.engine`,
		`signIns[2] repository.json:3:33: claude has no effect: it stands there twice`,
		`ports[1] repository.json:4:18: 3000 has no effect: it stands there twice`,
		`files.protect[1] repository.json:5:29: .env has no effect: what is hidden cannot be changed either`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if asks := e.Asks(); len(asks) != 2 {
		t.Errorf("it asks for %v", asks)
	}
}
