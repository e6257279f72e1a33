package console

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"sync"
	"syscall"
)

// PageName is the host name of the page. Cookies do not know ports, so it is a
// name that nothing else on this machine's loopback goes by; browsers take all
// names below localhost to loopback without asking anybody.
const PageName = "mojoup-node.localhost"

// PageOff is the value of the setting that means: no page.
const PageOff = "off"

// ParsePageAddress reads the setting. Only where the page's name leads can it
// be shown, and there is no TLS that would make another place safe. Port 0
// means one that is free.
func ParsePageAddress(text string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(text)
	addr, aerr := netip.ParseAddr(host)
	number, perr := strconv.ParseUint(port, 10, 16)
	if err != nil || aerr != nil || perr != nil {
		return netip.AddrPort{}, errors.New("an address and a port")
	}
	if !addr.IsLoopback() || addr != netip.AddrFrom4([4]byte{127, 0, 0, 1}) && addr != netip.IPv6Loopback() {
		return netip.AddrPort{}, errors.New("an address on this machine alone: the page has no TLS")
	}
	return netip.AddrPortFrom(addr, uint16(number)), nil
}

// A Visitor is a connection to the page with who made it.
type Visitor struct {
	*net.TCPConn
	Caller Caller
	Known  bool
	// Refused, if not nil, is the answer to whatever is asked.
	Refused error

	gone func()
	once sync.Once
}

// NewVisitor asks the kernel who made a connection.
func NewVisitor(conn *net.TCPConn) *Visitor {
	v := &Visitor{TCPConn: conn, Caller: Caller{UID: -1, GID: -1}}
	if uid, err := ownerOf(conn); err == nil {
		v.Caller.UID, v.Known = uid, true
	}
	return v
}

// Close ends the connection.
func (v *Visitor) Close() error {
	v.once.Do(func() {
		if v.gone != nil {
			v.gone()
		}
	})
	return v.TCPConn.Close()
}

// mostVisits is how many connections of one user are open at a time: on
// loopback everybody may connect, and nobody is to take all descriptors.
const mostVisits = 32

// A PageListener listens for visitors.
type PageListener struct {
	ln *net.TCPListener

	mu     sync.Mutex // guards visits
	visits map[int]int
}

// ListenPage listens where the setting says.
func ListenPage(address string) (*PageListener, error) {
	at, err := ParsePageAddress(address)
	if err != nil {
		return nil, fmt.Errorf("the node page needs %w, not %q", err, address)
	}
	ln, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("another program listens on %s", at)
	case err != nil:
		return nil, fmt.Errorf("listening on %s: %w", at, err)
	}
	return &PageListener{ln: ln, visits: map[int]int{}}, nil
}

// Accept yields a *[Visitor]. Of one user's too many connections the next is
// closed at once.
func (l *PageListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.ln.AcceptTCP()
		if err != nil {
			return nil, err
		}
		v := NewVisitor(conn)
		if l.enter(v) {
			return v, nil
		}
		_ = conn.Close()
	}
}

func (l *PageListener) enter(v *Visitor) bool {
	uid := v.Caller.UID
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.visits[uid] >= mostVisits {
		return false
	}
	l.visits[uid]++
	v.gone = func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.visits[uid]--; l.visits[uid] == 0 {
			delete(l.visits, uid)
		}
	}
	return true
}

// Close ends the listening.
func (l *PageListener) Close() error { return l.ln.Close() }

// Addr is where it listens.
func (l *PageListener) Addr() net.Addr { return l.ln.Addr() }

// URL is the address for a browser.
func (l *PageListener) URL() string { return "http://" + pageHost(l.Addr()) + "/" }

// pageHost is the one Host header that is answered at an address.
func pageHost(at net.Addr) string {
	tcp, ok := at.(*net.TCPAddr)
	if !ok {
		return ""
	}
	if tcp.Port == 80 {
		return PageName
	}
	return net.JoinHostPort(PageName, strconv.Itoa(tcp.Port))
}
