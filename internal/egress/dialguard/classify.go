// Package dialguard promises that no connection leads to an address that is
// not public unicast, unless both the policy's rule and the node's own setting
// name its range: checked on every resolved address, and once more in the
// dialer, after which there is nothing left to be told differently.
package dialguard

import (
	"net/netip"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// A Class says what an address is for. The zero value is an address that
// could not be read, and is never dialled.
type Class uint8

// The classes. Only Public is dialled without being asked for; Private and
// Loopback can be opened; no setting opens the rest.
const (
	Unreadable Class = iota
	Public
	Private
	Loopback
	LinkLocal
	Metadata
	Unspecified
	Multicast
	CarrierNAT
	Benchmark
	Translated
	Reserved
)

// String names the class as it stands in the reason of a denial.
func (c Class) String() string {
	switch c {
	case Public:
		return "public"
	case Private:
		return "private"
	case Loopback:
		return "loopback"
	case LinkLocal:
		return "link-local"
	case Metadata:
		return "cloud metadata"
	case Unspecified:
		return "unspecified"
	case Multicast:
		return "multicast"
	case CarrierNAT:
		return "carrier-grade NAT"
	case Benchmark:
		return "benchmark or synthetic"
	case Translated:
		return "translated IPv4"
	case Reserved:
		return "reserved"
	}
	return "unreadable"
}

// Openable reports whether a rule and the node's setting together may open an
// address of this class.
func (c Class) Openable() bool { return c == Private || c == Loopback }

// special4 is the IANA IPv4 special-purpose registry without what is globally
// reachable, and without the three documentation ranges: nothing private lives
// there, and mirrors inside some networks answer from them.
var special4 = ranges{
	{"0.0.0.0/32", Unspecified},
	{"0.0.0.0/8", Reserved},
	{"10.0.0.0/8", Private},
	{"100.64.0.0/10", CarrierNAT},
	{"127.0.0.0/8", Loopback},
	{"169.254.0.0/16", LinkLocal},
	{"172.16.0.0/12", Private},
	{"192.0.0.0/24", Reserved},
	{"192.88.99.0/24", Translated}, // 6to4 relays, withdrawn
	{"192.168.0.0/16", Private},
	{"198.18.0.0/15", Benchmark}, // also the session's own synthetic answers
	{"224.0.0.0/4", Multicast},
	{"240.0.0.0/4", Reserved},
}.compile()

// special6 comes before the rule that IPv6 unicast is 2000::/3, so it needs
// only what deserves a name of its own and what is special inside 2000::/3.
var special6 = ranges{
	{"::/128", Unspecified},
	{"::1/128", Loopback},
	{"::/96", Translated}, // IPv4-compatible, withdrawn
	{"::ffff:0:0:0/96", Translated},
	{"64:ff9b::/96", Translated},
	{"64:ff9b:1::/48", Translated},
	{"2002::/16", Translated}, // 6to4
	{"2001::/32", Translated}, // Teredo
	{"2001::/23", Reserved},   // IETF protocol assignments
	{"3fff::/20", Reserved},
	{"fc00::/7", Private},
	{"fe80::/10", LinkLocal},
	{"fec0::/10", Reserved}, // site-local, withdrawn
	{"ff00::/8", Multicast},
}.compile()

var unicast6 = netip.MustParsePrefix("2000::/3")

// Classify says what an address is for. It reads the IPv4 address in an
// IPv4-mapped one, because that is what the kernel connects to, and ignores a
// zone, because netip.Prefix.Contains is false for every address with one.
func Classify(a netip.Addr) Class {
	if !a.IsValid() {
		return Unreadable
	}
	a = plain(a)
	if policy.IsMetadata(a) {
		return Metadata
	}
	special := special6
	if a.Is4() {
		special = special4
	}
	for _, s := range special {
		if s.prefix.Contains(a) {
			return s.class
		}
	}
	if a.Is4() || unicast6.Contains(a) {
		return Public
	}
	return Reserved
}

// plain is the one form in which addresses are compared.
func plain(a netip.Addr) netip.Addr { return a.WithZone("").Unmap() }

type ranges []struct {
	cidr  string
	class Class
}

type classed struct {
	prefix netip.Prefix
	class  Class
}

func (r ranges) compile() []classed {
	out := make([]classed, 0, len(r))
	for _, s := range r {
		out = append(out, classed{netip.MustParsePrefix(s.cidr), s.class})
	}
	return out
}
