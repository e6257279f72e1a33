package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// renewAgain is how long a renewal is not tried again that has failed, or after
// which the sign-in was due at once: its tokens hold for too short a time.
const renewAgain = time.Minute

// rejectedAgain is how long a sign-in is not renewed again because a host did
// not take its token: a host may mean something else by that, and a session may
// make it say so.
const rejectedAgain = 10 * time.Minute

// renewalDue reports whether a sign-in is to be renewed now.
func renewalDue(s *signin.SignIn) bool { return s.Due(time.Now()) }

// A Renewal is one sign-in that is to be renewed where its tool keeps it.
type Renewal struct {
	Tool signin.Tool
	Path string
	// Rejected is the mark of an access token that a host does not take, so that
	// it is renewed though it has not expired; see [signin.SignIn.Mark].
	Rejected string
}

// Renew renews where that is due by the time that it can.
func (r Renewal) Renew(ctx context.Context) error {
	refresher := signin.Refresher{Client: &http.Client{}, Now: time.Now}
	s, err := refresher.Refresh(ctx, r.Tool, r.Path, r.due)
	if s != nil {
		s.Wipe()
	}
	return err
}

func (r Renewal) due(s *signin.SignIn) bool {
	return renewalDue(s) || r.Rejected != "" && s.Mark() == r.Rejected
}

// stillDue reports whether what was renewed is due again.
func (r Renewal) stillDue() bool {
	s, err := r.Tool.At(r.Path)
	if err != nil {
		return false
	}
	defer s.Wipe()
	return renewalDue(s)
}

// RenewSignIn is what the process does that a node starts to renew a sign-in:
// it reads a [Renewal] and carries it out.
func RenewSignIn(ctx context.Context, from io.Reader) error {
	var r Renewal
	if err := json.NewDecoder(from).Decode(&r); err != nil {
		return fmt.Errorf("a node starts this, and says what is to be renewed: %w", err)
	}
	return r.Renew(ctx)
}

// renewals has sign-ins renewed, each by one process at a time.
type renewals struct {
	running sync.WaitGroup
	mu      sync.Mutex // guards all
	now     map[string]*renewal
}

// renewal is one that runs, or the last one of a file.
type renewal struct {
	over  chan struct{} // closed when err is set
	err   error
	until time.Time // not again before, where it failed or was in vain
	// rejected is until when no other is renewed because a host did not take it.
	rejected time.Time
}

// renew has the sign-in at the path renewed where it is due. Who comes while it
// runs waits for the same.
func (n *Node) renew(ctx context.Context, what Renewal) error {
	n.renewals.mu.Lock()
	r := n.renewals.now[what.Path]
	if now := time.Now(); r == nil || r.done() && !now.Before(r.until) {
		var rejected time.Time
		if r != nil {
			rejected = r.rejected
		}
		if what.Rejected != "" {
			if now.Before(rejected) {
				n.renewals.mu.Unlock()
				return errors.New("it was renewed a moment ago, for the same reason")
			}
			rejected = now.Add(rejectedAgain)
		}
		r = n.beginLocked(ctx, what, rejected)
	}
	n.renewals.mu.Unlock()
	select {
	case <-r.over:
		return r.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// beginLocked begins a renewal. Whoever asked for it may leave; what has begun is
// brought to its end.
func (n *Node) beginLocked(ctx context.Context, what Renewal, rejected time.Time) *renewal {
	r := &renewal{over: make(chan struct{}), rejected: rejected}
	if n.renewals.now == nil {
		n.renewals.now = map[string]*renewal{}
	}
	n.renewals.now[what.Path] = r
	n.renewals.running.Go(func() {
		r.err = n.o.Renew(context.WithoutCancel(ctx), what)
		if r.err != nil || what.stillDue() {
			r.until = time.Now().Add(renewAgain)
		}
		if r.err != nil {
			n.log.Warn("renewing a sign-in", "tool", what.Tool.Name, "err", r.err)
		}
		close(r.over)
	})
	return r
}

func (r *renewal) done() bool {
	select {
	case <-r.over:
		return true
	default:
		return false
	}
}

// keepSignIns follows the person's sign-ins as long as a session has them: what
// the tool, or another node, has renewed is the one that goes out next, and one
// that is about to expire is renewed.
func (l *life) keepSignIns(ctx context.Context, box sandbox.Sandbox, p prepared) {
	tick := time.NewTicker(l.n.o.Times.Keys)
	defer tick.Stop()
	said := map[*lent]string{}
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for _, one := range l.lent {
			if one.path == "" || one.mode == signin.Copy {
				continue
			}
			var failed error
			if was := one.now(); was.Renews && renewalDue(was) {
				failed = one.renews(ctx, "")
			}
			err := errors.Join(failed, l.takeOver(ctx, one, func(all []signin.Staged, i int) error {
				return l.inSandbox(ctx, box, putScript(variableOf(p.spec.Env, "HOME"), all[i]))
			}))
			if err != nil && ctx.Err() == nil && said[one] != err.Error() {
				said[one] = err.Error()
				l.diary.note(api.EventNotice, fmt.Sprintf("the sign-in of %s stays what it was: %v", one.tool.Title, err))
			}
		}
	}
}

// takeOver takes over what stands in the person's file, where that has changed.
// push puts it into the sandbox, where it has to be there.
func (l *life) takeOver(ctx context.Context, one *lent, push func([]signin.Staged, int) error) error {
	one.following.Lock()
	defer one.following.Unlock()
	info, err := os.Stat(one.path)
	if err != nil {
		return err
	}
	if !one.changed(info) {
		return nil
	}
	fresh, err := one.tool.At(one.path)
	if err != nil {
		return err // half written, perhaps: it is looked at again
	}
	was := one.now()
	switch {
	case fresh.Access().Equal(was.Access()):
		fresh.Wipe()
	case !fresh.Same(was):
		fresh.Wipe()
		err = errors.New("another account is signed in on the host now")
	case one.mode != signin.StandIn && (push == nil || l.inside.Load() == nil):
		fresh.Wipe()
		return nil // nothing runs there yet, or any more: it is looked at again
	default:
		if err = l.handOver(one, fresh, push); err != nil {
			return err
		}
	}
	one.seen.Store(&info)
	return err
}

// handOver gives a session the new token.
func (l *life) handOver(one *lent, fresh *signin.SignIn, push func([]signin.Staged, int) error) error {
	one.mu.Lock()
	was := one.found
	one.found = fresh
	one.mu.Unlock()
	defer was.Wipe()
	if one.mode == signin.StandIn {
		return l.keys.ring.Rotate(signInKey(one.tool), secrets.NewValue(fresh.Access().RevealForTheWire()))
	}
	all, err := stagedOf(l.lent)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(all, func(s signin.Staged) bool { return s.Target == one.tool.Target && s.Target != "" })
	if i < 0 {
		return nil // a variable
	}
	return push(all, i)
}

// A keeper keeps the tokens behind a session's stand-ins fresh, see
// [egress.Keeper].
type keeper struct{ *life }

// keeper is the session's, or nil where it has no such sign-in.
func (l *life) keeper() egress.Keeper {
	if !slices.ContainsFunc(l.lent, (*lent).behindStandIn) {
		return nil
	}
	return keeper{l}
}

// behindStandIn reports whether the token may change behind a stand-in.
func (o *lent) behindStandIn() bool { return o.mode == signin.StandIn && o.path != "" }

// Fresh implements [egress.Keeper]: what the tool outside, or another node, has
// renewed goes out at once, since its old token may be dead; and one that
// expired while the machine slept is renewed first.
func (k keeper) Fresh(ctx context.Context) {
	for _, one := range k.lent {
		if !one.behindStandIn() {
			continue
		}
		if was := one.now(); was.Renews && was.Left(time.Now()) <= 0 {
			_ = one.renews(ctx, "") // the next look tells people
		}
		if info, err := os.Stat(one.path); err == nil && one.changed(info) {
			_ = k.takeOver(ctx, one, nil) // as above
		}
	}
}

// Rejected implements [egress.Keeper].
func (k keeper) Rejected(ctx context.Context, names []string, host, path string) bool {
	for _, one := range k.lent {
		if !one.behindStandIn() || !slices.Contains(names, signInKey(one.tool)) {
			continue
		}
		was := one.now().Mark()
		k.Fresh(ctx)
		if one.now().Mark() != was {
			return true
		}
		if at := host + path; one.now().Renews && !one.forgive(at) {
			_ = one.renews(ctx, was) // as above
			k.Fresh(ctx)
			if one.now().Mark() != was {
				return true
			}
		}
	}
	return false
}

// maxForgiven is how many places are remembered that answer 401 whatever the
// token is.
const maxForgiven = 64

// forgive reports whether a place has answered 401 before, to another token or
// to this one: it then means something else by it.
func (o *lent) forgive(at string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if slices.Contains(o.forgiven, at) || len(o.forgiven) >= maxForgiven {
		return true
	}
	o.forgiven = append(o.forgiven, at)
	return false
}

// A renewalError is what the process that renews has said.
type renewalError struct{ sentence, hint string }

func (e *renewalError) Error() string { return e.sentence }

// Hint is the next step for people.
func (e *renewalError) Hint() string { return e.hint }

// RenewalSaid is the error in what the process that renews has written: a
// sentence, and a hint on a line of its own.
func RenewalSaid(text string) error {
	sentence, hint, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if sentence == "" {
		sentence = "the sign-in could not be renewed"
	}
	return &renewalError{sentence, hint}
}
