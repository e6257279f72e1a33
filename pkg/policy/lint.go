package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/net/publicsuffix"
)

// A Warning is something in a valid document that does nothing, or more than
// its author may think.
type Warning struct {
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Message string `json:"message"`
	// Hint says what to write instead.
	Hint string `json:"hint,omitempty"`
}

// Lint looks at one document alone: rules that match nothing or that another
// one makes idle, limits that cannot be held, tunnels to fronts that anybody
// can stand behind, patterns wider than they look, names in the wrong shape.
// Registry presets, whose hosts only the machine knows, are left out. signIns are
// tools beside the built-in ones that have a sign-in on this machine.
func Lint(d *Document, signIns ...string) []Warning {
	l := &linter{doc: d, tools: append(toolNames(), signIns...)}
	slices.Sort(l.tools)
	l.tools = slices.Compact(l.tools)
	if d == nil {
		return nil
	}
	if d.Network != nil {
		l.network(d.Network)
	}
	l.names()
	l.empty()
	slices.SortStableFunc(l.out, func(a, b Warning) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return l.out
}

type linter struct {
	doc   *Document
	tools []string // those whose sign-in a policy may name
	out   []Warning
}

func (l *linter) warn(path, hint, format string, args ...any) {
	pos := l.doc.At(path)
	l.out = append(l.out, Warning{pos.Line, pos.Column, path, fmt.Sprintf(format, args...), hint})
}

// lintRule is a rule with its place; a preset is several.
type lintRule struct {
	*rule
	path string
}

func (l *linter) network(n *Network) {
	if len(n.Rules) == 0 {
		l.warn("network", "leave the key out to say nothing about the network", "no rules: this layer allows nothing at all")
	}
	allow := l.rules("network.rules", "rule", n.Rules, false)
	deny := l.rules("network.deny", "deny", n.Deny, true)
	for i, r := range allow {
		l.idle(i, r, allow, deny)
	}
	for i, r := range deny {
		l.idleDeny(i, r, deny)
	}
	for i, from := range n.Rules {
		if from.Preset == "" {
			l.rule(fmt.Sprintf("network.rules[%d]", i), from)
		}
	}
	l.twice(n)
}

func (l *linter) rules(key, label string, rules []Rule, deny bool) (out []lintRule) {
	presets := BuiltinPresets()
	for i, from := range rules {
		path := fmt.Sprintf("%s[%d]", key, i)
		if _, registry := registryClients[from.Preset]; registry {
			continue
		}
		expanded, f := presets.expand(from, deny)
		if f != nil {
			l.warn(path+".preset", f.hint, "%s", f.message)
			continue
		}
		for _, one := range expanded {
			if r, f := newRule(one, Source{}, labelOf(from, label+" "+strconv.Itoa(i+1)), deny); f == nil {
				out = append(out, lintRule{r, path})
			}
		}
	}
	return out
}

// idle looks for what leaves nothing of a rule for it to do.
func (l *linter) idle(i int, r lintRule, allow, deny []lintRule) {
	for _, d := range deny {
		if covers(d.rule, r.rule) && !d.limited() {
			l.warn(r.path, "", "%s allows nothing: %s forbids all of it", r.label, d.label)
			return
		}
	}
	for j, o := range allow {
		if len(r.push) > 0 && len(o.push) == 0 {
			continue // of pushes it is the only word
		}
		if i == j || o.path == r.path || !covers(o.rule, r.rule) || j > i && covers(r.rule, o.rule) {
			continue
		}
		if r.limited() && !o.limited() {
			l.warn(r.path, "take these hosts out of "+o.label, "the limits of %s have no effect: %s allows the same hosts without any, and their connections are not looked into", r.label, o.label)
		} else {
			l.warn(r.path, "remove it", "%s adds nothing: %s allows all of it", r.label, o.label)
		}
		return
	}
	for j, o := range allow {
		if i != j && o.path != r.path && r.limited() && len(r.push) == 0 && !o.limited() && overlap(o.rule, r.rule) {
			l.warn(r.path, "take these hosts out of "+o.label, "the limits of %s have no effect where %s allows the same host and port without any: %s", r.label, o.label, shared(o.rule, r.rule))
			return
		}
	}
}

func (l *linter) idleDeny(i int, r lintRule, deny []lintRule) {
	for j, o := range deny {
		if i != j && o.path != r.path && covers(o.rule, r.rule) && (j < i || !covers(r.rule, o.rule)) {
			l.warn(r.path, "remove it", "%s adds nothing: %s forbids all of it", r.label, o.label)
			return
		}
	}
}

// shared names some of the hosts that two rules have in common.
func shared(a, b *rule) string {
	var out []string
	for _, h := range b.hosts {
		if len(out) < 5 && slices.ContainsFunc(a.hosts, h.overlaps) {
			out = append(out, h.String())
		}
	}
	return strings.Join(out, ", ")
}

// rule looks at one rule alone.
func (l *linter) rule(path string, from Rule) {
	r, f := newRule(from, Source{}, "", false)
	if f != nil {
		return
	}
	if from.Protocol == "tcp" && r.limited() {
		l.warn(path+".protocol", `take "protocol" out, or the limits`, "methods and paths cannot be seen in raw tcp: the limits hold and no raw bytes pass")
	}
	if from.Protocol == "tcp" && len(from.Ports) == 0 {
		l.warn(path+".protocol", `name the ports, as "ports": [5432]`, "raw tcp without ports means 443 and 80")
	}
	if len(from.Push) > 0 && len(from.Methods) > 0 && !slices.Contains(from.Methods, "POST") {
		l.warn(path+".push", `add "POST", or take "methods" out`, "git pushes with POST, which this rule does not allow")
	}
	l.ports(path, from)
	for i, m := range from.Methods {
		if !slices.Contains(knownMethods, m) {
			l.warn(fmt.Sprintf("%s.methods[%d]", path, i), didYouMean(m, knownMethods), "%s is no method that this program knows", m)
		}
	}
	for i, h := range r.hosts {
		l.host(fmt.Sprintf("%s.hosts[%d]", path, i), h, r)
	}
	for i, p := range from.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		if p.Bits() == 0 {
			l.warn(at, "name the range that the hosts are in", "%s is every address there is", p)
		}
		if slices.ContainsFunc(metadata, p.Contains) {
			l.warn(at, "", "%s holds a cloud's metadata address, which stays closed", p)
		}
	}
}

// rawPorts are those of protocols that do not open with TLS. Source: IANA's
// registry of ports.
var rawPorts = map[uint16]string{
	21: "ftp", 22: "ssh", 23: "telnet", 25: "smtp", 143: "imap", 389: "ldap", 587: "smtp", 1433: "SQL Server", 3306: "MySQL",
	5432: "PostgreSQL", 5672: "AMQP", 6379: "Redis", 9418: "git", 11211: "memcached", 27017: "MongoDB",
}

func (l *linter) ports(path string, from Rule) {
	for i, p := range from.Ports {
		if name, raw := rawPorts[p]; raw && from.Protocol == "" {
			l.warn(fmt.Sprintf("%s.ports[%d]", path, i), `add "protocol": "tcp"`, "%d is usually %s, which does not open with TLS and will not pass", p, name)
		}
		if slices.Index(from.Ports, p) != i {
			l.warn(fmt.Sprintf("%s.ports[%d]", path, i), "remove it", "%d stands there twice", p)
		}
	}
}

// fronts are names below which strangers publish, beside those of the private
// part of the public suffix list. Source: the providers' documentation.
var fronts = []string{
	"amazonaws.com", "azureedge.net", "azurefd.net", "blob.core.windows.net", "cloudfront.net", "digitaloceanspaces.com",
	"fastly.net", "githubusercontent.com", "googleapis.com", "googleusercontent.com", "r2.cloudflarestorage.com",
	"wasabisys.com", "akamaihd.net", "akamaized.net", "backblazeb2.com", "ngrok.io", "trycloudflare.com",
}

func (l *linter) host(path string, h hostPattern, r *rule) {
	if name := h.String(); h.form != hostPublic && IsInside(strings.TrimLeft(name, "*.")) {
		l.warn(path, "name a service of the machine "+HostService, "%s is the session itself to programs inside, which go there without asking", name)
	}
	if h.form == hostAddr {
		return
	}
	suffix, icann := publicsuffix.PublicSuffix(h.name)
	listed := icann || strings.Contains(suffix, ".")
	front := slices.ContainsFunc(fronts, func(f string) bool { return h.name == f || strings.HasSuffix(h.name, "."+f) })
	switch {
	case h.form != hostExact && h.name == suffix && icann:
		l.warn(path, "name the hosts one by one", "%s is everybody's: anyone can register a name there", h)
	case h.form != hostExact && (listed && h.name == suffix || slices.Contains(fronts, h.name)):
		l.warn(path, "name the hosts one by one", "%s is wide: strangers publish under such names, and whatever is in a name leaves with it", h)
	case (front || listed && !icann) && !r.limited():
		l.warn(path, `limit "methods" or "paths", so that the proxy reads the requests`, "%s is a front that many share: in a tunnel only the name that the client states can be checked", h)
	case h.form == hostMany:
		l.warn(path, "use *. where one label is enough", "%s lets any text out as labels of a name", h)
	}
	if strings.HasSuffix(h.name, ".invalid") || h.name == "invalid" || strings.HasSuffix(h.name, ".onion") {
		l.warn(path, "", "%s can never be resolved", h)
	}
}

// twice looks for names that two rules share: verdicts could not tell them apart.
func (l *linter) twice(n *Network) {
	seen := map[string]string{}
	look := func(key string, rules []Rule) {
		for i, r := range rules {
			path := fmt.Sprintf("%s[%d]", key, i)
			if first, again := seen[r.Name]; again && r.Name != "" {
				l.warn(path+".name", "", "%q is also the name of %s: a verdict could mean either", r.Name, first)
			}
			seen[r.Name] = path
		}
	}
	look("network.rules", n.Rules)
	look("network.deny", n.Deny)
}

// empty looks for keys that say nothing. An empty "network" is none of them.
func (l *linter) empty() {
	d := l.doc
	for path, none := range map[string]bool{
		"agents": d.Agents != nil && d.Agents.Sandbox == "", "secrets": len(d.Secrets) == 0, "signIns": len(d.SignIns) == 0,
		"files":  d.Files != nil && len(d.Files.Protect)+len(d.Files.Hide)+len(d.Files.Mounts) == 0,
		"limits": d.Limits != nil && *d.Limits == Limits{}, "ports": len(d.Ports) == 0, "skills": len(d.Skills) == 0,
		"network.deny": d.Network != nil && len(d.Network.Deny) == 0,
	} {
		if none && d.At(path) != (Position{}) {
			l.warn(path, "take it out", "it is empty, and says nothing")
		}
	}
}

// steering are variables by which programs are told what to load or whom to
// ask: a secret of that name would replace them.
var steering = []string{"PATH", "HOME", "USER", "SHELL", "TERM", "LANG", "TMPDIR", "IFS", "ENV", "BASH_ENV", "NODE_OPTIONS", "PYTHONPATH", "PYTHONSTARTUP", "RUBYOPT", "PERL5OPT", "JAVA_TOOL_OPTIONS", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE", "NODE_EXTRA_CA_CERTS"}

func (l *linter) names() {
	for i, s := range l.doc.Secrets {
		path := fmt.Sprintf("secrets[%d]", i)
		s = strings.TrimSuffix(s, OptionalSecret)
		upper := strings.ToUpper(s)
		switch {
		case slices.Contains(steering, upper) || strings.HasPrefix(upper, "LD_") || strings.HasPrefix(upper, "GIT_CONFIG"):
			l.warn(path, "give the secret a name of its own", "%s is a variable that programs obey", s)
		case upper != s:
			l.warn(path, "write "+strconv.Quote(upper), "%s is not in the usual shape: capitals, digits and _", s)
		case slices.IndexFunc(l.doc.Secrets, func(o string) bool { return strings.TrimSuffix(o, OptionalSecret) == s }) != i:
			l.warn(path, "remove it", "%s stands there twice", s)
		}
	}
	if len(l.doc.Secrets) > 0 && l.doc.Network != nil && len(l.doc.Network.Rules) == 0 {
		l.warn("secrets", "", "a secret is of no use where nothing can be reached")
	}
	for i, s := range l.doc.SignIns {
		s = strings.TrimSuffix(s, OptionalSecret)
		if !slices.Contains(l.tools, s) {
			l.warn(fmt.Sprintf("signIns[%d]", i), didYouMean(s, l.tools), "%s is no tool that has a sign-in here, which are %s: no session would start", s, list(l.tools, "and"))
		}
	}
}
