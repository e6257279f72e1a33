package engine

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/inlet"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// hostsFile is where programs inside look for a name first.
const hostsFile = "/etc/hosts"

// named is a Spec with a hosts file in which its direct hosts stand. It takes the
// place of Docker's own, so what OpenShell's proxy reads there stands in it too:
// at is where this node listens, which is the machine unless it is a loopback
// address.
func named(s sandbox.Spec, at netip.Addr) sandbox.Spec {
	if len(s.Direct) == 0 {
		return s
	}
	var text strings.Builder
	// Its own name too: Java, for one, ends where that means nothing.
	fmt.Fprintf(&text, "127.0.0.1 localhost %s\n::1 localhost ip6-localhost ip6-loopback\n", cmp.Or(s.Hostname, usualName))
	for _, m := range s.Mounts {
		if m.Kind == sandbox.Text && m.Target == hostsFile {
			text.Reset()
			text.Write(slices.Concat(m.Begin, m.Content))
		}
	}
	if !at.IsLoopback() {
		fmt.Fprintf(&text, "%s %s\n", at, product.HostAlias)
	}
	written := map[string]bool{}
	for _, d := range s.Direct {
		if !written[d.Host] && !theirs(d) {
			fmt.Fprintf(&text, "%s %s\n", d.Address, d.Host)
		}
		written[d.Host] = true
	}
	s.Mounts = append(slices.Clip(s.Mounts), sandbox.Mount{Kind: sandbox.Text, Target: hostsFile, Content: []byte(text.String())})
	return s
}

// theirs reports whether OpenShell has the name for something of its own: another
// address for it would lead its proxy, and with it the way out, elsewhere.
func theirs(d sandbox.Direct) bool { return strings.EqualFold(d.Host, product.HostAlias) }

// direct are a Spec's direct hosts as the forwarder is told of them.
func direct(s sandbox.Spec) []inlet.Direct {
	var out []inlet.Direct
	for _, d := range s.Direct {
		if theirs(d) {
			continue
		}
		port := strconv.Itoa(int(d.Port))
		out = append(out, inlet.Direct{Listen: net.JoinHostPort(d.Address, port), Host: net.JoinHostPort(d.Host, port)})
	}
	return out
}

// directFacts say which hosts can be reached without a proxy's language.
func (b *box) directFacts() []sandbox.Fact {
	if len(b.spec.Direct) == 0 {
		return nil
	}
	fact := sandbox.Fact{Name: sandbox.FactDirect, Strength: sandbox.Held,
		Detail: fmt.Sprintf("%d ports of hosts that tcp rules name in full are reached by name; a rule that comes later, and one with a pattern or an address, needs a program that speaks the proxy's language", len(b.spec.Direct)-len(b.missing))}
	if len(b.missing) > 0 {
		fact.Strength = sandbox.Weaker
		fact.Detail += "; so do, because nobody can listen there inside, " + strings.Join(b.missing[:min(len(b.missing), 5)], ", ")
	}
	return []sandbox.Fact{fact}
}
