package dialguard

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"syscall"
	"time"
)

const (
	// stagger is how long one address is tried before the next is tried beside
	// it (RFC 8305 recommends 250 ms): a host with a broken IPv6 path must not
	// make every connection slow.
	stagger = 250 * time.Millisecond
	// maxAddresses bounds what one answer can make us dial.
	maxAddresses = 8
	keepAlive    = 30 * time.Second
)

// A Resolver answers names. *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// A Guard decides which addresses may be dialled. It is immutable and safe for
// concurrent use; the zero value opens nothing beyond public addresses.
type Guard struct {
	private []netip.Prefix
	own     []netip.AddrPort
}

// New returns a guard that lets rules open what lies in private, and never
// dials own, the node's own listeners, whatever is opened.
func New(private []netip.Prefix, own []netip.AddrPort) (*Guard, error) {
	g := &Guard{own: slices.Clone(own)}
	for _, p := range private {
		q, ok := plainPrefix(p)
		if !ok {
			return nil, fmt.Errorf("opening private address ranges: %q is not a range", p)
		}
		g.private = append(g.private, q)
	}
	for i, ap := range g.own {
		if !ap.IsValid() {
			return nil, fmt.Errorf("guarding the node's own listeners: %q is not an address with port", ap)
		}
		g.own[i] = netip.AddrPortFrom(plain(ap.Addr()), ap.Port())
	}
	return g, nil
}

// A BlockedError says why an address may not be dialled.
type BlockedError struct {
	// Host is the name that led there, or the literal address.
	Host    string
	Address netip.Addr
	Class   Class
	// Own says that the address is one of the node's own listeners.
	Own bool
	// Closed says that the rule opens the address and the node's setting does
	// not.
	Closed bool
}

// Error is the reason of the denial: lower case, without a full stop.
func (e *BlockedError) Error() string {
	where := e.Address.String()
	if e.Host != "" && e.Host != where {
		where = e.Host + " leads to " + where
	}
	switch {
	case e.Own:
		return where + ", which is the node itself"
	case e.Closed:
		return fmt.Sprintf("%s, a %s address that the rule opens and the node's setting node.network.private does not", where, e.Class)
	case e.Class.Openable():
		return fmt.Sprintf("%s, a %s address, which only a rule with \"addresses\" and the node's setting node.network.private open together", where, e.Class)
	}
	return fmt.Sprintf("%s, a %s address, which nothing opens", where, e.Class)
}

// Check returns nil if to may be dialled under a rule that opens the given
// ranges, else a *BlockedError.
func (g *Guard) Check(to netip.AddrPort, opened []netip.Prefix) error {
	a := plain(to.Addr())
	blocked := &BlockedError{Address: a, Class: Classify(a)}
	if g.isOwn(a, to.Port(), blocked.Class) {
		blocked.Own = true
		return blocked
	}
	if blocked.Class == Public {
		return nil
	}
	if !blocked.Class.Openable() || !contains(opened, a) {
		return blocked
	}
	if !contains(g.private, a) {
		blocked.Closed = true
		return blocked
	}
	return nil
}

// isOwn compares with the node's listeners. One that listens on every address
// is met at each address of this machine.
func (g *Guard) isOwn(a netip.Addr, port uint16, class Class) bool {
	for _, own := range g.own {
		if own.Port() != port {
			continue
		}
		if own.Addr() == a {
			return true
		}
		if own.Addr().IsUnspecified() && (class == Loopback || isLocal(a)) {
			return true
		}
	}
	return false
}

// isLocal reports whether a is an address of this machine. What cannot be
// found out is taken as local: the question is only asked for a port that the
// node listens on.
func isLocal(a netip.Addr) bool {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return true
	}
	for _, x := range list {
		if p, err := netip.ParsePrefix(x.String()); err == nil && plain(p.Addr()) == a {
			return true
		}
	}
	return false
}

// Resolve asks once for host, a name or a literal address, and returns those
// of its addresses that may be dialled at port. If there are none but blocked
// ones, the error is a *BlockedError; an unknown name is a *net.DNSError.
func (g *Guard) Resolve(ctx context.Context, r Resolver, host string, port uint16, opened []netip.Prefix) ([]netip.Addr, error) {
	found, err := lookup(ctx, r, host)
	if err != nil {
		return nil, err
	}
	var good []netip.Addr
	var blocked *BlockedError
	for _, a := range found {
		a = plain(a)
		err := g.Check(netip.AddrPortFrom(a, port), opened)
		if err != nil {
			if blocked == nil && errors.As(err, &blocked) {
				blocked.Host = host
			}
			continue
		}
		if !slices.Contains(good, a) && len(good) < maxAddresses {
			good = append(good, a)
		}
	}
	if len(good) > 0 {
		return good, nil
	}
	if blocked != nil {
		return nil, blocked
	}
	return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
}

func lookup(ctx context.Context, r Resolver, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, nil
	}
	return r.LookupNetIP(ctx, "ip", host)
}

// Dial connects to the first of addrs that answers at port. Each is checked
// again where the socket is about to be connected, so that nothing between
// Resolve and here can lead elsewhere. The names are not asked for again.
func (g *Guard) Dial(ctx context.Context, addrs []netip.Addr, port uint16, opened []netip.Prefix) (net.Conn, error) {
	if len(addrs) == 0 {
		return nil, errors.New("dialling: no address")
	}
	dialer := &net.Dialer{KeepAlive: keepAlive, Control: g.control(opened)}
	if len(addrs) == 1 {
		return dialer.DialContext(ctx, "tcp", netip.AddrPortFrom(addrs[0], port).String())
	}
	return race(ctx, dialer, addrs, port)
}

// control is net.Dialer.Control: it sees the address that connect will get.
func (g *Guard) control(opened []netip.Prefix) func(network, address string, _ syscall.RawConn) error {
	return func(network, address string, _ syscall.RawConn) error {
		if network != "tcp4" && network != "tcp6" {
			return fmt.Errorf("dialling: network %q is not TCP", network)
		}
		to, err := netip.ParseAddrPort(address)
		if err != nil {
			return fmt.Errorf("dialling: reading the address: %w", err)
		}
		return g.Check(to, opened)
	}
}

// race tries the addresses in their order, a new one each time the last failed
// or was silent for a while, and returns the first that answers. It waits for
// the losers, so that no attempt outlives it.
func race(ctx context.Context, dialer *net.Dialer, addrs []netip.Addr, port uint16) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type result struct {
		conn net.Conn
		err  error
	}
	results := make(chan result)
	next, running := 0, 0
	start := func() {
		to := netip.AddrPortFrom(addrs[next], port).String()
		next, running = next+1, running+1
		go func() {
			conn, err := dialer.DialContext(ctx, "tcp", to)
			results <- result{conn, err}
		}()
	}
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var won net.Conn
	var first error
	for start(); running > 0; {
		select {
		case r := <-results:
			running--
			switch {
			case r.err == nil && won == nil:
				won = r.conn
				cancel()
			case r.err == nil:
				r.conn.Close()
			case first == nil:
				first = r.err
			}
			if won == nil && next < len(addrs) {
				start()
				timer.Reset(stagger)
			}
		case <-timer.C:
			if won == nil && next < len(addrs) {
				start()
				timer.Reset(stagger)
			}
		}
	}
	if won != nil {
		return won, nil
	}
	return nil, first
}

func contains(ranges []netip.Prefix, a netip.Addr) bool {
	for _, p := range ranges {
		if q, ok := plainPrefix(p); ok && q.Contains(a) {
			return true
		}
	}
	return false
}

// plainPrefix turns a range of mapped addresses into the IPv4 range that it
// means. One that reaches beyond the mapped addresses stays as it is.
func plainPrefix(p netip.Prefix) (netip.Prefix, bool) {
	if !p.IsValid() {
		return netip.Prefix{}, false
	}
	if p.Addr().Is4In6() && p.Bits() >= 96 {
		return netip.PrefixFrom(p.Addr().Unmap(), p.Bits()-96), true
	}
	return p, true
}
