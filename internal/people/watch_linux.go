package people

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// watch asks again, as long as the broker serves, who may use the node, and which
// settings that take effect at once there are. Who may no longer use it is refused
// at the door at once; what runs or waits for them ends here, when two looks agree
// (B88).
func (b *Broker) watch(ctx context.Context) {
	tick := time.NewTicker(b.o.Look)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		all := b.begun()
		if len(all) == 0 {
			continue
		}
		list, err := b.allow()
		if err != nil {
			continue
		}
		live := b.liveSettings()
		for _, d := range all {
			if d.who.UID != 0 && !allowed(list, d.caller()) {
				// Once may be an editor that has emptied the file and is about to
				// write it, or a directory service that does not answer.
				if d.unserved.Swap(true) {
					b.dismiss(ctx, d)
				}
				continue
			}
			d.unserved.Store(false)
			d.tellSettings(live)
		}
	}
}

// allow is who may use the node. Why that cannot be read is said once, however often
// somebody looks or asks.
func (b *Broker) allow() ([]string, error) {
	list, err := b.o.Allow()
	if b.unreadable.another(err) {
		b.log.Error("reading who may use this node", "err", err)
	}
	return list, err
}

// A trouble is an error that lasts. It is safe for concurrent use.
type trouble struct {
	mu   sync.Mutex // guards said
	said string
}

// another reports whether err is one, and not what it was the last time.
func (t *trouble) another(err error) bool {
	said := ""
	if err != nil {
		said = err.Error()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	before := t.said
	t.said = said
	return err != nil && said != before
}

// begun are the deputies that are not to end.
func (b *Broker) begun() (out []*deputy) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, d := range b.deputies {
		if !d.ending() {
			out = append(out, d)
		}
	}
	return out
}

// dismiss ends a deputy of whose person the settings say no longer that they may
// use the node.
func (b *Broker) dismiss(ctx context.Context, d *deputy) {
	d.log.Warn("may no longer use this node: what runs or waits for them ends")
	why := &api.Problem{Code: api.CodeNotServed, Sentence: "the system node does not serve user " + d.who.Name + " any more", Exit: fault.ExitCannotRun,
		Hint: "root has changed node.people.allow"}
	b.tasks.Go(func() { d.tellEnd(context.WithoutCancel(ctx), why) })
}

// came notes with which groups a deputy's person has come. b.mu is held.
func (d *deputy) came(peer []int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if peer != nil {
		d.peer = peer
	}
}

// caller is the deputy's person as they were when they came, with the groups that
// the machine's lists gave them then: somebody who has logged in keeps those until
// they log out.
func (d *deputy) caller() caller {
	d.mu.Lock()
	defer d.mu.Unlock()
	return caller{Caller: console.Caller{UID: d.who.UID, GID: d.who.GID}, groups: slices.Concat(d.who.Groups, d.peer)}
}

// liveSettings are those that take effect at once.
func (b *Broker) liveSettings() []string {
	if b.o.Live == nil {
		return nil
	}
	live, err := b.o.Live()
	if b.unread.another(err) {
		b.log.Error("reading the settings again: those of before hold", "err", err)
	}
	return live
}

// tellSettings tells a deputy settings that are not those which it knows.
func (d *deputy) tellSettings(live []string) {
	d.mu.Lock()
	l, known := d.link, slices.Equal(d.knows, live)
	if l != nil { // one that is just being started is told at the next look
		d.knows = live
	}
	d.mu.Unlock()
	if l == nil || known {
		return
	}
	if l.send(message{Kind: kindSettings, Live: live}, nil) != nil {
		d.kill() // dead already, or it takes nothing
	}
}
