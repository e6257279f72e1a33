package policy

import (
	"cmp"
	"slices"
)

// A HostPort is one port of one host.
type HostPort struct {
	Host string // a name in normal form
	Port uint16
}

// Direct is what rules of the kind tcp name in full and [Effective.Decide] lets
// any bytes pass to, sorted. Names that a pattern stands for are not among them:
// nobody can say beforehand which those are.
func (e *Effective) Direct() []HostPort {
	if e == nil {
		return nil
	}
	var out []HostPort
	for _, l := range e.layers {
		for _, r := range l.allow.rules {
			if !r.raw {
				continue
			}
			for _, h := range r.hosts {
				for _, port := range r.ports {
					if h.form == hostExact && e.passes(h.name, port) {
						out = append(out, HostPort{h.name, port})
					}
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b HostPort) int { return cmp.Or(cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port)) })
	return slices.Compact(out)
}

// passes reports whether any bytes may go there.
func (e *Effective) passes(host string, port uint16) bool {
	d := e.Decide(Request{Host: host, Port: port, TLS: true})
	return d.Allowed && d.Raw && !d.Inspect
}
