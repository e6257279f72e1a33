package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/store"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

// A right that is withdrawn while a session runs is taken from it (B88). What the
// node is told itself, as by `secret remove`, holds from the next request on; what
// it has to look for, a file that is gone or a setting that has changed, within two
// looks, which are [Times.Keys] apart.

// tellWithdrawn says to the session's client, in its diary and in its notices that
// it has lost something, or has it again.
func (l *life) tellWithdrawn(ctx context.Context, line string) {
	ctx = context.WithoutCancel(ctx)
	l.n.log.Info("rights of a session", "session", l.id, "said", line)
	l.n.telling.Go(func() { // neither a slow disk nor a client that takes nothing holds up what is withdrawn next
		err := l.n.store.UpdateSession(ctx, l.id, func(row *store.Session) { row.Notices = append(row.Notices, line) })
		if err != nil {
			l.n.log.Error("writing down what a session has lost", "session", l.id, "err", err)
		}
		l.mu.Lock()
		l.shown.Notices = append(slices.Clone(l.shown.Notices), line)
		l.mu.Unlock()
		l.client.Notice(line) // which is in the diary, too
	})
}

// withdraw takes a key from the session.
func (l *life) withdraw(ctx context.Context, name, why string) {
	again := setBy(name, l.keys.sources()[name], l.keys.ring.Binding(name))
	if l.keys.ring.Withdraw(name, why) {
		l.tellWithdrawn(ctx, fmt.Sprintf("the secret %s was withdrawn: %s; given again where it is kept, or by `%s`, it works here again", name, why, again))
	}
}

// begin notes what the store is like before a key is read from it.
func (k *keys) begin(v *vault.Vault) vault.Stamp {
	if v == nil {
		return vault.Stamp{}
	}
	begun := v.Stamp()
	k.since(begun)
	return begun
}

// since has everything looked at again that has changed since then.
func (k *keys) since(begun vault.Stamp) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.stamp = begun
}

// drop forgets where a key is kept, so that it is not read again.
func (k *keys) drop(name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	delete(k.kept, name)
}

// owns reports whether the session was given a secret of that name.
func (k *keys) owns(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Contains(k.own, name)
}

// changed reports whether the store has been written since the session looked at
// it, and which of its keys are of secrets.
func (k *keys) changed(now vault.Stamp) (own []string, changed bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	changed = !k.stamp.Same(now)
	k.stamp = now
	return slices.Clone(k.own), changed
}

// lookAgain has the store looked at again although it has not changed, and says
// once why.
func (k *keys) lookAgain(l *life, why string) {
	k.mu.Lock()
	k.stamp = vault.Stamp{}
	k.mu.Unlock()
	k.sayOnce(l, why)
}

// sayOnce says something in the session's log, unless it was what was said last.
func (k *keys) sayOnce(l *life, line string) {
	k.mu.Lock()
	said := k.said
	k.said = line
	k.mu.Unlock()
	if said != line {
		l.diary.note(api.EventNotice, line)
	}
}

// reviewKeys compares the session's keys with what their person has set, where that
// has changed: one that was removed is withdrawn, one that is bound elsewhere goes
// there only, a new key goes out.
func (l *life) reviewKeys(ctx context.Context) {
	if l.n.vault == nil {
		return
	}
	// Who asks for it may rely on it afterwards, also where the look at intervals
	// has just begun.
	l.keys.reviewing.Lock()
	defer l.keys.reviewing.Unlock()
	own, changed := l.keys.changed(l.n.vault.Stamp())
	if !changed {
		return
	}
	for _, name := range own {
		err := l.reviewKey(ctx, name)
		switch {
		case errors.Is(err, vault.ErrNotFound):
			l.withdraw(ctx, name, "its person has removed it")
			l.keys.drop(name)
		case err != nil:
			l.keys.lookAgain(l, fmt.Sprintf("the secret %s keeps the key that it had: %v", name, err))
		}
	}
}

func (l *life) reviewKey(ctx context.Context, name string) error {
	e, v, err := l.n.vault.Get(ctx, l.caller.UID, name)
	if err != nil {
		return err
	}
	was := l.keys.sources()[name]
	defer l.tellRebound(ctx, e, l.keys.ring.Binds(name, e.Binding), l.keys.ring.Lost(name))
	replace := func() error { return l.keys.ring.Replace(name, v, e.Binding) } // each session wipes its own at its end
	l.keys.keep(name, e.Source, true)
	if e.Source.Kind == source.Store {
		return l.given(ctx, name, replace)
	}
	if was == e.Source && l.keys.ring.Binds(name, e.Binding) && (e.Source.Kind != source.Env || !l.keys.ring.Lost(name)) {
		return nil // what else may have changed in there is looked for at intervals
	}
	// The key of before must not go where its person has let another one go. Of a
	// variable the node knows what was in it when they started the session.
	v, err = l.read(ctx, e.Source)
	switch {
	case err == nil:
		return l.given(ctx, name, replace)
	case e.Source.Kind == source.Env:
		err = fmt.Errorf("it is in the variable %s now, which only sessions have that are started from now on", e.Source.At)
	default:
		err = fmt.Errorf("it is set anew, and there it could not be read: %w", err)
	}
	if l.keys.ring.Lost(name) {
		l.keys.sayOnce(l, fmt.Sprintf("the secret %s is not there again: %v", name, err))
	}
	l.withdraw(ctx, name, err.Error())
	return l.keys.ring.Rebind(name, e.Binding)
}

// given says that a session has a key again, where change has given it one.
func (l *life) given(ctx context.Context, name string, change func() error) error {
	lost := l.keys.ring.Lost(name)
	err := change()
	if lost && err == nil {
		line := fmt.Sprintf("the secret %s is there again", name)
		if hosts := l.keys.ring.Binding(name).Hosts; !l.keys.leads(hosts) {
			line = fmt.Sprintf("the secret %s is set again, and of no use here: it goes to %s only, which the policy does not allow", name, strings.Join(hosts, ", "))
		}
		l.tellWithdrawn(ctx, line)
	}
	return err
}

// tellRebound says to a session that has a key all along that it goes elsewhere now,
// or stands elsewhere.
func (l *life) tellRebound(ctx context.Context, e vault.Entry, as, lost bool) {
	if as || lost || l.keys.ring.Lost(e.Name) {
		return
	}
	line := fmt.Sprintf("the secret %s is bound anew: it goes to %s only, now", e.Name, boundTo(e.Binding))
	if !l.keys.leads(e.Binding.Hosts) {
		line += ", which the policy does not allow"
	}
	l.tellWithdrawn(ctx, line)
}

// boundTo is where a key may go, in words.
func boundTo(b secrets.Binding) string {
	to := strings.Join(b.Hosts, ", ")
	if len(b.Paths) > 0 {
		to += " at " + strings.Join(b.Paths, ", ")
	}
	return to
}

// under notes the policy that the session runs under.
func (k *keys) under(p *policy.Effective) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.policy = p
}

// leads reports whether the session's policy lets it reach one of hosts.
func (k *keys) leads(hosts []string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.policy == nil || k.policy.MayReach(hosts)
}

// otherwise are the ids of the sessions that have the secret of that name, bound in
// another way.
func (n *Node) otherwise(uid int, name string, b secrets.Binding) (ids []string) {
	return n.holders(uid, name, func(l *life) bool { return !l.keys.ring.Binds(name, b) })
}

// sessionsOf are those of a person that run.
func (n *Node) sessionsOf(uid int) (theirs []*life) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.live {
		if l.caller.UID == uid {
			theirs = append(theirs, l)
		}
	}
	return theirs
}

// holders are the ids of the sessions that have the secret of that name, those that
// only lets pass.
func (n *Node) holders(uid int, name string, only func(*life) bool) (ids []string) {
	for _, l := range n.sessionsOf(uid) {
		if l.keys.owns(name) && !l.keys.ring.Lost(name) && only(l) {
			ids = append(ids, string(l.id))
		}
	}
	slices.Sort(ids)
	return ids
}

// reviewSessions has every running session of a person look at their secrets, and
// returns how many have a key of that name from the node's store.
func (n *Node) reviewSessions(ctx context.Context, uid int, name string) (sessions int) {
	for _, l := range n.sessionsOf(uid) {
		l.reviewKeys(ctx)
		if l.keys.sources()[name].Kind == source.Store {
			sessions++
		}
	}
	return sessions
}

// takeBack takes a sign-in from the session: its stand-in, or each token that is or
// was inside, goes nowhere any more, and no file inside holds it. next is what gives it
// again.
func (l *life) takeBack(ctx context.Context, one *lent, why, next string, in inSession) error {
	if !l.takeAway(ctx, one, why, next) || one.mode == signin.StandIn {
		return nil
	}
	return l.restage(one, in)
}

// takeAway takes a sign-in, and reports whether the session had it.
func (l *life) takeAway(ctx context.Context, one *lent, why, next string) bool {
	one.giving.Lock()
	defer one.giving.Unlock()
	if one.isWithdrawn() {
		return false
	}
	one.mu.Lock()
	one.withdrawn = why
	one.mu.Unlock()
	one.seen.Store(nil) // so that it is looked at when it may be there again
	l.tellWithdrawn(ctx, fmt.Sprintf("the sign-in of %s was withdrawn: %s; %s, and it works here again", one.tool.Title, why, next))
	l.keys.ring.Withdraw(signInKey(one.tool), why)
	return true
}

// own notes a token before it goes inside, where it may be from then on whatever
// comes of that: all that were ever there are refused once the sign-in is withdrawn.
func (l *life) own(one *lent, s *signin.SignIn) error {
	if one.mode == signin.StandIn {
		return nil
	}
	own := secretOf(s)
	defer own.Value.Wipe()
	return l.keys.ring.Own(own)
}

func (o *lent) isWithdrawn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.withdrawn != ""
}

// giveAgain gives a session a sign-in that was taken from it, with giving held.
func (l *life) giveAgain(ctx context.Context, one *lent) {
	if !one.isWithdrawn() {
		return
	}
	one.mu.Lock()
	one.withdrawn = ""
	one.mu.Unlock()
	l.tellWithdrawn(ctx, fmt.Sprintf("the sign-in of %s is there again", one.tool.Title))
	l.keys.ring.Restore(signInKey(one.tool))
}
