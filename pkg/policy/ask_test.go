package policy

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
