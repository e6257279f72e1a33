package policy

import (
	"slices"
	"strings"
)

// AskKind is what an [Ask] is about.
type AskKind string

// The kinds of things that need the person's approval.
const (
	AskHost   AskKind = "host"
	AskSecret AskKind = "secret"
	AskSignIn AskKind = "signIn"
	AskMount  AskKind = "mount"
	// AskLimit is listed for every limit of a repository: whether one is above
	// another's, and so needs a yes, is for who carries limits out to know.
	AskLimit AskKind = "limit"
	AskSkill AskKind = "skill"
)

// An Ask is one thing that a repository wants beyond what is free.
type Ask struct {
	Kind AskKind `json:"kind"`
	// Text is a plain line for a person, international names in punycode:
	// "reach github.com on 443, GET HEAD".
	Text string `json:"text"`
	// Value is the name of the secret, sign-in or skill, the path of the
	// mount, or the key of the limit ("memory").
	Value  string `json:"value,omitempty"`
	Source Source `json:"source"`
}

// Asks lists, in the order of the document, what repositories ask for beyond
// the free set: the tool's own hosts and registry presets. What a higher layer
// takes away all the same is not listed.
func (e *Effective) Asks() []Ask {
	if e == nil {
		return nil
	}
	return slices.Clone(e.asks)
}

func (b *builder) asks() {
	for _, l := range b.e.layers {
		if trusted(l.name) || l.name == layerTool {
			continue
		}
		for _, r := range l.allow.rules {
			if !b.free(r) && hopeless(b.e.layers, l, r) == "" {
				b.e.asks = append(b.e.asks, Ask{Kind: AskHost, Text: "reach " + r.describe(), Source: r.source})
			}
		}
	}
	b.e.asks = append(b.e.asks, b.wanted...)
}

// free reports whether a rule needs no approval.
func (b *builder) free(r *rule) bool {
	if _, registry := registryClients[r.from.Preset]; registry {
		return true
	}
	if b.e.tool == nil {
		return false
	}
	for _, own := range b.e.tool.Rules {
		if t, f := newRule(own, Source{}, "", false); f == nil && covers(t, r) {
			return true
		}
	}
	return false
}

// want keeps an ask that is not of the network.
func (b *builder) want(l Layer, kind AskKind, path, value, text string) {
	if trusted(l.Name) {
		return
	}
	pos := l.Document.At(path)
	b.wanted = append(b.wanted, Ask{kind, text, value, Source{l.Name, l.source(), pos.Line, pos.Column}})
}

// hopeless names one of layers that allows nothing of what r names, or is
// empty. own is the layer of r.
func hopeless(layers []*layerIndex, own *layerIndex, r *rule) string {
	for _, l := range layers {
		if l != own && !l.allow.overlaps(r) {
			return l.name
		}
	}
	return ""
}

// overlaps reports whether some rule may allow something that r allows too.
func (x *index) overlaps(r *rule) bool {
	for i := range r.hosts {
		one := r.host(i)
		if x.any(one.hosts[0], func(o *rule) bool { return overlap(o, one) }) {
			return true
		}
	}
	return false
}

// clipped lists the hosts of r that no single rule allows as far as r does.
func (x *index) clipped(r *rule) (out []string) {
	for i := range r.hosts {
		one := r.host(i)
		if !x.any(one.hosts[0], func(o *rule) bool { return covers(o, one) }) {
			out = append(out, one.hosts[0].String())
		}
	}
	return out
}

// host is r for the one host of that number.
func (r *rule) host(i int) *rule {
	one := *r
	one.hosts, one.set = r.hosts[i:i+1], nil
	return &one
}

// any reports whether yes holds for a rule that may share a host with h.
func (x *index) any(h hostPattern, yes func(*rule) bool) bool {
	if h.form != hostExact && h.form != hostAddr {
		return slices.ContainsFunc(x.rules, yes)
	}
	var room [8][]int32
	q := query{host: h.name, addr: h.addr, firstDot: strings.IndexByte(h.name, '.')}
	for _, list := range x.lookup(&q, room[:0]) {
		if slices.ContainsFunc(list, func(i int32) bool { return yes(x.rules[i]) }) {
			return true
		}
	}
	return false
}

// useless notes rules of lower layers of which a higher one leaves nothing, or
// not all.
func (b *builder) useless() {
	for n, l := range b.e.layers {
		for _, r := range l.allow.rules {
			b.narrowed(b.e.layers[:n], r)
		}
	}
}

func (b *builder) narrowed(higher []*layerIndex, r *rule) {
	for _, l := range higher {
		switch clipped := l.allow.clipped(r); {
		case len(clipped) == 0:
			continue
		case !l.allow.overlaps(r):
			b.e.Notes = append(b.e.Notes, Note{Source: r.source, Text: r.label + " has no effect: the " + l.name + " allows nothing of " + r.describe()})
		default:
			b.e.Notes = append(b.e.Notes, Note{Source: r.source, Text: r.label + " holds in part only: the " + l.name + " allows less of " + some(clipped)})
		}
		return
	}
}

// some names the first few.
func some(names []string) string {
	if len(names) > 5 {
		return strings.Join(names[:5], ", ") + " and others"
	}
	return list(names, "and")
}
