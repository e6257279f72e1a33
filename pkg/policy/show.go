package policy

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// A Line is one line of an effective policy, with its source.
type Line struct {
	// Key is the key of the document that it comes from: "network.rules".
	Key string `json:"key"`
	// Rule is the name that verdicts use, for lines of the network.
	Rule   string `json:"rule,omitempty"`
	Text   string `json:"text"`
	Source Source `json:"source"`
}

// Show lists everything that holds, from the highest layer to the lowest, each
// line with its source; what has no effect is in Notes.
func (e *Effective) Show() []Line {
	if e == nil {
		return nil
	}
	return append([]Line(nil), e.lines...)
}

// describe is a rule in words, without its name.
func (r *rule) describe() string {
	var b strings.Builder
	hosts := make([]string, len(r.hosts))
	for i, h := range r.hosts {
		hosts[i] = h.String()
	}
	b.WriteString(strings.Join(hosts, ", "))
	if len(r.ports) == 0 {
		b.WriteString(" on every port")
	} else {
		b.WriteString(" on " + strings.Join(portTexts(r.ports), ", "))
	}
	if len(r.methods) > 0 {
		b.WriteString(", " + strings.Join(r.methods, " "))
	}
	if len(r.paths) > 0 {
		texts := make([]string, len(r.paths))
		for i, p := range r.paths {
			texts[i] = p.text
		}
		b.WriteString(", at " + strings.Join(texts, " "))
	}
	if len(r.push) > 0 {
		b.WriteString(", git push to " + strings.Join(r.from.Push, " "))
	}
	if r.raw {
		b.WriteString(", any bytes")
	}
	if len(r.from.Addresses) > 0 {
		fmt.Fprintf(&b, ", also at %s", strings.Trim(fmt.Sprint(r.from.Addresses), "[]"))
	}
	return b.String()
}

// finish writes down what Show and Asks tell.
func (b *builder) finish() {
	for _, l := range b.e.layers {
		for _, r := range l.deny.rules {
			b.e.lines = append(b.e.lines, Line{"network.deny", r.label, r.describe(), r.source})
		}
		for _, r := range l.allow.rules {
			b.e.lines = append(b.e.lines, Line{"network.rules", r.label, r.describe(), r.source})
		}
	}
	b.e.lines = append(b.e.lines, b.said...)
	b.useless()
	b.asks()
}

// say keeps a line that is not of the network.
func (b *builder) say(l Layer, path, text string) {
	pos := l.Document.At(path)
	key, _, _ := strings.Cut(path, "[")
	b.said = append(b.said, Line{Key: key, Text: text, Source: Source{l.Name, l.source(), pos.Line, pos.Column}})
}

// set is say for what only one layer decides: the line of the layer that no
// longer does goes.
func (b *builder) set(l Layer, path, text string) {
	b.said = slices.DeleteFunc(b.said, func(old Line) bool { return old.Key == path })
	b.say(l, path, text)
}

// Digest is the SHA-256 of everything that holds, presets written out, in
// hexadecimal. Comments, order of keys and the place of a file do not change
// it; a preset that grew does. With person and repository it is the key of an
// approval.
func (e *Effective) Digest() string {
	type layerText struct {
		Name        string
		Rules, Deny []Rule
	}
	var all struct {
		Layers           []layerText
		Sandbox          Sandbox
		Limits           Limits
		Protect, Hide    []string
		Mounts           []Mount
		Secrets, SignIns []string
		Ports            []uint16
		Skills           []string
		Presets          map[string]int
	}
	if e != nil {
		all.Sandbox, all.Limits, all.Protect, all.Hide, all.Mounts = e.Sandbox, e.Limits, e.Protect, e.Hide, e.Mounts
		all.Secrets, all.SignIns, all.Ports, all.Skills, all.Presets = e.Secrets, e.SignIns, e.Ports, e.Skills, e.versions
		for _, l := range e.layers {
			text := layerText{Name: l.name}
			for _, r := range l.allow.rules {
				text.Rules = append(text.Rules, r.from)
			}
			for _, r := range l.deny.rules {
				text.Deny = append(text.Deny, r.from)
			}
			all.Layers = append(all.Layers, text)
		}
	}
	text, err := json.Marshal(all)
	if err != nil {
		panic("BUG: marshalling an effective policy: " + err.Error())
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}
