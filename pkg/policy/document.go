package policy

import (
	"encoding/json"
	"net/netip"
	"slices"
	"time"
)

// Sandbox is how a layer wants agents to be run. The zero value says nothing,
// which is not the same as [SandboxOff].
type Sandbox string

// What "agents.sandbox" may say, from the least to the strictest.
const (
	SandboxOff       Sandbox = "off"
	SandboxPreferred Sandbox = "preferred"
	SandboxRequired  Sandbox = "required"
)

// Asks reports whether the word asks for anything. What runs a session is the
// node's to say: a layer may ask it for a sandbox, and not for none.
func (s Sandbox) Asks() bool { return s == SandboxPreferred || s == SandboxRequired }

// A Document is one policy file. [Parse] makes it, and marshalling it to JSON
// gives a text that parses to the same document.
type Document struct {
	// Name is the file name that was given to Parse.
	Name string `json:"-"`
	// Version is 0 where the file does not say, which means 1.
	Version int     `json:"version,omitzero"`
	Agents  *Agents `json:"agents,omitzero"`
	// Network is nil where the layer says nothing about the network. One that
	// is not nil and empty allows nothing.
	Network *Network `json:"network,omitzero"`
	Secrets []string `json:"secrets,omitzero"`
	SignIns []string `json:"signIns,omitzero"`
	Files   *Files   `json:"files,omitzero"`
	Limits  *Limits  `json:"limits,omitzero"`
	// Ports are dev servers inside that may be forwarded on request.
	Ports []uint16 `json:"ports,omitzero"`
	// Skills are directories below the repository.
	Skills []string `json:"skills,omitzero"`

	at map[string]Position
}

// At is the place of a value in the source, by its path as in
// [Problem.Path]; the zero Position where there is none.
func (d *Document) At(path string) Position { return d.at[path] }

// Agents is the key "agents".
type Agents struct {
	Sandbox Sandbox `json:"sandbox,omitzero"`
}

// Network is the key "network".
type Network struct {
	Rules []Rule `json:"rules,omitzero"`
	Deny  []Rule `json:"deny,omitzero"`
}

// A Rule allows what it names, or as an entry of "deny" forbids it.
type Rule struct {
	Name   string `json:"name,omitzero"`
	Preset string `json:"preset,omitzero"`
	// Hosts are patterns in normal form: "x.example", "*.x.example" (exactly
	// one label before x), "**.x.example" (one or more), or an address.
	Hosts []string `json:"hosts,omitzero"`
	// Ports is empty for 443 and 80; in "deny" for every port.
	Ports   []uint16 `json:"ports,omitzero"`
	Methods []string `json:"methods,omitzero"`
	Paths   []string `json:"paths,omitzero"`
	// Push are patterns of references, in full, to which git may push.
	Push     []string `json:"push,omitzero"`
	Protocol string   `json:"protocol,omitzero"`
	// Addresses are ranges beyond public addresses that the hosts may resolve
	// to; the node's own setting must open them as well.
	Addresses []netip.Prefix `json:"addresses,omitzero"`

	Position Position `json:"-"`
}

// Files is the key "files".
type Files struct {
	Protect []string `json:"protect,omitzero"`
	Hide    []string `json:"hide,omitzero"`
	Mounts  []Mount  `json:"mounts,omitzero"`
}

// A Mount is a directory of the machine that a policy asks for.
type Mount struct {
	// Path is absolute, or starts with "~/".
	Path string `json:"path"`
	// Mode is "ro" or "rw"; empty means "ro".
	Mode string `json:"mode,omitzero"`
}

// Limits is the key "limits". A zero field says nothing.
type Limits struct {
	CPUs      float64       // processors' worth of time
	Memory    int64         // bytes
	Processes int           // processes and threads
	Wall      time.Duration // by the clock
}

// MarshalJSON writes sizes and times as a policy does.
func (l Limits) MarshalJSON() ([]byte, error) {
	var out struct {
		CPUs      float64 `json:"cpus,omitzero"`
		Memory    string  `json:"memory,omitzero"`
		Processes int     `json:"processes,omitzero"`
		Wall      string  `json:"wall,omitzero"`
	}
	out.CPUs, out.Processes = l.CPUs, l.Processes
	if l.Memory != 0 {
		out.Memory = formatSize(l.Memory)
	}
	if l.Wall != 0 {
		out.Wall = formatDuration(l.Wall)
	}
	return json.Marshal(out)
}

// Parse reads a policy document. name is what messages call the file. The
// error is an [*Errors] that holds everything wrong with the document, or the
// first fault of its syntax; then no document is returned.
func Parse(name string, src []byte) (*Document, error) {
	errs := &Errors{}
	if len(src) > maxSource {
		errs.add(Problem{File: name, Message: "the document is larger than 1 MiB", Hint: "a policy of this size is a mistake"})
		return nil, errs
	}
	root, fault := readJSON(src)
	if fault != nil {
		errs.add(Problem{File: name, Line: fault.pos.Line, Column: fault.pos.Column, Message: fault.message, Hint: fault.hint})
		return nil, errs
	}
	c := &checker{file: name, errs: errs, at: map[string]Position{}}
	table := documentKey()
	c.walk(root, &table, "")
	if err := errs.orNil(); err != nil {
		slices.SortStableFunc(errs.Problems, func(a, b Problem) int {
			if a.Line != b.Line {
				return a.Line - b.Line
			}
			return a.Column - b.Column
		})
		return nil, err
	}
	d := build(root)
	d.Name, d.at = name, c.at
	return d, nil
}
