package policy

import "slices"

// An Explanation is a decision with what each layer said.
type Explanation struct {
	Decision Decision `json:"decision"`
	// Layers has one entry per layer that speaks of the network, from the
	// highest. All are asked, also those below one that refuses. It is empty
	// where the request cannot be judged; the decision then says why.
	Layers []LayerAnswer `json:"layers,omitempty"`
}

// A LayerAnswer is what one layer says to a request. The zero value refuses.
type LayerAnswer struct {
	Layer string `json:"layer"`
	File  string `json:"file,omitempty"`
	// Allowed is what this layer alone says.
	Allowed bool `json:"allowed"`
	// Denied is true where an entry of "deny" matched, rather than nothing.
	Denied bool `json:"denied,omitempty"`
	// Inspect says that this layer wants to see method and path first.
	Inspect bool `json:"inspect,omitempty"`
	// Push says that this layer wants to see the references of a push first.
	Push bool `json:"push,omitempty"`
	// Rule is the rule that allowed or denied or, where none did, the one that
	// came closest; empty where none names the host.
	Rule string `json:"rule,omitempty"`
	// Text is the rule in words.
	Text string `json:"text,omitempty"`
	// Source is the place of the rule.
	Source Source `json:"source,omitzero"`
	// Reason is one sentence, lower case, without a full stop.
	Reason string `json:"reason"`
}

// Explain answers as [Effective.Decide] does, by the same code, and says what
// each layer contributed.
func (e *Effective) Explain(req Request) Explanation {
	x := Explanation{Decision: e.Decide(req)}
	q, why := ask(&req)
	if why != "" || e == nil {
		return x
	}
	for _, l := range e.layers {
		v := l.judge(&q)
		x.Layers = append(x.Layers, l.answer(&v))
	}
	return x
}

func (l *layerIndex) answer(v *verdict) LayerAnswer {
	a := LayerAnswer{Layer: l.name, File: l.file, Allowed: v.allowed(), Denied: v.deny != nil}
	r := v.deny
	if r == nil {
		r = v.near
	}
	if r != nil {
		a.Rule, a.Text, a.Source = r.label, r.describe(), r.source
	}
	if a.Allowed {
		a.Inspect, a.Push, a.Reason = v.inspect, v.push, v.allow.texts[v.nearBy]
		return a
	}
	_, a.Reason = l.refusal(v)
	return a
}

// MayReach reports whether a request over TLS may get to one of hosts, which are
// those of a key: without any of them it is of no use. Of a pattern, or a host
// with a port, nobody can tell.
func (e *Effective) MayReach(hosts []string) bool {
	return slices.ContainsFunc(hosts, func(h string) bool {
		host, err := NormalHost(h)
		return err != nil || e.Decide(Request{Host: host, Port: 443, TLS: true}).Allowed
	})
}

// A Refusal is a host that a tool needs and that the policy does not allow.
type Refusal struct {
	Host     string
	Port     uint16
	Decision Decision
}

// ToolRefusals lists which of the tool's own hosts some layer does not allow,
// so that whoever starts the tool can name the missing rule. Patterns with
// stars are not listed.
func (e *Effective) ToolRefusals() (out []Refusal) {
	if e == nil || e.tool == nil {
		return nil
	}
	for _, r := range e.tool.Rules {
		ports := r.Ports
		if len(ports) == 0 {
			ports = []uint16{443}
		}
		for _, host := range r.Hosts {
			for _, port := range ports {
				d := e.Decide(Request{Host: host, Port: port, TLS: true})
				if h, f := parseHostPattern(host); f == nil && h.form == hostExact && !d.Allowed {
					out = append(out, Refusal{host, port, d})
				}
			}
		}
	}
	return out
}
