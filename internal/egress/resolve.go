package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// rooted asks for absolute names only. A search domain would turn the name
// that was judged into another one.
type rooted struct{ hosts, dns Resolver }

// LookupNetIP implements [Resolver].
func (r rooted) LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error) {
	// With its dot at the end a name of one label is in no hosts file: package net
	// compares it as it stands there. Without, it would be completed.
	if oneLabel(host) {
		if found, err := r.hosts.LookupNetIP(ctx, network, host); err == nil && len(found) > 0 {
			return found, nil
		}
	}
	return r.dns.LookupNetIP(ctx, network, host+".")
}

func oneLabel(host string) bool { return !strings.ContainsAny(host, ".:") }

var errHostsOnly = errors.New("only the hosts file is asked")

// hostsOnly answers from the hosts file and asks nobody.
func hostsOnly() Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) { return nil, errHostsOnly }}
}

// Resolve says where a request that the policy allows would be dialled, as the way
// out of every session finds it: opened are the ranges that the rule opens. The
// error is a [dialguard.BlockedError] where it may not.
func (p *Proxy) Resolve(ctx context.Context, host string, port uint16, opened []netip.Prefix) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limits.resolve)
	defer cancel()
	resolver := p.resolver
	if host == policy.HostService {
		resolver = loopback{}
	}
	return p.guard.Resolve(ctx, resolver, host, port, opened)
}

// loopback answers for a service of the host itself. Like every address, the
// guard lets it through only if the rule and the node open it.
type loopback struct{}

func (loopback) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()}, nil
}
