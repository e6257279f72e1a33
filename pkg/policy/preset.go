package policy

import (
	_ "embed"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
)

//go:embed presets.json
var presetSource []byte

// presetPublic is any public host on 443 and 80, for hub and node policies.
const presetPublic = "public"

// registryClients names, for each registry preset, whose settings say where
// the registry is.
var registryClients = map[string]string{
	"npm": "npm", "pypi": "pip", "crates": "cargo", "go": "go", "debian": "apt", "maven": "Maven",
}

// RegistryPresets lists the presets whose hosts come from the settings of the
// machine's own package clients, in alphabetical order. See [Presets.With].
func RegistryPresets() []string { return slices.Sorted(maps.Keys(registryClients)) }

// A Preset is a set of rules under a name.
type Preset struct {
	About string
	// Tool is the coding agent whose own hosts these are, or empty.
	Tool  string
	Rules []Rule
	// Version is that of the data the preset comes from; 0 for hosts that came
	// from outside.
	Version int

	problem string // why it cannot be used
}

// Presets are sets of rules by name. Registry presets are known by name only
// until [Presets.With] says their hosts. The map is not changed by this package.
type Presets map[string]Preset

// BuiltinPresets returns the presets that ship with the program: the five
// tools, each under its own and its provider's name and with an …-extras
// beside it where it has optional hosts; github and gitlab, which read, and
// their …-write.
func BuiltinPresets() Presets {
	presets, err := readPresets(presetSource)
	if err != nil {
		panic("BUG: presets.json: " + err.Error())
	}
	return presets
}

func presetsKey() key {
	rules := &key{kind: kindObject, keys: ruleKeys()[1:], together: checkRule}
	return key{kind: kindObject, must: []string{"version", "presets"}, keys: []key{
		{name: "version", kind: kindNumber, whole: true, min: 1, max: 1 << 20},
		{name: "presets", kind: kindArray, min: 1, item: &key{kind: kindObject, must: []string{"names", "about", "rules"}, keys: []key{
			{name: "names", kind: kindArray, min: 1, item: &key{kind: kindString}},
			{name: "tool", kind: kindString},
			{name: "about", kind: kindString},
			{name: "rules", kind: kindArray, min: 1, item: rules},
			{name: "extras", kind: kindArray, min: 1, item: rules},
		}}},
	}}
}

func readPresets(src []byte) (Presets, error) {
	root, fault := readJSON(src)
	if fault != nil {
		return nil, fault
	}
	c := &checker{file: "presets.json", errs: &Errors{}, at: map[string]Position{}}
	table := presetsKey()
	if c.walk(root, &table, ""); c.errs.orNil() != nil {
		return nil, c.errs
	}
	out, version := Presets{}, int(has(root, "version").number())
	for _, n := range has(root, "presets").items {
		p := Preset{About: has(n, "about").text, Rules: buildRules(has(n, "rules")), Version: version}
		if tool := has(n, "tool"); tool != nil {
			p.Tool = tool.text
		}
		extras := Preset{About: "optional hosts of " + p.About, Rules: buildRules(has(n, "extras")), Version: version}
		for _, name := range has(n, "names").strings() {
			if _, twice := out[name]; twice {
				return nil, errors.New("the name " + name + " stands there twice")
			}
			out[name] = p
			if len(extras.Rules) > 0 {
				out[name+"-extras"] = extras
			}
		}
	}
	return out, nil
}

// With returns a copy in which the registry preset name has the hosts of
// rules. Only hosts, ports, paths and addresses are taken: every registry
// preset reads (GET and HEAD), whatever the caller or a client's settings say,
// and hosts must be plain names or addresses. rules without a host, a name
// that is no registry preset and a host that is not in order make [Compile]
// fail where the preset is used.
//
// The settings must be the machine's own, never those that lie in a
// repository: a registry preset is free of the person's approval.
func (p Presets) With(name string, rules []Rule) Presets {
	out := maps.Clone(p)
	if out == nil {
		out = Presets{}
	}
	client, ok := registryClients[name]
	if !ok {
		out[name] = Preset{problem: "it is no registry, its hosts cannot be set"}
		return out
	}
	preset := Preset{About: "read from the registries that " + client + " is set to use"}
	for _, r := range rules {
		if f := onlyPlainHosts(r.Hosts); f != nil {
			preset.problem = "the settings of " + client + " name a host that is not in order: " + f.message
		}
		if len(r.Hosts) > 0 {
			preset.Rules = append(preset.Rules, Rule{Hosts: r.Hosts, Ports: r.Ports, Paths: r.Paths, Addresses: r.Addresses})
		}
	}
	out[name] = preset
	return out
}

func onlyPlainHosts(hosts []string) *fault {
	for _, host := range hosts {
		p, f := parseHostPattern(host)
		if f != nil {
			return f
		}
		if p.form != hostExact && p.form != hostAddr {
			return faultf("name one host, as registry.x.example", "%s is not one host", show(host))
		}
	}
	return nil
}

// ToolRules are the hosts that a coding agent needs to reach its own service.
type ToolRules struct {
	Tool  string
	Rules []Rule
}

// Tool returns the rules of a coding agent by its own name (claude, codex,
// copilot, opencode, kilo), and whether it is known.
func (p Presets) Tool(name string) (*ToolRules, bool) {
	preset, ok := p[name]
	if !ok || preset.Tool != name {
		return nil, false
	}
	return &ToolRules{Tool: name, Rules: preset.Rules}, true
}

func toolNames() []string {
	return []string{"claude", "codex", "copilot", "kilo", "opencode"}
}

// presetNames lists every name that is known without looking at the machine.
func presetNames() []string {
	return []string{
		"anthropic", "anthropic-extras", "claude", "claude-extras", "codex", "codex-extras", "copilot", "copilot-extras",
		"crates", "debian", "github", "github-write", "gitlab", "gitlab-write", "go", "kilo", "kilo-extras", "maven",
		"npm", "openai", "openai-extras", "opencode", "opencode-extras", presetPublic, "pypi",
	}
}

// expand returns the rules that one rule stands for, each saying where it came
// from; deny drops what would narrow a preset: "deny github" means its hosts.
func (p Presets) expand(r Rule, deny bool) ([]Rule, *fault) {
	if r.Preset == "" {
		return []Rule{r}, nil
	}
	if r.Preset == presetPublic {
		return []Rule{{Name: r.Name, Preset: presetPublic, Position: r.Position}}, nil
	}
	client, registry := registryClients[r.Preset]
	preset, known := p[r.Preset]
	switch {
	case !known && !registry:
		all := p.names()
		return nil, faultf(didYouMean(r.Preset, all), "unknown preset %s, valid are %s", strconv.Quote(r.Preset), list(all, "and"))
	case preset.problem != "":
		return nil, faultf("name the hosts in a rule of its own", "the preset %s cannot be used: %s", strconv.Quote(r.Preset), preset.problem)
	case len(preset.Rules) == 0:
		return nil, faultf("look at the settings of "+client+`, or write the hosts out under "hosts"`,
			"the hosts of the preset %s could not be found out from the settings of %s", strconv.Quote(r.Preset), client)
	}
	out := make([]Rule, 0, len(preset.Rules))
	for _, one := range preset.Rules {
		one.Name, one.Preset, one.Position = r.Name, r.Preset, r.Position
		if registry {
			one.Methods, one.Protocol = []string{"GET", "HEAD"}, ""
		}
		if deny {
			one = Rule{Name: one.Name, Preset: one.Preset, Hosts: one.Hosts, Position: one.Position}
		}
		out = append(out, one)
	}
	return out, nil
}

func (p Presets) names() []string {
	all := append(RegistryPresets(), presetPublic)
	for name := range p {
		if !slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	slices.SortFunc(all, strings.Compare)
	return all
}
