package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A Note is something in a layer that has no effect, or less than its author
// may think, and why.
type Note struct {
	Source Source `json:"source"`
	// Path leads to the value, as in [Problem.Path].
	Path string `json:"path,omitempty"`
	Text string `json:"text"`
}

// String is the note with its place.
func (n Note) String() string { return n.Source.String() + ": " + n.Text }

// Effective is what all layers together mean. It never changes; nil allows
// nothing. Its lists have no duplicates and are in the order of the layers.
type Effective struct {
	// Sandbox is the strictest word of all layers, empty if none says one.
	Sandbox Sandbox
	// Limits are the smallest of all layers; a zero field means no layer has one.
	Limits Limits
	// Protect and Hide are those of all layers.
	Protect, Hide []string
	// Mounts is what is asked for; the node's settings say what is given.
	Mounts           []Mount
	Secrets, SignIns []string
	Ports            []uint16
	Skills           []string
	// Notes name each line of a layer that was refused or has no effect.
	Notes []Note

	layers   []*layerIndex // those with a network key, from the highest
	lines    []Line
	asks     []Ask
	tool     *ToolRules
	versions map[string]int // of presets used
}

// Compile puts layers together, given from the highest to the lowest. tool may
// be nil; its rules join the lowest layer that has network rules, unless that
// is a hub's, or are a layer of their own where none has. The error is an [*Errors].
func Compile(layers []Layer, tool *ToolRules, presets Presets) (*Effective, error) {
	e := &Effective{tool: tool, versions: map[string]int{}}
	b := &builder{e: e, presets: presets, errs: &Errors{}}
	for _, l := range layers {
		if l.Document != nil {
			b.layer(l)
		}
	}
	b.addTool(tool)
	if err := b.errs.orNil(); err != nil {
		return nil, err
	}
	b.finish()
	return e, nil
}

type builder struct {
	e       *Effective
	presets Presets
	errs    *Errors
	// Who said what holds now, for notes.
	sandboxBy string
	limitBy   map[string]string
	said      []Line // what is not of the network
	wanted    []Ask
}

func (b *builder) layer(l Layer) {
	if n := l.Document.Network; n != nil {
		x := &layerIndex{name: l.Name, file: l.source(), none: "no rule of the " + l.Name + " names this host"}
		b.rules(l, x, n.Rules, false)
		b.rules(l, x, n.Deny, true)
		b.e.layers = append(b.e.layers, x)
	}
	b.sandbox(l)
	b.limits(l)
	b.lists(l)
}

func (b *builder) rules(l Layer, x *layerIndex, rules []Rule, deny bool) {
	key, label := "network.rules", "rule "
	if deny {
		key, label = "network.deny", "deny "
	}
	for i, from := range rules {
		path := fmt.Sprintf("%s[%d]", key, i)
		if from.Preset == presetPublic && !trusted(l.Name) {
			b.problem(l, from.Position, path, "name the hosts", "any host at all is nothing that a %s may ask for", l.Name)
			continue
		}
		expanded, f := b.presets.expand(from, deny)
		if f != nil {
			pos := l.Document.At(path + ".preset")
			if pos == (Position{}) {
				pos = from.Position
			}
			b.problem(l, pos, path+".preset", f.hint, "%s", f.message)
			continue
		}
		b.versions(from.Preset)
		for _, one := range expanded {
			b.add(l, x, one, labelOf(from, label+strconv.Itoa(i+1)), deny, path)
		}
	}
}

func labelOf(r Rule, otherwise string) string {
	switch {
	case r.Name != "":
		return r.Name
	case r.Preset != "":
		return "preset " + r.Preset
	}
	return otherwise
}

func (b *builder) add(l Layer, x *layerIndex, one Rule, label string, deny bool, path string) {
	source := Source{Layer: l.Name, File: l.source(), Line: one.Position.Line, Column: one.Position.Column}
	r, f := newRule(one, source, label, deny)
	if f != nil {
		b.problem(l, one.Position, path, f.hint, "%s", f.message)
		return
	}
	if deny {
		x.deny.add(r)
	} else {
		x.allow.add(r)
	}
}

func (b *builder) versions(preset string) {
	if p, ok := b.presets[preset]; ok {
		b.e.versions[preset] = p.Version
	}
}

func (b *builder) problem(l Layer, pos Position, path, hint, format string, args ...any) {
	b.errs.add(Problem{File: l.source(), Line: pos.Line, Column: pos.Column, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

func (b *builder) note(l Layer, path, format string, args ...any) {
	pos := l.Document.At(path)
	b.e.Notes = append(b.e.Notes, Note{
		Source: Source{Layer: l.Name, File: l.source(), Line: pos.Line, Column: pos.Column},
		Path:   path, Text: fmt.Sprintf(format, args...),
	})
}

// addTool lets the lowest layer take the tool's hosts in, unless it is a hub's:
// what a hub allows is the hub's to say. ToolRefusals then names what is
// missing.
func (b *builder) addTool(tool *ToolRules) {
	if tool == nil || len(tool.Rules) == 0 {
		return
	}
	if len(b.e.layers) == 0 {
		b.e.layers = append(b.e.layers, &layerIndex{name: layerTool, none: "no rule of the tool " + tool.Tool + " names this host, and no policy does"})
	}
	lowest := b.e.layers[len(b.e.layers)-1]
	if hub(lowest.name) {
		return
	}
	for _, from := range tool.Rules {
		from.Name, from.Preset, from.Position = "", "", Position{}
		r, f := newRule(from, Source{Layer: layerTool}, "tool "+tool.Tool, false)
		if f != nil {
			b.errs.add(Problem{Message: "the hosts of the tool " + show(tool.Tool) + ": " + f.message})
			continue
		}
		r.tool = true
		r.write()
		lowest.allow.add(r)
	}
}

func strictness(s Sandbox) int {
	return slices.Index([]Sandbox{"", SandboxOff, SandboxPreferred, SandboxRequired}, s)
}

func (b *builder) sandbox(l Layer) {
	if l.Document.Agents == nil || l.Document.Agents.Sandbox == "" {
		return
	}
	says := l.Document.Agents.Sandbox
	have := b.e.Sandbox
	if !says.Asks() && !have.Asks() {
		b.note(l, "agents.sandbox", "%q has no effect: a policy can ask for a sandbox, and what runs sessions is the node's setting node.sandbox.engine", says)
	}
	switch {
	case strictness(says) > strictness(have):
		b.e.Sandbox, b.sandboxBy = says, l.Name
		b.set(l, "agents.sandbox", string(says))
	case strictness(says) < strictness(have):
		b.note(l, "agents.sandbox", "%q has no effect: the %s says %q", says, b.sandboxBy, have)
	}
}

// limits takes the smaller of each.
func (b *builder) limits(l Layer) {
	if l.Document.Limits == nil {
		return
	}
	if b.limitBy == nil {
		b.limitBy = map[string]string{}
	}
	said, have := l.Document.Limits, &b.e.Limits
	lower(b, l, "cpus", said.CPUs, &have.CPUs, number)
	lower(b, l, "memory", said.Memory, &have.Memory, formatSize)
	lower(b, l, "processes", said.Processes, &have.Processes, strconv.Itoa)
	lower(b, l, "wall", said.Wall, &have.Wall, formatDuration)
}

func lower[T int | float64 | ~int64](b *builder, l Layer, name string, said T, have *T, text func(T) string) {
	path := "limits." + name
	switch {
	case said == 0 || said == *have:
	case *have != 0 && said > *have:
		b.note(l, path, "%s has no effect: the %s says %s", text(said), b.limitBy[name], text(*have))
	default:
		*have, b.limitBy[name] = said, l.Name
		b.set(l, path, text(said))
		b.want(l, AskLimit, path, name, "use up to "+text(said)+" of "+limitNames[name])
	}
}

var limitNames = map[string]string{"cpus": "processors", "memory": "memory", "processes": "processes", "wall": "time"}

// lists joins what every layer may add to.
func (b *builder) lists(l Layer) {
	d, e := l.Document, b.e
	e.Secrets = merge(e.Secrets, d.Secrets)
	e.SignIns = merge(e.SignIns, d.SignIns)
	e.Ports = merge(e.Ports, d.Ports)
	e.Skills = merge(e.Skills, d.Skills)
	b.secrets(l)
	b.each(l, "signIns", d.SignIns, AskSignIn, "use your sign-in of ")
	b.each(l, "ports", portTexts(d.Ports), "", "")
	b.each(l, "skills", d.Skills, AskSkill, "load the skill in ")
	if d.Files == nil {
		return
	}
	e.Protect = merge(e.Protect, d.Files.Protect)
	e.Hide = merge(e.Hide, d.Files.Hide)
	b.each(l, "files.protect", d.Files.Protect, "", "")
	b.each(l, "files.hide", d.Files.Hide, "", "")
	for i, p := range d.Files.Protect {
		if slices.Contains(d.Files.Hide, p) {
			b.note(l, fmt.Sprintf("files.protect[%d]", i), "%s has no effect: what is hidden cannot be changed either", p)
		}
	}
	for i, m := range d.Files.Mounts {
		b.mount(l, i, m)
	}
}

// secrets asks for each as a person would read it.
func (b *builder) secrets(l Layer) {
	for i, s := range l.Document.Secrets {
		path, name := fmt.Sprintf("secrets[%d]", i), strings.TrimSuffix(s, OptionalSecret)
		text := "get a stand-in for the secret " + name
		if name != s {
			text += ", where you have set it"
		}
		b.say(l, path, s)
		b.want(l, AskSecret, path, s, text)
	}
}

// each keeps the entries of a list for Show, and for Asks if kind is not empty.
func (b *builder) each(l Layer, key string, values []string, kind AskKind, text string) {
	for i, v := range values {
		path := fmt.Sprintf("%s[%d]", key, i)
		if slices.Index(values, v) != i {
			b.note(l, path, "%s has no effect: it stands there twice", v)
			continue
		}
		b.say(l, path, v)
		if kind != "" {
			b.want(l, kind, path, v, text+v)
		}
	}
}

// mount keeps one entry per path, read-only if any layer says so.
func (b *builder) mount(l Layer, i int, m Mount) {
	if m.Mode == "" {
		m.Mode = "ro"
	}
	path := fmt.Sprintf("files.mounts[%d]", i)
	b.say(l, path, m.Path+" "+m.Mode)
	b.want(l, AskMount, path, m.Path, "use the directory "+m.Path+" ("+m.Mode+")")
	if !trusted(l.Name) {
		b.note(l, path, "%s is given only if the node's setting node.files.mounts lists it", m.Path)
	}
	for j := range b.e.Mounts {
		have := &b.e.Mounts[j]
		if have.Path != m.Path {
			continue
		}
		if have.Mode != m.Mode {
			have.Mode = "ro"
			b.note(l, path, "%s is read-only: not every layer that names it says rw", m.Path)
		}
		return
	}
	b.e.Mounts = append(b.e.Mounts, m)
}

func merge[T comparable](a, more []T) []T {
	for _, m := range more {
		if !slices.Contains(a, m) {
			a = append(a, m)
		}
	}
	return a
}
