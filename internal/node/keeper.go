package node

import (
	"context"
	"os"
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

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
func (o *lent) behindStandIn() bool {
	return o.mode == signin.StandIn && (o.path != "" || o.find != nil)
}

// Fresh implements [egress.Keeper]: what the tool outside, or another node, has
// renewed goes out at once, since its old token may be dead; and one that
// expired while the machine slept is renewed first.
func (k keeper) Fresh(ctx context.Context, names []string) (changed bool) {
	for _, one := range k.lent {
		if !one.behindStandIn() || one.path == "" || one.isWithdrawn() || !slices.Contains(names, signInKey(one.tool)) {
			continue
		}
		was := one.now()
		if was.Renews && was.Left(time.Now()) <= 0 {
			_ = one.renews(ctx, "") // the next look tells people
		}
		if one.isWithdrawn() { // meanwhile: a look gives it again, and no request
			continue
		}
		if info, err := os.Stat(one.path); err == nil && one.changed(info) {
			_ = k.takeOver(ctx, one, inSession{}) // as above
		}
		changed = changed || one.now() != was
	}
	return changed
}

// Rejected implements [egress.Keeper].
func (k keeper) Rejected(ctx context.Context, names []string, host, path string) bool {
	for _, one := range k.lent {
		if !one.behindStandIn() || one.isWithdrawn() || !slices.Contains(names, signInKey(one.tool)) {
			continue
		}
		was := one.now().Mark()
		k.Fresh(ctx, names)
		if one.path == "" && one.mayAskAgain(time.Now()) {
			_ = k.findAgain(ctx, one, inSession{}) // the next look tells people
		}
		if one.now().Mark() != was {
			return true
		}
		if at := host + path; one.now().Renews && !one.forgives(at, was) {
			_ = one.renews(ctx, was) // as above
			k.Fresh(ctx, names)
			if now := one.now().Mark(); now != was {
				one.renewedFor(at, now)
				return true
			}
		}
	}
	return false
}

// maxForgiven is how often in a session a sign-in is renewed because some place has
// answered 401.
const maxForgiven = 64

// A refuser is a place that has answered 401.
type refuser struct {
	mark string // of the token that there was for its sake
	ever bool   // it does not take that one either
}

// forgives reports whether no token is renewed because a place answers 401: one that
// has refused the token that was renewed for its sake means something else by it,
// for as long as the session lasts, since who is inside may make it say so.
func (o *lent) forgives(at, mark string) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	r := o.refusers[at]
	if r.mark == mark {
		r.ever = true
		o.refusers[at] = r
	}
	return r.ever || o.refused >= maxForgiven
}

// renewedFor notes that a token was renewed for a place's sake.
func (o *lent) renewedFor(at, mark string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.refusers == nil {
		o.refusers = map[string]refuser{}
	}
	o.refusers[at] = refuser{mark: mark}
	o.refused++
}

// mayAskAgain reports, once in a while, that a keyring or a program may be asked
// because a token of theirs was not taken.
func (o *lent) mayAskAgain(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if now.Sub(o.asked) < renewAgain {
		return false
	}
	o.asked = now
	return true
}
