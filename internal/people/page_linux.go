package people

import (
	"context"
	"errors"
	"os/user"
	"slices"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// welcome takes visitors of the node page until ctx ends. As on the socket each
// person's are answered by that person's deputy, and root's by the broker; what
// is refused the broker answers too.
func (b *Broker) welcome(ctx context.Context) {
	if b.o.Page == nil {
		return
	}
	defer b.o.Page.Close()
	ln := b.o.Page.Await(ctx)
	if ln == nil {
		return
	}
	closing := context.AfterFunc(ctx, func() { _ = ln.Close() })
	defer closing()
	for {
		conn, err := ln.Accept()
		if ctx.Err() != nil {
			if err == nil {
				_ = conn.Close()
			}
			return
		}
		if err != nil && !b.pause(ctx, err) {
			b.log.Error("the node goes on without its page", "err", err)
			return
		}
		if v, ok := conn.(*console.Visitor); ok && err == nil {
			c, known := b.visiting(v)
			b.take(c, known, v, func() { b.receive(ctx, v, c, known) })
		}
	}
}

// visiting is who made a connection to the page. Of a TCP connection the kernel
// tells the user alone, and not from which user namespace: somebody whom the
// lists of this machine do not have must have used the node by its socket.
func (b *Broker) visiting(v *console.Visitor) (caller, bool) {
	c := caller{Caller: v.Caller}
	if !v.Known {
		return c, false
	}
	who := listed(c.UID, c.UID)
	if _, err := user.LookupId(who.number()); err != nil {
		before, err := b.places.all()
		i := slices.IndexFunc(before, func(p Person) bool { return p.UID == c.UID })
		if err != nil || i < 0 {
			return c, false
		}
		who = before[i]
	}
	c.GID, c.groups = who.GID, who.Groups
	return c, true
}

// shownPage is the page's address, or why there is none.
func (b *Broker) shownPage() (url, why string) {
	if b.o.Page == nil {
		return "", ""
	}
	return b.o.Page.Shown()
}

// receive answers a visitor, or hands the connection to who is to answer.
func (b *Broker) receive(ctx context.Context, v *console.Visitor, c caller, known bool) {
	v.Known, v.Refused = known, b.admit(c, known)
	if v.Refused == nil && c.UID != 0 {
		if v.Refused = b.hand(ctx, person(c), v); v.Refused == nil {
			return
		}
	}
	b.visits.put(v)
}

// Checks are those of the machine.
func (o overview) Checks(context.Context, console.Caller) (api.Checks, error) {
	if o.b.o.Checks == nil {
		return api.Checks{}, errors.New("BUG: a page without checks")
	}
	return o.b.o.Checks(), nil
}
