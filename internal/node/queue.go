package node

import (
	"context"
	"errors"
	"math"
	"sync"
	"syscall"
	"time"

	"github.com/mojoup/mojoup-node/internal/admission"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// errInterrupted ends a session whose person did not want to wait any longer.
var errInterrupted = errors.New("it was interrupted while it waited for a slot")

// Slots is the kind of start that a session is.
const Slots admission.Kind = "session"

const (
	// mayWait is how many sessions may wait. Each is a person, or a script of
	// theirs, that looks at a line of text.
	mayWait = 100
	// needed is what one session is taken to need while it starts: an agent
	// tool's own process. How much it uses later shows in what is free.
	needed = 128 << 20
	// warm is how long it takes a session to use what it needs.
	warm = 30 * time.Second
)

// A Door lets sessions in: this node's own, or that of the system node that it
// is a part of.
type Door interface {
	// Enter waits until r may start, as [admission.Door.Enter] does. Without an
	// error release must be called.
	Enter(ctx context.Context, r admission.Request, tell func(admission.Place)) (release func(), err error)
	// Queue is who waits here.
	Queue() []admission.Waiting
}

// NewDoor is where every start of a node passes that serves so many people.
func NewDoor(settings *config.Config, people int) (*admission.Door, error) {
	most := min(settings.Int(config.SandboxMaxSessions), math.MaxInt32)
	return admission.New(admission.Options{
		Kinds: map[admission.Kind]admission.Limits{
			Slots: {Max: int(most), Queue: mayWait * people, One: "session", Many: "sessions", Setting: config.SandboxMaxSessions},
		},
		Memory: admission.Memory{Read: admission.ReadMemory, Need: needed, Warm: warm},
	})
}

// ownDoor is a door within this process.
type ownDoor struct{ *admission.Door }

func (d ownDoor) Enter(ctx context.Context, r admission.Request, tell func(admission.Place)) (func(), error) {
	t, err := d.Door.Enter(ctx, r, tell)
	return t.Release, err
}

func (o Options) door() (Door, error) {
	if o.Deputy != nil {
		return o.Deputy.Door, nil
	}
	d, err := NewDoor(o.Settings, 1)
	return ownDoor{d}, err
}

// admitted is what is known of the session once it may start. What was looked
// at before a wait may have changed: the work tree may be gone, the policy
// another. Then all of it is looked at again, with the slot held.
func (l *life) admitted(ctx context.Context) (p prepared, release func(), err error) {
	consider := func() (prepared, error) { return l.consider(ctx) }
	if p, err = bounded(ctx, l.n.o.Times.Patience, consider, nil); err != nil {
		return p, func() {}, err
	}
	release, waited, err := l.admit(ctx, p)
	if err == nil && waited {
		before := p.seen
		if p, err = bounded(ctx, l.n.o.Times.Patience, consider, nil); err != nil {
			err = l.goneMeanwhile(err, prepared{seen: before}, whileWaiting)
		}
	}
	return p, release, err
}

// admit waits until the session may start, tells its person why it waits, and
// reports whether it did. What it returns must be called on every path: it
// gives the slot back, where there is one.
func (l *life) admit(ctx context.Context, p prepared) (release func(), waited bool, err error) {
	req := admission.Request{ID: string(l.id), User: l.caller.UID, Kind: Slots}
	if most := p.limits.Memory; most > 0 && most < needed {
		req.Memory = most
	}
	var watch sync.WaitGroup
	over := make(chan struct{})
	release, err = l.n.door.Enter(ctx, req, func(place admission.Place) {
		if !waited {
			waited = true
			l.queued(p)
			watch.Go(func() { l.heed(over) })
		}
		l.client.Notice("waiting for a slot: " + place.String())
	})
	close(over)
	watch.Wait()
	if waited {
		l.stage(api.StageQueue)
	}
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx) // at the last moment; the ticket goes back
	}
	if err == nil && waited {
		l.client.Notice("a slot is free")
	}
	if release == nil {
		release = func() {}
	}
	return release, waited, err
}

// heed is the client's signals while the session waits: there is no command
// yet to give them to, and who types Ctrl-C wants to wait no longer.
func (l *life) heed(over <-chan struct{}) {
	for {
		select {
		case n := <-l.client.Signals():
			switch syscall.Signal(n) {
			case syscall.SIGINT, syscall.SIGTERM, syscall.SIGQUIT:
				l.stop(errInterrupted)
			}
		case <-over:
			return
		}
	}
}

// queued shows the session as one that waits. It is not written down: nothing
// of it has been made, and a node that dies leaves nothing of it behind.
func (l *life) queued(p prepared) {
	l.row = store.Session{
		ID: l.id, State: session.Queued, User: l.n.user.Username, UID: l.caller.UID,
		Repository: p.repository.Top, Tool: l.req.Tool, Command: l.argv(p.sandboxed),
		Engine: p.engine.Name(), Sandboxed: p.sandboxed, Since: time.Now(), Node: l.n.key,
		Notices: p.notices,
	}
	l.publish()
}

// queue is who waits for a slot, the next first.
func (n *Node) queue() []api.Waiting {
	out := []api.Waiting{}
	for _, w := range n.door.Queue() {
		out = append(out, api.Waiting{
			ID: w.ID, Kind: string(w.Kind), User: n.user.Username, UID: w.User, Since: w.Since,
			Place: w.Place.Number, Cause: string(w.Place.Cause), Reason: w.Place.Reason,
			Estimate: w.Place.Estimate.Round(time.Second).Seconds(),
		})
	}
	return out
}
