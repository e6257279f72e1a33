package policy

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// A key is one row of the table that says what a document may hold. [Parse]
// checks by it and [Schema] is made from it, so that editors and this program
// cannot come to differ.
type key struct {
	name  string
	about string // one sentence, for the schema
	kind  kind
	whole bool // of a number: no fraction
	// min and max bound a number, or the length of a list; 0 means no bound.
	min, max float64
	values   []string
	pattern  string // for the schema only: never narrower than check
	check    func(string) *fault
	item     *key  // of a list
	keys     []key // of an object
	must     []string
	// together checks what the keys of an object mean in one another's company.
	together func(c *checker, n *node, path string)
}

// A fault is what is wrong with one value, and what to write instead.
type fault struct {
	message, hint string
}

func (f *fault) Error() string { return f.message }

// Hint is what to write instead, or empty.
func (f *fault) Hint() string { return f.hint }

func faultf(hint, format string, args ...any) *fault {
	return &fault{fmt.Sprintf(format, args...), hint}
}

const (
	maxSource = 1 << 20
	maxRules  = 2000
	// versionKnown is the only version there has been.
	versionKnown = 1
)

func documentKey() key {
	return key{kind: kindObject, about: "What coding agents may do in this repository. Comments and trailing commas are allowed.", keys: []key{
		{name: "$schema", kind: kindString, about: "Where editors find this schema. Has no other meaning."},
		{name: "version", kind: kindNumber, whole: true, min: versionKnown, max: versionKnown, about: "Version of this format: 1."},
		{name: "agents", kind: kindObject, about: "How agents are run.", keys: []key{
			{name: "sandbox", kind: kindString, values: []string{"off", "preferred", "required"}, about: "required: no sandbox, no session. preferred: a sandbox where possible. The strictest layer holds."},
		}},
		networkKey(),
		{name: "secrets", kind: kindArray, about: "Keys that a session gets a stand-in for, by name. Where a key may go is the node's to say. A name that ends in ? is of one that the session can do without.",
			item: &key{kind: kindString, pattern: `^[A-Za-z_][A-Za-z0-9_]*\??$`, check: checkSecretAsk}},
		{name: "signIns", kind: kindArray, about: "Tools whose sign-in a session gets. A name that ends in ? is of one that the session can do without.",
			item: &key{kind: kindString, pattern: `^[a-z][a-z0-9-]*\??$`, check: checkSignInAsk}},
		{name: "files", kind: kindObject, about: "Files of the repository and of the machine.", keys: []key{
			{name: "protect", kind: kindArray, about: "Patterns of files that cannot be changed from inside. Added to those of the other layers.", item: globKey()},
			{name: "hide", kind: kindArray, about: "Patterns of files that cannot be seen from inside. Added to those of the other layers.", item: globKey()},
			{name: "mounts", kind: kindArray, about: "Directories of the machine that the repository asks for; given only where the node's settings list them.", item: &key{
				kind: kindObject, must: []string{"path"}, keys: []key{
					{name: "path", kind: kindString, check: checkMountPath, about: "Absolute, or below the home as ~/…"},
					{name: "mode", kind: kindString, values: []string{"ro", "rw"}, about: "ro (default) or rw; a build cache that is rw is a private copy."},
				}}},
		}},
		{name: "limits", kind: kindObject, about: "What a session may use. The smallest of all layers holds.", keys: []key{
			{name: "cpus", kind: kindNumber, min: 0.01, max: 4096, about: "Processors' worth of time; may be a fraction."},
			{name: "memory", kind: kindString, pattern: `^[0-9]+(KiB|MiB|GiB|TiB)$`, check: checkSize, about: `As "4GiB".`},
			{name: "processes", kind: kindNumber, whole: true, min: 1, max: 4194304, about: "Processes and threads."},
			{name: "wall", kind: kindString, check: checkDuration, about: `Time by the clock, as "8h" or "90m".`},
		}},
		{name: "ports", kind: kindArray, about: "Ports of dev servers inside that may be forwarded on request.", item: portKey()},
		{name: "skills", kind: kindArray, about: "Directories of skills, below the repository.",
			item: &key{kind: kindString, check: checkRelative}},
	}}
}

func networkKey() key {
	deny := ruleKeys()
	deny = deny[:6]
	return key{name: "network", kind: kindObject, about: "What can be reached. A layer without this key says nothing; one with it allows only what its rules name.", keys: []key{
		{name: "rules", kind: kindArray, max: maxRules, about: "Each rule allows something.", item: &key{kind: kindObject, keys: ruleKeys(), together: checkRule}},
		{name: "deny", kind: kindArray, max: maxRules, about: "Each entry forbids something, whatever any rule allows. Without ports it means every port.",
			item: &key{kind: kindObject, keys: deny, together: checkDeny}},
	}}
}

// ruleKeys lists what an entry of deny may hold first.
func ruleKeys() []key {
	return []key{
		{name: "name", kind: kindString, check: checkRuleName, about: "What people read in verdicts."},
		{name: "preset", kind: kindString, check: checkPresetName, about: "A named set of rules: " + strings.Join(presetNames(), ", ") + "."},
		{name: "hosts", kind: kindArray, min: 1, about: "Names or addresses. *.x stands for exactly one label before x, **.x for one or more.",
			item: &key{kind: kindString, check: checkHostPattern}},
		{name: "ports", kind: kindArray, min: 1, about: "Without ports a rule means 443 and 80.", item: portKey()},
		{name: "methods", kind: kindArray, min: 1, about: "HTTP methods, compared exactly. The proxy then ends TLS for the host. They hold for what the server takes as the method: header fields that override it are judged, a form's _method is not.",
			item: &key{kind: kindString, pattern: `^[A-Z][A-Z0-9-]*$`, check: checkMethod}},
		{name: "paths", kind: kindArray, min: 1, about: "Path patterns: * stays within one segment, ** stands for any number of segments. The proxy then ends TLS for the host. They hold for a server that reads a request to its end: one that leaves the body of a POST unread may take it for the next request.",
			item: &key{kind: kindString, pattern: `^/`, check: checkPathPattern}},
		{name: "protocol", kind: kindString, values: []string{"tcp"}, about: "tcp: any bytes may pass, not only TLS and HTTP."},
		{name: "addresses", kind: kindArray, min: 1, about: "Ranges beyond public addresses that the hosts may resolve to, if the node's settings open them too.",
			item: &key{kind: kindString, check: checkRange}},
		{name: "push", kind: kindArray, min: 1, about: "References to which git may push, in full: new ones and fast-forwards. No other rule of the layer then allows pushes to these hosts. The proxy ends TLS for them.",
			item: &key{kind: kindString, pattern: `^refs/`, check: checkRefPattern}},
	}
}

// most bounds every list: what a repository may make the node and a person
// work through is the person's time.
func (k *key) most() int {
	if k.max > 0 {
		return int(k.max)
	}
	return 1000
}

func portKey() *key {
	return &key{kind: kindNumber, whole: true, min: 1, max: 65535}
}

func globKey() *key {
	return &key{kind: kindString, check: checkGlob}
}

func names(keys []key) []string {
	out := make([]string, len(keys))
	for i, k := range keys {
		out[i] = k.name
	}
	return out
}

// A checker walks a document beside the table and gathers what does not fit.
type checker struct {
	file string
	errs *Errors
	at   map[string]Position
}

func (c *checker) report(pos Position, path, hint, format string, args ...any) {
	c.errs.add(Problem{File: c.file, Line: pos.Line, Column: pos.Column, Path: path, Message: fmt.Sprintf(format, args...), Hint: hint})
}

// walk checks n, found at path, against k.
func (c *checker) walk(n *node, k *key, path string) {
	c.at[path] = n.pos
	if n.kind != k.kind {
		c.wrongKind(n, k, path)
		return
	}
	switch n.kind {
	case kindObject:
		c.object(n, k, path)
	case kindArray:
		c.array(n, k, path)
	case kindString:
		c.str(n, k, path)
	case kindNumber:
		c.number(n, k, path)
	}
}

func (c *checker) wrongKind(n *node, k *key, path string) {
	want, hint := k.kind.String(), ""
	if len(k.values) > 0 {
		want = list(quoteAll(k.values), "or")
	}
	switch {
	case n.kind == kindNull:
		hint = "leave the key out to say nothing"
	case k.kind == kindArray && k.item != nil && n.kind == k.item.kind:
		hint = "put it in brackets: [ … ]"
	case k.kind == kindNumber && n.kind == kindString && validNumber(n.text):
		hint = "write it without quotes: " + n.text
	}
	c.report(n.pos, path, hint, "%s cannot stand here, expected %s", n.kind, want)
}

func (c *checker) object(n *node, k *key, path string) {
	valid, seen, clean := names(k.keys), map[string]Position{}, true
	for _, m := range n.members {
		sub := join(path, m.name)
		known := find(k.keys, m.name)
		switch first, again := seen[m.name]; {
		case again:
			c.report(m.pos, sub, "keep one of the two", "the key %q stands here twice, first in line %d", m.name, first.Line)
			clean = false
		case known == nil:
			c.report(m.pos, path, unknownHint(m.name, valid), "unknown key %s, valid are %s", strconv.QuoteToGraphic(clip(m.name)), list(valid, "and"))
			clean = false
		default:
			c.walk(m.value, known, sub)
		}
		seen[m.name] = m.pos
	}
	for _, name := range k.must {
		if _, ok := seen[name]; !ok && clean {
			c.report(n.pos, path, fmt.Sprintf("add it: %q: …", name), "the key %q is missing", name)
		}
	}
	if k.together != nil && clean {
		k.together(c, n, path)
	}
}

// unknownHint knows the ways in which people write comments in plain JSON.
func unknownHint(name string, valid []string) string {
	if strings.HasPrefix(name, "_") || strings.HasPrefix(name, "//") || name == "comment" {
		return "a comment starts with // and needs no key"
	}
	return didYouMean(name, valid)
}

func (c *checker) array(n *node, k *key, path string) {
	if len(n.items) < int(k.min) {
		c.report(n.pos, path, "leave the key out, or name something", "an empty list matches nothing")
	}
	if most := k.most(); len(n.items) > most {
		c.report(n.pos, path, "take some out", "%d entries, at most %d can stand here", len(n.items), most)
		return
	}
	for i, item := range n.items {
		c.walk(item, k.item, path+"["+strconv.Itoa(i)+"]")
	}
}

func (c *checker) str(n *node, k *key, path string) {
	if len(k.values) > 0 && !slices.Contains(k.values, n.text) {
		c.report(n.pos, path, didYouMean(n.text, k.values), "unknown value %s, valid is %s", strconv.QuoteToGraphic(clip(n.text)), list(quoteAll(k.values), "or"))
		return
	}
	if k.check == nil {
		return
	}
	if f := k.check(n.text); f != nil {
		c.report(n.pos, path, f.hint, "%s", f.message)
	}
}

func (c *checker) number(n *node, k *key, path string) {
	f, err := strconv.ParseFloat(n.text, 64)
	_, notWhole := strconv.Atoi(n.text)
	switch {
	case k.name == "version" && err == nil && f > versionKnown:
		c.report(n.pos, path, "update mojoup-node", "version %s is newer than this program, which knows version %d", n.text, versionKnown)
	case k.whole && notWhole != nil:
		c.report(n.pos, path, "", "%s cannot stand here, expected a whole number from %s to %s", clip(n.text), number(k.min), number(k.max))
	case err != nil || f < k.min || f > k.max:
		c.report(n.pos, path, "", "%s is out of bounds, expected a number from %s to %s", clip(n.text), number(k.min), number(k.max))
	}
}

func number(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func find(keys []key, name string) *key {
	for i := range keys {
		if keys[i].name == name {
			return &keys[i]
		}
	}
	return nil
}

// clip keeps a foreign word from filling a screen.
func clip(s string) string {
	if r := []rune(s); len(r) > 60 {
		return string(r[:59]) + "…"
	}
	return s
}
