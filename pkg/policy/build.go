package policy

import (
	"net/netip"
	"strconv"
)

// build turns a value that has passed the checker into a document. What the
// checker let through cannot fail here.
func build(n *node) *Document {
	d := &Document{}
	for _, m := range n.members {
		switch v := m.value; m.name {
		case "version":
			d.Version = int(v.number())
		case "agents":
			d.Agents = &Agents{}
			if s := has(v, "sandbox"); s != nil {
				d.Agents.Sandbox = Sandbox(s.text)
			}
		case "network":
			d.Network = &Network{Rules: buildRules(has(v, "rules")), Deny: buildRules(has(v, "deny"))}
		case "secrets":
			d.Secrets = v.strings()
		case "signIns":
			d.SignIns = v.strings()
		case "files":
			d.Files = buildFiles(v)
		case "limits":
			d.Limits = buildLimits(v)
		case "ports":
			d.Ports = v.ports()
		case "skills":
			d.Skills = v.strings()
		}
	}
	return d
}

func buildRules(n *node) []Rule {
	if n == nil {
		return nil
	}
	out := make([]Rule, 0, len(n.items))
	for _, item := range n.items {
		out = append(out, buildRule(item))
	}
	return out
}

func buildRule(n *node) Rule {
	r := Rule{Position: n.pos}
	for _, m := range n.members {
		switch v := m.value; m.name {
		case "name":
			r.Name = v.text
		case "preset":
			r.Preset = v.text
		case "hosts":
			for _, host := range v.items {
				p, _ := parseHostPattern(host.text)
				r.Hosts = append(r.Hosts, p.String())
			}
		case "ports":
			r.Ports = v.ports()
		case "methods":
			r.Methods = v.strings()
		case "paths":
			r.Paths = v.strings()
		case "push":
			r.Push = v.strings()
		case "protocol":
			r.Protocol = v.text
		case "addresses":
			for _, item := range v.items {
				p, _ := netip.ParsePrefix(item.text)
				r.Addresses = append(r.Addresses, p)
			}
		}
	}
	return r
}

func buildFiles(n *node) *Files {
	f := &Files{}
	if v := has(n, "protect"); v != nil {
		f.Protect = v.strings()
	}
	if v := has(n, "hide"); v != nil {
		f.Hide = v.strings()
	}
	for _, item := range items(n, "mounts") {
		m := Mount{Path: has(item, "path").text}
		if mode := has(item, "mode"); mode != nil {
			m.Mode = mode.text
		}
		f.Mounts = append(f.Mounts, m)
	}
	return f
}

func buildLimits(n *node) *Limits {
	l := &Limits{}
	for _, m := range n.members {
		switch v := m.value; m.name {
		case "cpus":
			l.CPUs = v.number()
		case "memory":
			l.Memory, _ = parseSize(v.text)
		case "processes":
			l.Processes = int(v.number())
		case "wall":
			l.Wall, _ = parseDuration(v.text)
		}
	}
	return l
}

func (n *node) number() float64 {
	f, _ := strconv.ParseFloat(n.text, 64)
	return f
}

func (n *node) strings() []string {
	out := make([]string, 0, len(n.items))
	for _, item := range n.items {
		out = append(out, item.text)
	}
	return out
}

func (n *node) ports() []uint16 {
	out := make([]uint16, 0, len(n.items))
	for _, item := range n.items {
		out = append(out, uint16(item.number()))
	}
	return out
}
