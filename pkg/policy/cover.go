package policy

import (
	"slices"
	"strings"
)

// covers reports whether everything that inner allows is allowed by outer.
// "No" may be wrong: it is for what people are told, not for what is decided.
func covers(outer, inner *rule) bool {
	for _, h := range inner.hosts {
		if !outer.coversHost(h) {
			return false
		}
	}
	anyPort := len(outer.ports) == 0
	for _, p := range inner.ports {
		if !anyPort && !outer.hasPort(p) {
			return false
		}
	}
	if len(inner.ports) == 0 && !anyPort {
		return false
	}
	if inner.raw && !outer.raw && !outer.deny || !rangesCover(outer, inner) && !outer.deny {
		return false
	}
	return subset(inner.methods, outer.methods) && pathsCover(outer.paths, inner.paths) && pathsCover(outer.push, inner.push)
}

// coversHost reports whether some pattern of the rule covers h. Rules with many
// hosts keep them in a map: comparing each with each grows with the square of
// what a repository chooses to write.
func (r *rule) coversHost(h hostPattern) bool {
	if r.set == nil {
		return slices.ContainsFunc(r.hosts, func(o hostPattern) bool { return o.covers(h) })
	}
	if r.set[h] || h.form == hostAddr {
		return r.set[h]
	}
	above := hostPattern{form: hostPublic}
	if r.set[above] && above.covers(h) {
		return true
	}
	name := h.name
	if h.form == hostOne || h.form == hostMany {
		name = "*." + name // the patterns above it are those above such a name
	}
	for first := true; ; first = false {
		_, below, ok := strings.Cut(name, ".")
		if !ok {
			return false
		}
		one, many := hostPattern{form: hostOne, name: below}, hostPattern{form: hostMany, name: below}
		if first && r.set[one] && one.covers(h) || r.set[many] && many.covers(h) {
			return true
		}
		name = below
	}
}

// subset treats an empty list as everything.
func subset(inner, outer []string) bool {
	if len(outer) == 0 {
		return true
	}
	if len(inner) == 0 {
		return false
	}
	for _, s := range inner {
		if !slices.Contains(outer, s) {
			return false
		}
	}
	return true
}

func rangesCover(outer, inner *rule) bool {
	for _, p := range inner.ranges {
		found := false
		for _, o := range outer.ranges {
			found = found || o.Bits() <= p.Bits() && o.Contains(p.Addr())
		}
		if !found {
			return false
		}
	}
	return true
}

func pathsCover(outer, inner []pathPattern) bool {
	if len(outer) == 0 {
		return true
	}
	if len(inner) == 0 {
		return false
	}
	for _, p := range inner {
		if !slices.ContainsFunc(outer, func(o pathPattern) bool { return o.covers(p) }) {
			return false
		}
	}
	return true
}

// covers knows equal patterns, plain ones that match, and a trailing **.
func (p pathPattern) covers(q pathPattern) bool {
	if p.text == q.text {
		return true
	}
	last := len(p.segments) - 1
	if p.segments[last] == "**" && !slices.Contains(p.segments[:last], "**") && len(q.segments) > last {
		for i, seg := range p.segments[:last] {
			if q.segments[i] == "**" || seg != q.segments[i] && !(isPlain(q.segments[i]) && matchSegment(seg, q.segments[i])) {
				return false
			}
		}
		return true
	}
	return !slices.ContainsFunc(q.segments, func(s string) bool { return !isPlain(s) }) && p.match(q.text)
}

func isPlain(seg string) bool {
	for i := 0; i < len(seg); i++ {
		if seg[i] == '*' {
			return false
		}
	}
	return true
}

// covers reports whether every host that fits q fits p.
func (p hostPattern) covers(q hostPattern) bool {
	switch {
	case p == q:
		return true
	case q.form == hostAddr || p.form == hostAddr || p.form == hostExact || q.form == hostPublic:
		return false
	case q.form == hostExact:
		return p.matches(q.name)
	case p.form == hostPublic:
		return true
	case p.form == hostMany:
		return q.name == p.name || p.matches(q.name)
	}
	return false // *.x covers no other pattern than itself
}

// overlaps reports whether some host fits both. Of two patterns that share a
// host one always covers the other.
func (p hostPattern) overlaps(q hostPattern) bool { return p.covers(q) || q.covers(p) }

// overlap reports whether two allow rules may allow the same request. "Yes"
// may be wrong: paths are not compared.
func overlap(a, b *rule) bool {
	hosts := slices.ContainsFunc(a.hosts, b.coversHost) || slices.ContainsFunc(b.hosts, a.coversHost)
	ports := slices.ContainsFunc(a.ports, b.hasPort)
	methods := len(a.methods) == 0 || len(b.methods) == 0 ||
		slices.ContainsFunc(a.methods, func(m string) bool { return slices.Contains(b.methods, m) })
	return hosts && ports && methods
}
