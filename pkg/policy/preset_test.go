package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
