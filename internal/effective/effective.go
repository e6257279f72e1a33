// Package effective promises the one policy that governs a session: it reads
// the layers, finds out what their presets stand for on this machine, and
// compiles them. What the layers mean together is package policy's.
package effective

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/mojoup/mojoup-node/internal/registries"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// A Text is a policy document as somebody wrote it.
type Text struct {
	Name   string // for messages: a path
	Source []byte
}

// Input says which layers there are.
type Input struct {
	// Top is the top of the repository, whose own document is read from there.
	Top string
	// Given is the person's own document (run --policy), or nil.
	Given *Text
	// Tool are the hosts that an agent tool cannot do without, or nil.
	Tool *policy.ToolRules
	// Private are the ranges that the node's settings open. A registry preset
	// may lead there: a company's mirror usually does.
	Private []netip.Prefix
	// Find answers where the package clients of this machine fetch from.
	Find func(ctx context.Context, name string) (registries.Found, error)
}

// Compile expands and compiles layers that have been read, for the tool and
// the machine of in. The same input gives the same policy, whoever asks: a
// session, `policy explain` or `policy show`.
func Compile(ctx context.Context, layers []policy.Layer, in Input) (*policy.Effective, error) {
	presets, err := expand(ctx, layers, in)
	if err != nil {
		return nil, err
	}
	e, err := policy.Compile(layers, in.Tool, presets)
	if err == nil && len(in.Private) > 0 {
		e.Notes = append(e.Notes, widened(layers, in.Private)...)
	}
	return e, err
}

// widened names the rules that the node's settings make wider than they look: the
// hosts of a registry preset may lead to what is the company's own.
func widened(layers []policy.Layer, private []netip.Prefix) (notes []policy.Note) {
	for _, l := range layers {
		if l.Document == nil || l.Document.Network == nil {
			continue
		}
		for i, r := range l.Document.Network.Rules {
			if slices.Contains(policy.RegistryPresets(), r.Preset) {
				path := fmt.Sprintf("network.rules[%d]", i)
				pos := l.Document.At(path)
				notes = append(notes, policy.Note{
					Source: policy.Source{Layer: l.Name, File: l.Source, Line: pos.Line, Column: pos.Column}, Path: path,
					Text: fmt.Sprintf("the hosts of preset %s may also lead to %s, which the node's setting node.network.private opens", r.Preset, strings.Trim(fmt.Sprint(private), "[]")),
				})
			}
		}
	}
	return notes
}

// Own is the repository's own document alone, as it is approved: whatever tool or
// further policy it is run with.
func Own(ctx context.Context, layers []policy.Layer, in Input) (*policy.Effective, error) {
	var own []policy.Layer
	for _, l := range layers {
		if l.Name == policy.LayerRepository {
			own = append(own, l)
		}
	}
	in.Tool = nil
	return Compile(ctx, own, in)
}

// Asks is what a person has to say yes to before a repository's own policy
// governs a session. Its limits are not: of those and the node's the smaller one
// holds, so that they only take away.
func Asks(own *policy.Effective) []policy.Ask {
	return slices.DeleteFunc(own.Asks(), func(a policy.Ask) bool { return a.Kind == policy.AskLimit })
}

// NotYet names what a policy asks for and this version does not carry out: a
// line that does nothing is never silent.
func NotYet(e *policy.Effective) (notices []string) {
	for _, ask := range []struct {
		key  string
		some bool
	}{
		{"files.mounts", len(e.Mounts) > 0},
		{"skills", len(e.Skills) > 0},
	} {
		if ask.some {
			notices = append(notices, ask.key+" of the policy has no effect in this version")
		}
	}
	return notices
}

// Layers reads the documents that are there, highest first. A repository
// without a document is a layer less; one that cannot be read is an error.
func Layers(ctx context.Context, in Input) ([]policy.Layer, error) {
	var layers []policy.Layer
	if in.Top != "" {
		source, err := repo.ReadPolicy(ctx, in.Top)
		if err == nil {
			layers, err = add(layers, policy.LayerRepository, Text{Name: filepath.Join(in.Top, repo.PolicyFile), Source: source})
		}
		if err != nil && !errors.Is(err, repo.ErrNoPolicy) {
			return nil, err
		}
	}
	if in.Given != nil {
		return add(layers, policy.LayerCommandLine, *in.Given)
	}
	return layers, nil
}

func add(layers []policy.Layer, name string, t Text) ([]policy.Layer, error) {
	doc, err := policy.Parse(t.Name, t.Source)
	if err != nil {
		return nil, err
	}
	return append(layers, policy.Layer{Name: name, Source: t.Name, Document: doc}), nil
}

// expand adds to the built-in presets those registry presets that the layers
// name. Each is asked of its client, side by side; nobody pays for one that no
// layer names.
func expand(ctx context.Context, layers []policy.Layer, in Input) (policy.Presets, error) {
	presets := policy.BuiltinPresets()
	var wanted []string
	for _, name := range policy.RegistryPresets() {
		if slices.ContainsFunc(layers, func(l policy.Layer) bool { return names(l.Document, name) }) {
			wanted = append(wanted, name)
		}
	}
	found := make([]registries.Found, len(wanted))
	errs := make([]error, len(wanted))
	var asked sync.WaitGroup
	for i, name := range wanted {
		asked.Go(func() { found[i], errs[i] = in.Find(ctx, name) })
	}
	asked.Wait()
	for i, name := range wanted {
		if errs[i] != nil {
			return nil, fmt.Errorf("preset %q: %w", name, errs[i])
		}
		presets = presets.With(name, rules(found[i], in.Private))
	}
	return presets, nil
}

// names reports whether a document uses a preset.
func names(d *policy.Document, preset string) bool {
	if d == nil || d.Network == nil {
		return false
	}
	is := func(r policy.Rule) bool { return r.Preset == preset }
	return slices.ContainsFunc(d.Network.Rules, is) || slices.ContainsFunc(d.Network.Deny, is)
}

// rules are a registry's hosts as policy wants them.
func rules(f registries.Found, private []netip.Prefix) []policy.Rule {
	out := make([]policy.Rule, 0, len(f.Hosts))
	for _, h := range f.Hosts {
		out = append(out, policy.Rule{Hosts: []string{h.Name}, Ports: []uint16{h.Port}, Addresses: private})
	}
	return out
}
