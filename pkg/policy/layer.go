package policy

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Names of layers, from the highest. Every other name is treated as strictly
// as a repository.
const (
	LayerOrganisation = "organisation"
	LayerTeam         = "team"
	LayerNode         = "node" // the node's own file, for tasks
	LayerRepository   = "repository"
	LayerCommandLine  = "command line"
	// layerTool holds a tool's own hosts where no layer speaks of the network.
	layerTool = "tool"
)

// A Layer is one document and who speaks through it.
type Layer struct {
	// Name is one of the Layer constants.
	Name string
	// Source is the file or URL that people are shown; empty means the
	// document's own name.
	Source string
	// Document may be nil: the layer then says nothing.
	Document *Document
}

func (l Layer) source() string { return cmp.Or(l.Source, l.Document.Name) }

// A Source is where something in an effective policy comes from.
type Source struct {
	Layer string `json:"layer"`
	// File is empty for what the program itself brings: a tool's hosts.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
}

// String is file:line:column, or the layer where there is no file.
func (s Source) String() string {
	if s.File == "" {
		return s.Layer
	}
	if s.Line == 0 {
		return s.File
	}
	return fmt.Sprintf("%s:%d:%d", s.File, s.Line, s.Column)
}

// trusted layers belong to those who answer for the machine.
func trusted(layer string) bool {
	return hub(layer) || layer == LayerCommandLine
}

// hub layers are written by administrators: what they allow is all they allow.
func hub(layer string) bool {
	return layer == LayerOrganisation || layer == LayerTeam || layer == LayerNode
}

// layerIndex is a layer's network rules, ready to be asked.
type layerIndex struct {
	name        string
	file        string
	allow, deny index
	none        string // the reason where no rule names the host
}

// index finds the rules that name a host without walking all of them. The
// lists hold positions in rules, in the order of the document.
type index struct {
	rules            []*rule
	exact, one, many map[string][]int32
	addr             map[netip.Addr][]int32
	public           []int32
	pushes           bool // some rule limits pushes
}

func (x *index) add(r *rule) {
	i := int32(len(x.rules))
	x.rules = append(x.rules, r)
	x.pushes = x.pushes || len(r.push) > 0
	if x.exact == nil {
		x.exact, x.one, x.many, x.addr = map[string][]int32{}, map[string][]int32{}, map[string][]int32{}, map[netip.Addr][]int32{}
	}
	for _, h := range r.hosts {
		switch h.form {
		case hostExact:
			x.exact[h.name] = append(x.exact[h.name], i)
		case hostOne:
			x.one[h.name] = append(x.one[h.name], i)
		case hostMany:
			x.many[h.name] = append(x.many[h.name], i)
		case hostAddr:
			x.addr[h.addr] = append(x.addr[h.addr], i)
		case hostPublic:
			x.public = append(x.public, i)
		}
	}
}

// lookup appends the lists of rules that name the host of q to lists.
func (x *index) lookup(q *query, lists [][]int32) [][]int32 {
	if len(x.rules) == 0 {
		return lists
	}
	if q.addr.IsValid() {
		return appendList(lists, x.addr[q.addr])
	}
	lists = appendList(lists, x.exact[q.host])
	if q.host == HostService {
		return lists
	}
	for i := 0; i < len(q.host); i++ {
		if q.host[i] != '.' {
			continue
		}
		below := q.host[i+1:]
		if q.firstDot == i {
			lists = appendList(lists, x.one[below])
			lists = appendList(lists, x.public)
		}
		lists = appendList(lists, x.many[below])
	}
	return lists
}

func appendList(lists [][]int32, list []int32) [][]int32 {
	if len(list) == 0 {
		return lists
	}
	return append(lists, list)
}

// reason tells the sentences about a rule apart.
type reason uint8

const (
	// In the order of closeness: of several rules that nearly match, the
	// closest is named.
	reasonNone reason = iota
	reasonPort
	reasonUnseen
	reasonMethod
	reasonPath
	reasonRef
	reasonDelete
	reasonTag
	reasonRewrite
	reasonInspect
	reasonPush
	reasonMatch
	reasonCount
)

// rule is a rule of one layer, expanded and ready to be asked.
type rule struct {
	from    Rule // expanded: no preset but "public" is left unexplained
	source  Source
	label   string // "read github", "preset npm", "rule 3", "deny 1"
	deny    bool
	tool    bool // one of the tool's own
	hosts   []hostPattern
	set     map[hostPattern]bool // of hosts, if there are many
	ports   []uint16             // empty in a deny rule: every port
	methods []string
	paths   []pathPattern
	lenient []pathPattern // of a deny rule: paths as asLenient sees them
	push    []pathPattern // of references, where pushes are limited
	raw     bool
	ranges  []netip.Prefix
	// texts are made when compiled, so that deciding makes none.
	texts [reasonCount]string
}

// limited rules depend on what only a request shows.
func (r *rule) limited() bool { return len(r.methods) > 0 || len(r.paths) > 0 || len(r.push) > 0 }

var defaultPorts = []uint16{443, 80}

func newRule(from Rule, source Source, label string, deny bool) (*rule, *fault) {
	r := &rule{from: from, source: source, label: label, deny: deny, ports: from.Ports, methods: from.Methods}
	if from.Preset == presetPublic && len(from.Hosts) == 0 {
		r.hosts = []hostPattern{{form: hostPublic}}
	}
	for _, h := range from.Hosts {
		p, f := parseHostPattern(h)
		if f != nil {
			return nil, f
		}
		r.hosts = append(r.hosts, p)
		if p.form == hostAddr && !deny && !IsMetadata(p.addr) {
			r.ranges = append(r.ranges, netip.PrefixFrom(p.addr, p.addr.BitLen()))
		}
	}
	if len(r.hosts) > 8 {
		r.set = make(map[hostPattern]bool, len(r.hosts))
		for _, h := range r.hosts {
			r.set[h] = true
		}
	}
	for _, text := range from.Paths {
		p, f := parsePathPattern(text)
		if f != nil {
			return nil, f
		}
		r.paths = append(r.paths, p)
		if deny {
			plain := asLenient(text)
			r.lenient = append(r.lenient, pathPattern{plain, strings.Split(plain[1:], "/")})
		}
	}
	for _, text := range from.Push {
		if f := checkRefPattern(text); f != nil {
			return nil, f
		}
		r.push = append(r.push, refPattern(text))
	}
	for _, p := range from.Addresses {
		r.ranges = append(r.ranges, withoutMetadata(p)...)
	}
	if len(r.ports) == 0 && !deny {
		r.ports = defaultPorts
	}
	// Bytes that nobody reads cannot keep to methods or paths.
	r.raw = from.Protocol == "tcp" && !r.limited()
	r.write()
	return r, nil
}

// write makes the sentences.
func (r *rule) write() {
	who := r.title()
	if r.deny {
		r.texts[reasonMatch] = who + " forbids it"
		r.texts[reasonUnseen] = who + " forbids some methods or paths, and here they cannot be seen"
		return
	}
	r.texts[reasonMatch] = who + " allows it"
	r.texts[reasonInspect] = who + " allows it by method or path"
	r.texts[reasonPort] = who + " allows this host on other ports only: " + list(portTexts(r.ports), "and")
	r.texts[reasonUnseen] = who + " limits methods or paths, which can be seen in HTTP and TLS only"
	r.texts[reasonMethod] = who + " allows other methods only: " + list(r.methods, "and")
	texts := make([]string, len(r.paths))
	for i, p := range r.paths {
		texts[i] = p.text
	}
	r.texts[reasonPath] = who + " allows other paths only: " + list(texts, "and")
	r.writePush(who)
}

// title is "rule 3 of the repository", the label in quotes where a person chose it.
func (r *rule) title() string {
	label := r.label
	if r.from.Name != "" {
		label = "rule " + strconv.Quote(r.from.Name)
		if r.deny {
			label = "deny " + strconv.Quote(r.from.Name)
		}
	}
	if r.tool {
		return label
	}
	return label + " of the " + r.source.Layer
}

func portTexts(ports []uint16) []string {
	out := make([]string, len(ports))
	for i, p := range ports {
		out[i] = strconv.Itoa(int(p))
	}
	return out
}

func (r *rule) hasPort(port uint16) bool {
	return len(r.ports) == 0 || slices.Contains(r.ports, port)
}

// fits says how far the rule, whose hosts match, goes along with q.
func (r *rule) fits(q *query) reason {
	switch {
	case !r.hasPort(q.port):
		return reasonPort
	case !r.limited():
		return reasonMatch
	case q.method == "" && q.tls:
		return reasonInspect
	case q.method == "":
		return reasonUnseen
	case len(r.methods) > 0 && !slices.Contains(r.methods, q.method):
		return reasonMethod
	case len(r.paths) > 0 && !r.hasPath(q.path):
		return reasonPath
	case len(r.push) > 0 && q.push:
		return r.fitsPush(q)
	}
	return reasonMatch
}

func (r *rule) hasPath(path string) bool {
	for i := range r.paths {
		if r.paths[i].match(path) {
			return true
		}
	}
	if len(r.lenient) == 0 {
		return false
	}
	plain := asLenient(path)
	for i := range r.lenient {
		if r.lenient[i].match(plain) {
			return true
		}
	}
	return false
}
