package node

import (
	"context"
	"fmt"
	"net"
	"net/netip"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// A page is where this node shows its page: in a place of its own, or as a part
// of a system node in that one's.
type page struct {
	server *console.PageServer
	place  *console.PagePlace // of its own, or nil
	deputy *Deputy            // or nil
}

func (n *Node) openPage() *page {
	p := &page{server: console.NewPageServer(console.PageOptions{Node: n, Logger: n.log}), deputy: n.o.Deputy}
	if p.deputy == nil {
		p.place = console.OpenPage(n.o.Settings.String(config.ConsoleListen))
	}
	return p
}

// ports are those that no session is led to.
func (p *page) ports() []netip.AddrPort {
	if p.deputy != nil {
		return p.deputy.PagePorts
	}
	return p.place.Ports()
}

// shown is its address, or why there is none.
func (p *page) shown() (url, why string) {
	if p.deputy != nil {
		return p.deputy.Page, ""
	}
	return p.place.Shown()
}

// serve shows the page until shutdown, as soon as there is a place for it.
func (p *page) serve(ctx context.Context) error {
	var ln net.Listener
	switch {
	case p.deputy == nil:
		own := p.place.Await(ctx)
		if own == nil {
			return nil
		}
		ln = own
	case p.deputy.Visitors == nil:
		return nil
	default:
		ln = p.deputy.Visitors
	}
	if err := p.server.Serve(ln); err != nil {
		return fmt.Errorf("showing the node page: %w", err)
	}
	return nil
}

// close gives up a place that was never served.
func (p *page) close() {
	if p.place != nil {
		p.place.Close()
	}
}

// Checks answers what the checks of the start have found.
func (n *Node) Checks(_ context.Context, c console.Caller) (api.Checks, error) {
	if err := n.mayLook(c); err != nil {
		return api.Checks{}, err
	}
	select {
	case <-n.examined:
		return ShowChecks(n.report), nil
	default:
		return api.Checks{}, nil
	}
}

// ShowChecks is a report as the page shows it.
func ShowChecks(r capability.Report) api.Checks {
	out := api.Checks{At: r.At}
	for _, e := range r.Engines {
		out.Engines = append(out.Engines, api.EngineLine{Engine: e.Engine, Able: e.Able, Known: e.Known, Reason: e.Reason})
	}
	for _, c := range r.Checks {
		out.Checks = append(out.Checks, api.Check{Title: c.Title, State: string(r.Shown(c)), Found: c.Found, Needed: c.Needed, Mend: c.Mend, Reason: c.Reason})
	}
	return out
}
