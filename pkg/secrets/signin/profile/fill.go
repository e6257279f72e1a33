package profile

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// bypassWord stands for all of Program.Bypass.
const bypassWord = "${bypass}"

// tail is how much of a key's end a tool may want to be told beforehand.
const tail = 20

var placeholder = regexp.MustCompile(`\$\{([^}]*)\}`)

// names are the placeholders in a text.
func names(text string) (out []string) {
	for _, m := range placeholder.FindAllStringSubmatch(text, -1) {
		out = append(out, m[1])
	}
	return out
}

// Values are what a session puts in place of placeholders.
type Values struct {
	Home, Dir string
	// StandIns are the session's own, by the name of their key.
	StandIns map[string]string
}

func (v Values) of(name string) string {
	switch what, key, _ := strings.Cut(name, ":"); what {
	case "home":
		return v.Home
	case "dir":
		return v.Dir
	case "key":
		return v.StandIns[key]
	case "tail":
		s := v.StandIns[key]
		return s[max(0, len(s)-tail):]
	}
	panic("BUG: a placeholder that Parse let through: " + name)
}

// fill puts the values in, each changed by how it has to be written.
func (v Values) fill(text string, written func(string) string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		return written(v.of(m[2 : len(m)-1]))
	})
}

// Environment is what the tool's environment must hold, sorted.
func (p *Profile) Environment(v Values) []string {
	var out []string
	for name, value := range p.Env.Set {
		out = append(out, name+"="+v.fill(value, func(s string) string { return s }))
	}
	slices.Sort(out)
	return out
}

// Clears reports whether a variable would lead the tool elsewhere.
func (p *Profile) Clears(name string) bool {
	return slices.ContainsFunc(p.Env.Clear, func(c string) bool {
		begin, all := strings.CutSuffix(c, "*")
		return name == c || all && strings.HasPrefix(name, begin)
	})
}

// Made is a file for a session's home.
type Made struct {
	Path string // relative to the home
	Text []byte
}

// MadeUp are the files that a session's home must hold.
func (p *Profile) MadeUp(v Values) (out []Made) {
	for _, f := range p.Files {
		_, has := v.StandIns[f.Key]
		_, hasNot := v.StandIns[f.Without]
		if f.Key != "" && !has || f.Without != "" && hasNot {
			continue
		}
		out = append(out, Made{Path: f.Path, Text: []byte(v.fill(f.Text, quoted))})
	}
	return out
}

// quoted is s as it stands between the quotes of JSON, and of TOML.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic("BUG: a text that is not JSON: " + err.Error())
	}
	return string(b[1 : len(b)-1])
}

// Arguments are those for one prompt without a person, and whether the tool
// can do that at all. bypass says that a sandbox holds the tool, so that its
// own questions, which nobody would answer, may be switched off.
func (p *Profile) Arguments(prompt string, bypass bool) (argv []string, can bool) {
	for _, word := range p.Program.Headless {
		switch {
		case word != bypassWord:
			argv = append(argv, strings.ReplaceAll(word, "${prompt}", prompt))
		case bypass:
			argv = append(argv, p.Program.Bypass...)
		}
	}
	return argv, len(p.Program.Headless) > 0
}

// Takes reports whether the tool takes a key of that shape.
func (k Key) Takes(key string) bool {
	return len(k.Prefixes) == 0 || slices.ContainsFunc(k.Prefixes, func(p string) bool { return strings.HasPrefix(key, p) })
}

// Rules are what the tool asks to reach: what it cannot do without, and where
// the keys belong that the session has, by their names.
func (p *Profile) Rules(keys []string) *policy.ToolRules {
	out := &policy.ToolRules{Tool: p.Name}
	if p.Network.Preset != "" {
		out.Rules = slices.Clone(policy.BuiltinPresets()[p.Network.Preset].Rules)
	}
	hosts := slices.Clone(p.Network.Hosts)
	for _, k := range p.Keys {
		if slices.Contains(keys, k.Name) {
			hosts = append(hosts, k.Hosts...)
		}
	}
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) > 0 {
		out.Rules = append(out.Rules, policy.Rule{Hosts: hosts, Ports: []uint16{443}})
	}
	return out
}
