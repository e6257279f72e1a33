package console

import (
	"context"
	"net/netip"
	"sync"
	"time"
)

// placeAgain is how soon a place that somebody else has is tried again.
const placeAgain = time.Minute

// A PagePlace is where a node shows its page, as soon as it can: that another
// program has the place is no reason for a node not to serve.
type PagePlace struct {
	address string

	mu  sync.Mutex // guards what follows
	ln  *PageListener
	err error
}

// OpenPage tries the place that the setting names. With [PageOff] there is none.
func OpenPage(address string) *PagePlace {
	p := &PagePlace{address: address}
	p.try()
	return p
}

func (p *PagePlace) try() *PageListener {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln == nil && p.address != PageOff {
		p.ln, p.err = ListenPage(p.address)
	}
	return p.ln
}

// Await waits until the place can be had. It is nil where ctx ends before, or
// there is to be no page.
func (p *PagePlace) Await(ctx context.Context) *PageListener {
	again := time.NewTicker(placeAgain)
	defer again.Stop()
	for p.address != PageOff {
		if ln := p.try(); ln != nil {
			return ln
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil
		}
	}
	return nil
}

// Shown is the page's address, or why there is none where one was to be.
func (p *PagePlace) Shown() (url, why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.ln != nil:
		return p.ln.URL(), ""
	case p.err != nil:
		return "", p.err.Error()
	}
	return "", ""
}

// Ports are where no session may be led: the kernel would take it for the node's
// own user there.
func (p *PagePlace) Ports() []netip.AddrPort {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		if at, err := netip.ParseAddrPort(p.ln.Addr().String()); err == nil {
			return []netip.AddrPort{at}
		}
	}
	if at, err := ParsePageAddress(p.address); err == nil {
		return []netip.AddrPort{at}
	}
	return nil
}

// Close gives the place up.
func (p *PagePlace) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ln != nil {
		_ = p.ln.Close()
	}
}
