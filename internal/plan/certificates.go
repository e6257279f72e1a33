package plan

import (
	"bytes"
	"encoding/pem"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// certificates makes programs trust what the proxy signs: the system's own
// bundle, read by most of them, is covered by one with the session's authority
// at its end, and the same is there for those that are told by a variable.
func (b *builder) certificates() {
	joined, extra := b.in.Host.certificates()
	b.javaTrust(joined)
	if len(b.in.Host.Bundles) == 0 {
		b.note("no bundle of certificate authorities was found: programs inside trust only what the proxy signs")
	}
	// Programs that add this file to their own authorities are told of the
	// person's extra ones by it as well.
	b.add(sandbox.Mount{Kind: sandbox.Text, Target: caFile, Content: slices.Concat(b.in.SessionCA, extra)})
	combined := func(target string) sandbox.Mount {
		return sandbox.Mount{Kind: sandbox.Text, Target: target, Begin: joined, Content: b.in.SessionCA}
	}
	if b.in.Image {
		b.add(combined(BundlePaths[0]), combined(bundleFile))
		for _, path := range BundlePaths[1:] { // of another distribution's image
			m := combined(path)
			m.Optional = true
			b.add(m)
		}
		return
	}
	first := ""
	for _, found := range b.in.Host.Bundles {
		if found.Path == bundleFile || underAny(found.Path, []string{"/nix", "/usr"}) && !b.bound(found.Path) {
			continue
		}
		b.add(combined(found.Path))
		if first == "" {
			first = found.Path
		}
	}
	if first == "" {
		b.add(combined(bundleFile))
		return
	}
	// Written once: two hundred kilobytes more are a good part of a start.
	b.add(sandbox.Mount{Kind: sandbox.Link, Target: bundleFile, Source: first})
}

// certificates are those that the host trusts, and the person's extra ones.
func (h Host) certificates() (joined, extra []byte) {
	if h.Joined != nil {
		return h.Joined, h.Extra
	}
	var system []byte
	if len(h.Bundles) > 0 {
		system = h.Bundles[0].Content
	}
	return JoinCertificates(append([][]byte{system}, h.ExtraCAs...)...), JoinCertificates(h.ExtraCAs...)
}

// JoinCertificates joins the certificates of several PEM texts, each once.
// Anything else in them stays outside: a file that a variable names may hold a
// key as well.
func JoinCertificates(texts ...[]byte) []byte {
	var out bytes.Buffer
	seen := map[string]bool{}
	for _, text := range texts {
		for block, rest := pem.Decode(text); block != nil; block, rest = pem.Decode(rest) {
			if block.Type != "CERTIFICATE" || seen[string(block.Bytes)] {
				continue
			}
			seen[string(block.Bytes)] = true
			_ = pem.Encode(&out, &pem.Block{Type: block.Type, Bytes: block.Bytes}) // a Buffer does not fail
		}
	}
	return out.Bytes()
}

// ignores is the person's global gitignore and the placeholders: without it
// git clean inside would try to remove them.
func (b *builder) ignores(protect []sandbox.Protection) {
	var text strings.Builder
	text.Write(b.in.Host.Ignore)
	if n := text.Len(); n > 0 && b.in.Host.Ignore[n-1] != '\n' {
		text.WriteByte('\n')
	}
	for _, p := range protect {
		rel, err := filepath.Rel(b.in.Repository.Top, p.Path)
		if p.Guard == sandbox.HoldDir && err == nil && filepath.IsLocal(rel) && !under(p.Path, b.in.Repository.GitDir) {
			text.WriteString("/" + rel + "/\n")
		}
	}
	b.text(ignoreFile, text.String())
}
