package policy

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// example is the whole language in one document.
const example = `{
	"$schema": "policy.schema.json",
	"version": 1,
	"agents": { "sandbox": "required" }, // off | preferred | required
	"network": {
		"rules": [
			{ "preset": "anthropic" },
			/* reading
			   only */
			{ "name": "read github", "hosts": ["github.com", "*.githubusercontent.com"], "ports": [443],
				"methods": ["GET", "HEAD"], "paths": ["/acme/**"] },
			{ "name": "work", "hosts": ["github.com"], "paths": ["/acme/widget.git/**"], "push": ["refs/heads/agent/**"] },
			{ "name": "staging db", "hosts": ["db.corp.example"], "ports": [5432], "protocol": "tcp", "addresses": ["10.2.0.0/16"] },
		],
		"deny": [ { "hosts": ["gist.github.com"] } ],
	},
	"secrets": ["ANTHROPIC_API_KEY", "GITHUB_TOKEN"],
	"signIns": ["claude"],
	"files": { "protect": [".github/workflows/**"], "hide": [".env"], "mounts": [ { "path": "~/.cache/go-build", "mode": "rw" } ] },
	"limits": { "cpus": 2, "memory": "4GiB", "processes": 512, "wall": "8h" },
	"ports": [3000],
	"skills": [ ".mojoup/skills/report" ],
}`

func TestParseReadsTheWholeLanguage(t *testing.T) {
	got := parse(t, example)
	want := &Document{
		Name:    "policy.json",
		Version: 1,
		Agents:  &Agents{Sandbox: SandboxRequired},
		Network: &Network{
			Rules: []Rule{
				{Preset: "anthropic", Position: Position{7, 4}},
				{Name: "read github", Hosts: []string{"github.com", "*.githubusercontent.com"}, Ports: []uint16{443},
					Methods: []string{"GET", "HEAD"}, Paths: []string{"/acme/**"}, Position: Position{10, 4}},
				{Name: "work", Hosts: []string{"github.com"}, Paths: []string{"/acme/widget.git/**"}, Push: []string{"refs/heads/agent/**"}, Position: Position{12, 4}},
				{Name: "staging db", Hosts: []string{"db.corp.example"}, Ports: []uint16{5432}, Protocol: "tcp",
					Addresses: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, Position: Position{13, 4}},
			},
			Deny: []Rule{{Hosts: []string{"gist.github.com"}, Position: Position{15, 13}}},
		},
		Secrets: []string{"ANTHROPIC_API_KEY", "GITHUB_TOKEN"},
		SignIns: []string{"claude"},
		Files: &Files{Protect: []string{".github/workflows/**"}, Hide: []string{".env"},
			Mounts: []Mount{{Path: "~/.cache/go-build", Mode: "rw"}}},
		Limits: &Limits{CPUs: 2, Memory: 4 << 30, Processes: 512, Wall: 8 * time.Hour},
		Ports:  []uint16{3000},
		Skills: []string{".mojoup/skills/report"},
	}
	if diff := cmp.Diff(want, got, sameDocument...); diff != "" {
		t.Error(diff)
	}
	if at := got.At("network.rules[1].paths[0]"); at != (Position{11, 43}) {
		t.Errorf("position of a path: %v", at)
	}
}

var sameDocument = cmp.Options{
	cmpopts.IgnoreUnexported(Document{}),
	cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }),
}

// roundTrip is the property of everything that Parse accepts.
func roundTrip(t *testing.T, d *Document) {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(d.Name, text)
	if err != nil {
		t.Fatalf("%v\nin %s", err, text)
	}
	noPositions := cmp.Options{sameDocument, cmpopts.IgnoreTypes(Position{})}
	if diff := cmp.Diff(d, again, noPositions); diff != "" {
		t.Fatalf("%s\nin %s", diff, text)
	}
}

func TestParseTellsAbsentFromEmpty(t *testing.T) {
	for src, want := range map[string]*Network{
		`{}`:                                   nil,
		`{"network":{}}`:                       {},
		`{"network":{"rules":[]}}`:             {Rules: []Rule{}},
		`{"network":{"rules":[],"deny":[],},}`: {Rules: []Rule{}, Deny: []Rule{}},
	} {
		d := parse(t, src)
		if diff := cmp.Diff(want, d.Network); diff != "" {
			t.Errorf("%s: %s", src, diff)
		}
		roundTrip(t, d)
	}
	roundTrip(t, parse(t, example))
}

// TestB92_NothingMisspeltLoads holds each fault against its place, its message
// and what is advised.
func TestB92_NothingMisspeltLoads(t *testing.T) {
	for _, c := range []struct {
		src     string
		line    int
		column  int
		path    string
		message string // a part of it
		hint    string // a part of it; "-" wants none
	}{
		{`{"agents":{"sanbox":"required"}}`, 1, 12, "agents", `unknown key "sanbox", valid are sandbox`, `"sandbox"`},
		{`{"agent":{"sandbox":"required"}}`, 1, 2, "", `unknown key "agent"`, `"agents"`},
		{`{"agent.sandbox":"required"}`, 1, 2, "", `unknown key "agent.sandbox"`, ""},
		{`{"agents":{"Sandbox":"required"}}`, 1, 12, "agents", `unknown key "Sandbox"`, `"sandbox"`},
		{`{"agents":{"sandbox":"Required"}}`, 1, 22, "agents.sandbox", `unknown value "Required", valid is "off", "preferred" or "required"`, `"required"`},
		{`{"agents":{"sandbox":"require"}}`, 1, 22, "agents.sandbox", `unknown value`, `"required"`},
		{`{"agents":{"sandbox":true}}`, 1, 22, "agents.sandbox", `true or false cannot stand here, expected "off", "preferred" or "required"`, "-"},
		{`{"agents":{"sandbox":null}}`, 1, 22, "agents.sandbox", `null cannot stand here`, "leave the key out"},
		{`{"agents":{"sandbox":[]}}`, 1, 22, "agents.sandbox", `a list cannot stand here`, "-"},
		{`{"agents":"required"}`, 1, 11, "agents", `a string cannot stand here, expected an object`, "-"},
		{"{\"network\":{\"rules\":[\n {\"hosts\":[\"x.example\"],\n  \"metods\":[\"GET\"]}]}}", 3, 3, "network.rules[0]", `unknown key "metods"`, `"methods"`},
		{`{"network":{"rules":[{"hots":["x.example"]}]}}`, 1, 23, "network.rules[0]", `unknown key "hots"`, `"hosts"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"prot":443}]}}`, 1, 45, "network.rules[0]", `unknown key "prot"`, `"ports"`},
		{`{"network":{"deny":[{"hosts":["x.example"],"addresses":["10.0.0.0/8"]}]}}`, 1, 44, "network.deny[0]", `unknown key "addresses"`, ""},
		{`{"network":{"rule":[]}}`, 1, 13, "network", `valid are rules and deny`, `"rules"`},
		{`{"netwrok":{}}`, 1, 2, "", `unknown key "netwrok"`, `"network"`},
		{`{"image":"x"}`, 1, 2, "", `unknown key "image", valid are $schema, version, agents`, "-"},
		{`{"_note":"x"}`, 1, 2, "", `unknown key "_note"`, "comment"},
		{`{"version":2}`, 1, 12, "version", `version 2 is newer than this program`, "update"},
		{`{"version":0}`, 1, 12, "version", `out of bounds`, "-"},
		{`{"version":"1"}`, 1, 12, "version", `a string cannot stand here, expected a number`, "without quotes"},
		{`{"version":1.5}`, 1, 12, "version", `newer`, ""},
		{"{\"version\":1,\n\"version\":1}", 2, 1, "version", `stands here twice, first in line 1`, "keep one"},
		{`{"network":{},"Network":{"rules":[]}}`, 1, 15, "", `unknown key "Network"`, `"network"`},
		{`{"network":{"rules":[{}]}}`, 1, 22, "network.rules[0]", `names neither hosts nor a preset`, `"hosts"`},
		{`{"network":{"rules":[{"hosts":[]}]}}`, 1, 31, "network.rules[0].hosts", `an empty list matches nothing`, "leave the key out"},
		{`{"network":{"rules":[{"hosts":["x.example"],"methods":[]}]}}`, 1, 55, "network.rules[0].methods", `an empty list`, ""},
		{`{"network":{"rules":[{"hosts":"x.example"}]}}`, 1, 31, "network.rules[0].hosts", `a string cannot stand here, expected a list`, "brackets"},
		{`{"network":{"rules":[{"preset":"npm","methods":["POST"]}]}}`, 1, 38, "network.rules[0].methods", `brings its own methods`, "rule of its own"},
		{`{"network":{"rules":[{"preset":"NPM"}]}}`, 1, 32, "network.rules[0].preset", `no name of a preset`, `"npm"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"methods":["get"]}]}}`, 1, 56, "network.rules[0].methods[0]", `compared exactly`, `write "GET"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"methods":["CONNECT"]}]}}`, 1, 56, "network.rules[0].methods[0]", `no method of a request`, ""},
		{`{"network":{"rules":[{"hosts":["x.example"],"methods":["*"]}]}}`, 1, 56, "network.rules[0].methods[0]", `no method`, `leave "methods" out`},
		{`{"network":{"rules":[{"hosts":["x.example"],"protocol":"udp"}]}}`, 1, 56, "network.rules[0].protocol", `unknown value "udp", valid is "tcp"`, ""},
		{`{"network":{"rules":[{"hosts":["x.example"],"addresses":["10.2.0.0/8"]}]}}`, 1, 58, "network.rules[0].addresses[0]", `bits set beyond its length`, `"10.0.0.0/8"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"addresses":["10.2.0.1"]}]}}`, 1, 58, "network.rules[0].addresses[0]", `has no length`, `"10.2.0.1/32"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"push":["agent/*"]}]}}`, 1, 53, "network.rules[0].push[0]", `no pattern of full names`, `"refs/heads/agent/*"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"push":["main"]}]}}`, 1, 53, "network.rules[0].push[0]", `no full name of a reference`, `"refs/heads/main"`},
		{`{"network":{"rules":[{"hosts":["x.example"],"push":["refs/heads/a**"]}]}}`, 1, 53, "network.rules[0].push[0]", `** stands alone`, ``},
		{`{"network":{"rules":[{"hosts":["x.example"],"push":["refs/heads/a..b"]}]}}`, 1, 53, "network.rules[0].push[0]", `no name that git gives`, ``},
		{`{"network":{"rules":[{"hosts":["x.example"],"push":[]}]}}`, 1, 52, "network.rules[0].push", ``, ``},
		{`{"network":{"rules":[{"hosts":["x.example"],"addresses":["169.254.169.254/32"]}]}}`, 1, 58, "network.rules[0].addresses[0]", `never opened`, ""},
		{`{"network":{"rules":[{"hosts":["169.254.169.254"]}]}}`, 1, 32, "network.rules[0].hosts[0]", `never opened`, ""},
		{`{"network":{"rules":[{"hosts":["host.mojoup.internal"],"ports":[5432]}]}}`, 1, 32, "network.rules[0].hosts[0]", `needs the protocol tcp`, `127.0.0.1/32`},
		{`{"network":{"deny":[{"preset":"public"}]}}`, 1, 31, "network.deny[0].preset", `cannot be denied by name`, `"rules": []`},
		{"{\"network\":{\"rules\":[{\"hosts\":[\"x.example\"],\"name\":\"a\\u001b[31m\"}]}}", 1, 52, "network.rules[0].name", `'\x1b', which does not print`, ""},
		{"{\"network\":{\"rules\":[{\"hosts\":[\"x.example\"],\"name\":\"a\u202eb\"}]}}", 1, 52, "network.rules[0].name", `'\u202e', which does not print`, ""},
		{`{"secrets":["A-B"]}`, 1, 13, "secrets[0]", `"A-B" cannot be the name of a variable`, "GITHUB_TOKEN"},
		{`{"secrets":["sk-ant-api03-0123456789abcdef0123456789"]}`, 1, 13, "secrets[0]", `this cannot be the name`, "never stands in a policy"},
		{`{"limits":{"memory":"4GB"}}`, 1, 21, "limits.memory", `no size`, `"4GiB"`},
		{`{"limits":{"memory":4}}`, 1, 21, "limits.memory", `a number cannot stand here`, "-"},
		{`{"limits":{"cpus":0}}`, 1, 19, "limits.cpus", `out of bounds`, "-"},
		{`{"limits":{"cpus":1e999}}`, 1, 19, "limits.cpus", `out of bounds`, "-"},
		{`{"limits":{"processes":0.5}}`, 1, 24, "limits.processes", `a whole number from 1`, "-"},
		{`{"limits":{"wall":"7d"}}`, 1, 19, "limits.wall", `no time`, `"8h"`},
		{`{"limits":{"wall":"-1h"}}`, 1, 19, "limits.wall", `no time`, ""},
		{`{"files":{"protect":["/etc/**"]}}`, 1, 22, "files.protect[0]", `not below the repository`, ""},
		{`{"files":{"protect":["a/../../b"]}}`, 1, 22, "files.protect[0]", `not a plain path`, ""},
		{`{"files":{"hide":["*.{a,b}"]}}`, 1, 19, "files.hide[0]", `means nothing in a pattern`, "only wildcards"},
		{`{"files":{"mounts":[{"path":"cache"}]}}`, 1, 29, "files.mounts[0].path", `neither absolute`, ""},
		{`{"files":{"mounts":[{"path":"/"}]}}`, 1, 29, "files.mounts[0].path", `not a plain path`, ""},
		{`{"files":{"mounts":[{"path":"~/../x"}]}}`, 1, 29, "files.mounts[0].path", `not a plain path`, ""},
		{`{"files":{"mounts":[{"mode":"rw"}]}}`, 1, 21, "files.mounts[0]", `the key "path" is missing`, ""},
		{`{"skills":["../x"]}`, 1, 12, "skills[0]", `not a plain path`, ""},
		{`{"signIns":["~/.claude/credentials.json"]}`, 1, 13, "signIns[0]", `no name of a tool`, ""},
		{`{"ports":[0]}`, 1, 11, "ports[0]", `from 1 to 65535`, "-"},
		{`[]`, 1, 1, "", `a list cannot stand here, expected an object`, "-"},
		{"{\n  \"ä\": 1,\n  \"äöü\": 2, \"version\": 9}", 2, 3, "", `unknown key "ä"`, ""},
	} {
		problems := refuse(t, c.src)
		p := problems[0]
		if p.Line != c.line || p.Column != c.column || p.Path != c.path || p.File != "policy.json" {
			t.Errorf("%s\n got %d:%d %q, want %d:%d %q (%s)", c.src, p.Line, p.Column, p.Path, c.line, c.column, c.path, p.Message)
		}
		if !strings.Contains(p.Message, c.message) {
			t.Errorf("%s\n got message %q, want %q in it", c.src, p.Message, c.message)
		}
		if c.hint == "-" && p.Hint != "" || c.hint != "-" && !strings.Contains(p.Hint, c.hint) {
			t.Errorf("%s\n got hint %q, want %q in it", c.src, p.Hint, c.hint)
		}
	}
}

func TestParseReportsEverythingAtOnceInOrder(t *testing.T) {
	problems := refuse(t, `{
		"version": 2,
		"agents": { "sanbox": "off" },
		"network": { "rules": [
			{ "hosts": ["*"], "ports": [0, "443"] },
			{ "hosts": ["ok.example"], "metods": [] } ] },
		"limits": { "memory": "lots", "cpus": -1 },
		"extra": true
	}`)
	var got []string
	for _, p := range problems {
		got = append(got, p.Path)
	}
	want := []string{"version", "agents", "network.rules[0].hosts[0]", "network.rules[0].ports[0]", "network.rules[0].ports[1]",
		"network.rules[1]", "limits.memory", "limits.cpus", ""}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	columns := refuse(t, `{"skills":["äöü","/x"], "x":1}`)
	if columns[0].Column != 18 || columns[1].Column != 25 {
		t.Errorf("columns count bytes, not characters: %v", columns)
	}
}

// TestB94_WhatCannotBeReadIsNoPolicy has every text that is no document.
func TestB94_WhatCannotBeReadIsNoPolicy(t *testing.T) {
	for _, c := range []struct {
		src          string
		line, column int
		message      string
	}{
		{"", 1, 1, "holds no value"},
		{"\n\n  // only a comment", 3, 20, "holds no value"},
		{"{", 1, 2, "expected a key"},
		{"{\"version\"", 1, 11, "expected a colon"},
		{"{\"version\" 1}", 1, 12, "expected a colon"},
		{"{\"version\":}", 1, 12, "expected a value"},
		{"{\"version\":1", 1, 13, "the end of the file, expected a comma"},
		{"{\"version\":1 \"agents\":{}}", 1, 14, "expected a comma"},
		{"{,}", 1, 2, "expected a key"},
		{"{\"ports\":[,]}", 1, 11, "expected a value"},
		{"{\"ports\":[1,,]}", 1, 13, "expected a value"},
		{"{} {}", 1, 4, "after the end of the document"},
		{"{version:1}", 1, 2, "expected a key"},
		{"{'version':1}", 1, 2, "expected a key"},
		{"{\"ports\":[0x10]}", 1, 11, "not a number"},
		{"{\"ports\":[01]}", 1, 11, "not a number"},
		{"{\"ports\":[443-445]}", 1, 11, "not a number"},
		{"{\"ports\":[.5]}", 1, 11, "expected a value"},
		{"{\"ports\":[5.]}", 1, 11, "not a number"},
		{"{\"ports\":[NaN]}", 1, 11, "a word without quotes"},
		{"{\"x\":\"a\nb\"}", 1, 6, "does not end on its line"},
		{"{\"x\":\"a", 1, 6, "never ends"},
		{"{\"x\":\"\\x41\"}", 1, 7, "an escape that JSON does not know"},
		{"{\"x\":\"\\ud800\"}", 1, 7, "half of a surrogate pair"},
		{"{\"x\":\"\\udc00\\ud800\"}", 1, 7, "half of a surrogate pair"},
		{"{\"x\":\"a\x01\"}", 1, 8, "control character"},
		{"{ /* no end", 1, 3, "a comment that never ends"},
		{"{ / }", 1, 3, "expected a value"},
		{"{ // a\r \"network\": {} \n}", 1, 7, "carriage return"},
		{"\uFEFF{}", 1, 1, "byte order mark"},
		{"{\"x\":\n\"\xff\"}", 2, 2, "not valid UTF-8"},
		{strings.Repeat("[", 40), 1, 33, "deeper than 32"},
	} {
		problems := refuse(t, c.src)
		if len(problems) != 1 {
			t.Errorf("%q: %d problems, want the first fault alone", c.src, len(problems))
		}
		if p := problems[0]; p.Line != c.line || p.Column != c.column || !strings.Contains(p.Message, c.message) {
			t.Errorf("%q\n got %d:%d %s\nwant %d:%d %s", c.src, p.Line, p.Column, p.Message, c.line, c.column, c.message)
		}
	}
	large := "{}" + strings.Repeat(" ", maxSource)
	if p := refuse(t, large); !strings.Contains(p[0].Message, "larger than 1 MiB") {
		t.Errorf("too large: %v", p)
	}
	parse(t, large[:maxSource])
	for _, src := range []string{`{}`, "{\r\n}\r\n", "// c\n{}", "{} // c", `{"version":1,}`} {
		if d := parse(t, src); d.Network != nil || d.Agents != nil {
			t.Errorf("%q says something", src)
		}
	}
}

func TestProblemsAreBounded(t *testing.T) {
	_, err := Parse("p", []byte("{"+strings.Repeat(`"a":1,"b":1,`, 50)+"}"))
	errs := err.(*Errors)
	if len(errs.Problems) != maxProblems || errs.More != 50 || !strings.Contains(errs.Error(), "and 50 more") {
		t.Errorf("%d problems and %d more", len(errs.Problems), errs.More)
	}
	if p := refuse(t, `{"ports":[`+strings.Repeat("1,", 1001)+`]}`); !strings.Contains(p[0].Message, "at most 1000") {
		t.Errorf("a long list: %v", p)
	}
}

func TestErrorsReadAsACompilersDo(t *testing.T) {
	_, err := Parse(".mojoup/policy.json", []byte(`{"agents":{"sanbox":"off"}}`))
	want := `.mojoup/policy.json:1:12: agents: unknown key "sanbox", valid are sandbox (did you mean "sandbox"?)`
	if err.Error() != want {
		t.Errorf("\n got %s\nwant %s", err, want)
	}
	if hint := err.(*Errors).Hint(); !strings.Contains(hint, "policy check") {
		t.Errorf("hint %q", hint)
	}
}
