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
	}
	if diff := cmp.Diff(want, texts(e)); diff != "" {
		t.Error(diff)
	}
	for i, at := range []string{"repository.json:2:24", "repository.json:6:23", "repository.json:7:48", "repository.json:4:3"} {
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
			if noted := len(e.Notes) > 0; noted != (low != "" && j < i) {
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

func TestToolHostsJoinTheLowestLayer(t *testing.T) {
	claude := tool(t, "claude")
	api := connect("api.anthropic.com")
	for _, c := range []struct {
		name    string
		layers  []string // organisation, repository, command line; "" leaves it out
		allowed bool
		refuser string
	}{
		{"no layer at all", []string{"", "", ""}, true, ""},
		{"layers that say nothing", []string{`{}`, `{}`, `{}`}, true, ""},
		{"a repository", []string{"", `{"network":{"rules":[]}}`, ""}, true, ""},
		{"a repository that denies it", []string{"", `{"network":{"deny":[{"hosts":["*.anthropic.com"]}]}}`, ""}, false, "repository"},
		{"an organisation alone", []string{`{"network":{"rules":[]}}`, `{}`, ""}, true, ""},
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
		if d.Allowed != c.allowed || !c.allowed && d.Layer != c.refuser || c.allowed && (d.Rule != "tool claude" || d.Reason != "tool claude allows it") {
			t.Errorf("%s: %+v", c.name, d)
		}
		if d := e.Decide(connect("evil.example")); d.Allowed {
			t.Errorf("%s: %+v", c.name, d)
		}
		refusals := e.ToolRefusals()
		if (len(refusals) == 0) != c.allowed || !c.allowed && (refusals[0].Host != "api.anthropic.com" || refusals[0].Decision.Reason == "") {
			t.Errorf("%s: refusals %+v", c.name, refusals)
		}
		if shown := slices.ContainsFunc(e.Show(), func(l Line) bool { return l.Rule == "tool claude" }); !shown {
			t.Errorf("%s: the tool's hosts are not shown", c.name)
		}
	}
}

func TestPresetsAreInOrder(t *testing.T) {
	presets := BuiltinPresets()
	if len(presets) < 14 {
		t.Fatalf("only %d presets", len(presets))
	}
	known := presets.names()
	if diff := cmp.Diff(known, presetNames()); diff != "" {
		t.Errorf("the list of names and the data differ: %s", diff)
	}
	var tools []string
	for name, p := range presets {
		if p.About == "" || p.Version < 1 {
			t.Errorf("%s: %+v", name, p)
		}
		if p.Tool == name {
			tools = append(tools, name)
			if _, ok := presets.Tool(name); !ok {
				t.Errorf("no tool %s", name)
			}
		}
		e := compile(t, layer(t, LayerRepository, `{"network":{"rules":[{"preset":"`+name+`"}]}}`))
		for _, r := range p.Rules {
			if d := e.Decide(connect(r.Hosts[0])); !d.Allowed || d.Rule != "preset "+name {
				t.Errorf("%s: %+v", name, d)
			}
		}
	}
	slices.Sort(tools)
	if diff := cmp.Diff(tools, toolNames()); diff != "" {
		t.Error(diff)
	}
	if _, ok := presets.Tool("anthropic"); ok {
		t.Error("a provider is no tool")
	}
	if _, ok := presets.Tool("github"); ok {
		t.Error("github is no tool")
	}
}

func TestHostersArePresetReadOnly(t *testing.T) {
	for preset, git := range map[string]string{"github": "github.com", "gitlab": "gitlab.com"} {
		read := compile(t, layer(t, LayerRepository, `{"network":{"rules":[{"preset":"`+preset+`"}]}}`))
		write := compile(t, layer(t, LayerRepository, `{"network":{"rules":[{"preset":"`+preset+`-write"}]}}`))
		for _, c := range []struct {
			method, path string
			want         bool
		}{
			{"GET", "/acme/x.git/info/refs", true},
			{"HEAD", "/acme/x", true},
			{"POST", "/acme/x.git/git-upload-pack", true},
			{"POST", "/acme/x.git/git-receive-pack", false},
			{"POST", "/acme%2Fx.git/git-upload-pack", preset == "gitlab"}, // ** crosses, * does not
			{"POST", "/acme/x/issues", false},
			{"PUT", "/acme/x", false},
			{"DELETE", "/acme/x", false},
		} {
			req := Request{Host: git, Port: 443, TLS: true, Method: c.method, Path: c.path}
			if d := read.Decide(req); d.Allowed != c.want {
				t.Errorf("%s %s %s: %+v", preset, c.method, c.path, d)
			}
			if d := write.Decide(req); !d.Allowed {
				t.Errorf("%s-write %s %s: %+v", preset, c.method, c.path, d)
			}
		}
		if d := read.Decide(connect(git)); !d.Allowed || !d.Inspect {
			t.Errorf("%s is a tunnel: %+v", preset, d)
		}
	}
}

func TestRegistryPresetsOnlyRead(t *testing.T) {
	wide := []Rule{{Hosts: []string{"registry.corp.example"}, Ports: []uint16{8443}, Methods: []string{"PUT"}, Protocol: "tcp"}, {}}
	builtin := BuiltinPresets()
	presets := builtin.With("npm", wide)
	if _, ok := builtin["npm"]; ok {
		t.Error("With changed its receiver")
	}
	repo := layer(t, LayerRepository, `{"network":{"rules":[{"preset":"npm"}]}}`)
	e, err := Compile([]Layer{repo}, nil, presets)
	if err != nil {
		t.Fatal(err)
	}
	for method, want := range map[string]bool{"GET": true, "HEAD": true, "PUT": false, "POST": false} {
		d := e.Decide(Request{Host: "registry.corp.example", Port: 8443, TLS: true, Method: method, Path: "/@a%2Fb"})
		if d.Allowed != want || d.Raw {
			t.Errorf("%s: %+v", method, d)
		}
	}
	if d := e.Decide(Request{Host: "registry.corp.example", Port: 8443}); d.Allowed {
		t.Errorf("raw bytes: %+v", d)
	}
	if len(e.Asks()) != 0 {
		t.Errorf("a registry is free: %+v", e.Asks())
	}
}

func TestPresetsThatCannotBeUsedSayWhere(t *testing.T) {
	for _, c := range []struct {
		preset  string
		presets Presets
		want    string
		hint    string
	}{
		{"npn", BuiltinPresets(), `unknown preset "npn", valid are anthropic, `, `"npm"`},
		{"npm", BuiltinPresets(), `the hosts of the preset "npm" could not be found out from the settings of npm`, "settings of npm"},
		{"pypi", nil, `could not be found out from the settings of pip`, "pip"},
		{"debian", BuiltinPresets().With("debian", nil), `could not be found out from the settings of apt`, "apt"},
		{"go", BuiltinPresets().With("go", []Rule{{Hosts: []string{"*.x.example"}}}), `the settings of go name a host that is not in order: "*.x.example" is not one host`, ""},
		{"go", BuiltinPresets().With("go", []Rule{{Hosts: []string{"x.example/y"}}}), `not in order: "x.example/y" has a path`, ""},
		{"github", BuiltinPresets().With("github", []Rule{{Hosts: []string{"evil.example"}}}), `no registry`, ""},
		{"own", Presets{"own": {Rules: []Rule{{Hosts: []string{"bad host"}}}}}, `has a character that names do not have`, ""},
	} {
		for _, key := range []string{"rules", "deny"} {
			l := layer(t, LayerRepository, "{\"network\":{\""+key+"\":[{\"hosts\":[\"x.example\"]},\n{\"preset\":\""+c.preset+"\"}]}}")
			_, err := Compile([]Layer{l}, nil, c.presets)
			errs, ok := err.(*Errors)
			if !ok {
				t.Errorf("%s: %v", c.preset, err)
				continue
			}
			p := errs.Problems[0]
			if p.File != "repository.json" || p.Line != 2 || !strings.HasPrefix(p.Path, "network."+key+"[1]") || !strings.Contains(p.Message, c.want) || !strings.Contains(p.Hint, c.hint) {
				t.Errorf("%s: %+v, want %q", c.preset, p, c.want)
			}
		}
	}
}

func TestADeniedPresetIsDeniedWhole(t *testing.T) {
	e := rules(t, `{"hosts":["github.com","x.example"],"ports":[22,443],"protocol":"tcp"}`, `{"preset":"github"}`)
	for _, port := range []uint16{22, 443} {
		if d := e.Decide(Request{Host: "github.com", Port: port, TLS: port == 443}); d.Allowed || d.Rule != "preset github" {
			t.Errorf("%d: %+v", port, d)
		}
	}
	if d := e.Decide(Request{Host: "x.example", Port: 22}); !d.Allowed {
		t.Errorf("%+v", d)
	}
}

func TestAsksAreWhatIsNotFree(t *testing.T) {
	repo := layer(t, LayerRepository, `{
	"network": {"rules": [
		{"preset": "anthropic"},
		{"hosts": ["api.anthropic.com"], "ports": [443], "methods": ["POST"]},
		{"preset": "npm"},
		{"hosts": ["münchen.example"], "methods": ["PUT"], "paths": ["/a/**"]},
		{"hosts": ["db.example"], "ports": [5432], "protocol": "tcp", "addresses": ["10.0.0.0/8"]}],
	  "deny": [{"hosts": ["d.example"]}]},
	"secrets": ["GITHUB_TOKEN"], "signIns": ["claude"], "skills": ["s"], "ports": [3000],
	"files": {"protect": ["p"], "mounts": [{"path": "~/.cache/x", "mode": "rw"}]},
	"limits": {"memory": "8GiB", "wall": "90m"}}`)
	presets := BuiltinPresets().With("npm", []Rule{{Hosts: []string{"r.example"}}})
	ask := func(tool *ToolRules, layers ...Layer) (out []string) {
		t.Helper()
		e, err := Compile(layers, tool, presets)
		if err != nil {
			t.Fatal(err)
		}
		for _, a := range e.Asks() {
			out = append(out, a.Text)
			if a.Source.Line == 0 || a.Source.Layer != LayerRepository {
				t.Errorf("no place: %+v", a)
			}
		}
		return out
	}
	rest := []string{
		"reach xn--mnchen-3ya.example on 443, 80, PUT, at /a/**",
		"reach db.example on 5432, any bytes, also at 10.0.0.0/8",
		"use up to 8GiB of memory",
		"use up to 1h30m of time",
		"get a stand-in for the secret GITHUB_TOKEN",
		"use your sign-in of claude",
		"load the skill in s",
		"use the directory ~/.cache/x (rw)",
	}
	if diff := cmp.Diff(rest, ask(tool(t, "claude"), repo)); diff != "" {
		t.Error(diff)
	}
	without := append([]string{"reach api.anthropic.com on 443", "reach api.anthropic.com on 443, POST"}, rest...)
	if diff := cmp.Diff(without, ask(nil, repo)); diff != "" {
		t.Error(diff)
	}
	// What the organisation takes away need not be asked for.
	org := layer(t, LayerOrganisation, `{"network":{"rules":[{"hosts":["db.example"],"ports":[5432],"protocol":"tcp"}]},"limits":{"memory":"4GiB"}}`)
	clipped := append([]string{rest[1]}, rest[3:]...)
	if diff := cmp.Diff(clipped, ask(nil, org, repo)); diff != "" {
		t.Error(diff)
	}
	if got := ask(nil, Layer{Name: LayerCommandLine, Document: repo.Document}); got != nil {
		t.Errorf("a person's own policy asks nobody: %v", got)
	}
}

// TestMoreThanTheToolNeedsIsAskedFor: a rule for the tool's own host is free
// only as far as the tool's rule goes.
func TestMoreThanTheToolNeedsIsAskedFor(t *testing.T) {
	for rule, free := range map[string]bool{
		`{"hosts":["api.anthropic.com"],"ports":[443]}`:                            true,
		`{"hosts":["api.anthropic.com"],"ports":[443],"paths":["/v1/**"]}`:         true,
		`{"hosts":["api.anthropic.com"]}`:                                          false,
		`{"hosts":["api.anthropic.com"],"ports":[22]}`:                             false,
		`{"hosts":["api.anthropic.com"],"ports":[443],"protocol":"tcp"}`:           false,
		`{"hosts":["api.anthropic.com"],"ports":[443],"addresses":["10.0.0.0/8"]}`: false,
		`{"hosts":["api.anthropic.com","x.example"],"ports":[443]}`:                false,
		`{"hosts":["*.anthropic.com"],"ports":[443]}`:                              false,
		`{"preset":"claude"}`:        true,
		`{"preset":"claude-extras"}`: false,
		`{"preset":"github"}`:        false,
		`{"name":"npm","hosts":["x.example"],"ports":[443],"methods":["GET","HEAD"]}`: false,
	} {
		e, err := Compile([]Layer{layer(t, LayerRepository, `{"network":{"rules":[`+rule+`]}}`)}, tool(t, "claude"), BuiltinPresets())
		if err != nil {
			t.Fatal(err)
		}
		if asks := e.Asks(); (len(asks) == 0) != free {
			t.Errorf("%s: %+v", rule, asks)
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

func TestDigestFollowsTheMeaning(t *testing.T) {
	digest := func(src string, tool *ToolRules, presets Presets) string {
		t.Helper()
		e, err := Compile([]Layer{layer(t, LayerRepository, src)}, tool, presets)
		if err != nil {
			t.Fatal(err)
		}
		return e.Digest()
	}
	builtin := BuiltinPresets()
	const base = `{"network":{"rules":[{"preset":"github"},{"hosts":["x.example"]}]},"secrets":["A"]}`
	first := digest(base, nil, builtin)
	if len(first) != 64 || first != digest(base, nil, builtin) {
		t.Fatal("not one SHA-256")
	}
	same := "// a comment\n" + `{"secrets":["A"],"network":{"rules":[{"preset":"github"},{"hosts":["X.example."],}],},}`
	if digest(same, nil, builtin) != first {
		t.Error("comments, order and spelling change it")
	}
	grown := BuiltinPresets()
	p := grown["github"]
	p.Rules = append(slices.Clone(p.Rules), Rule{Hosts: []string{"new.example"}})
	grown["github"] = p
	newer := BuiltinPresets()
	p = newer["github"]
	p.Version++
	newer["github"] = p
	seen := map[string]string{first: "base"}
	for name, d := range map[string]string{
		"a preset that grew":       digest(base, nil, grown),
		"a newer preset":           digest(base, nil, newer),
		"a tool":                   digest(base, tool(t, "claude"), builtin),
		"another host":             digest(strings.Replace(base, "x.example", "y.example", 1), nil, builtin),
		"a method":                 digest(strings.Replace(base, `"x.example"]`, `"x.example"],"methods":["GET"]`, 1), nil, builtin),
		"a deny":                   digest(strings.Replace(base, `}]},`, `}],"deny":[{"hosts":["x.example"]}]},`, 1), nil, builtin),
		"a secret":                 digest(strings.Replace(base, `["A"]`, `["A","B"]`, 1), nil, builtin),
		"a limit":                  digest(strings.Replace(base, `{`, `{"limits":{"cpus":1},`, 1), nil, builtin),
		"a skill":                  digest(strings.Replace(base, `{`, `{"skills":["s"],`, 1), nil, builtin),
		"a mount":                  digest(strings.Replace(base, `{`, `{"files":{"mounts":[{"path":"/m"}]},`, 1), nil, builtin),
		"a mount to write":         digest(strings.Replace(base, `{`, `{"files":{"mounts":[{"path":"/m","mode":"rw"}]},`, 1), nil, builtin),
		"a sign-in":                digest(strings.Replace(base, `{`, `{"signIns":["claude"],`, 1), nil, builtin),
		"an absent network":        digest(`{"secrets":["A"]}`, nil, builtin),
		"an empty network":         digest(`{"secrets":["A"],"network":{}}`, nil, builtin),
		"a sandbox":                digest(strings.Replace(base, `{`, `{"agents":{"sandbox":"off"},`, 1), nil, builtin),
		"a protected file":         digest(strings.Replace(base, `{`, `{"files":{"protect":["p"]},`, 1), nil, builtin),
		"the same as a hidden one": digest(strings.Replace(base, `{`, `{"files":{"hide":["p"]},`, 1), nil, builtin),
	} {
		if other, twice := seen[d]; twice {
			t.Errorf("%s has the digest of %s", name, other)
		}
		seen[d] = name
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

// TestLayersAgreeWithTheirMeaning holds Decide against the plain reading of D8.
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
