package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

// keys are one session's: what it was given a stand-in for, and where each key
// is kept.
type keys struct {
	ring *secrets.Ring

	reviewing sync.Mutex // is held while they are compared with the store; before mu

	mu    sync.Mutex // guards what follows
	kept  map[string]source.Reference
	own   []string    // those that are secrets which the person has set
	stamp vault.Stamp // of the store, before the keys were read
	said  string      // of a key, last

	policy *policy.Effective // of the session
}

// keep notes where a key is kept.
func (k *keys) keep(name string, at source.Reference, own bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.kept[name] = at
	if own && !slices.Contains(k.own, name) {
		k.own = append(k.own, name)
	}
}

// giveKeys puts the keys that the policy names into the session's ring and
// returns the variables that hold their stand-ins, and those that git may sign
// in with. A session does not start with less than its policy asks for, but for
// what that calls optional.
func (l *life) giveKeys(ctx context.Context, p *prepared) (env []string, logins []plan.Login, err error) {
	l.keys.under(p.policy)
	begun := l.keys.begin(l.n.vault)
	for _, name := range wanted(p.policy.Secrets) {
		entry, value, err := l.findKey(ctx, name.of)
		switch {
		case err != nil && name.optional && fault.As(err).Code != api.CodeKeys:
			p.notices = append(p.notices, fmt.Sprintf("without the secret %s, which the policy calls optional: %v", name.of, err))
			continue
		case err != nil:
			return nil, nil, err
		}
		standIn, err := l.keys.ring.Add(secrets.Secret{Name: name.of, Value: value, Binding: entry.Binding})
		if err != nil {
			return nil, nil, fault.CannotRun("%w", err)
		}
		l.keys.keep(name.of, entry.Source, true)
		env = append(env, name.of+"="+standIn)
		if secrets.Signs(name.of) {
			p.notices = append(p.notices, fmt.Sprintf("%s signs requests, which its stand-in cannot do: for what needs a signature, %s", name.of, secrets.SigningHelp))
		}
		for _, host := range entry.Binding.Passwords() {
			logins = append(logins, plan.Login{Host: host, Password: standIn})
		}
		if line := unreachable(p.policy, entry); line != "" {
			p.notices = append(p.notices, line)
		}
	}
	return env, logins, l.stillGiven(ctx, p, begun)
}

// stillGiven looks again at what was given, where the store has changed meanwhile: a
// key's command may take seconds, and who removes a secret then, or binds it
// elsewhere, has been told that it is done.
func (l *life) stillGiven(ctx context.Context, p *prepared, begun vault.Stamp) error {
	l.keys.since(begun)
	l.reviewKeys(ctx)
	for _, name := range wanted(p.policy.Secrets) {
		if l.keys.ring.Lost(name.of) && !name.optional {
			return l.n.notSet(name.of)
		}
	}
	return nil
}

type wantedKey struct {
	of       string
	optional bool
}

// wanted reads a policy's list. What some layer needs is not optional.
func wanted(names []string) (out []wantedKey) {
	for _, n := range names {
		name, optional := strings.CutSuffix(n, policy.OptionalSecret)
		at := slices.IndexFunc(out, func(w wantedKey) bool { return w.of == name })
		if at < 0 {
			out = append(out, wantedKey{name, optional})
			continue
		}
		out[at].optional = out[at].optional && optional
	}
	return out
}

// findKey reads one key of the session's person.
func (l *life) findKey(ctx context.Context, name string) (vault.Entry, secrets.Value, error) {
	if err := plan.CheckSecretVariable(name); err != nil {
		return vault.Entry{}, secrets.Value{}, fault.CannotRun("%w", err)
	}
	entry, value, err := l.n.vault.Get(ctx, l.caller.UID, name)
	switch {
	case errors.Is(err, vault.ErrNotFound):
		return entry, value, l.n.notSet(name)
	case err != nil:
		return entry, value, fault.CannotRun("reading the secret %s: %w", name, err)
	case entry.Source.Kind == source.Store:
		return entry, value, nil
	}
	if entry.Source.Kind == source.Env && l.req.Keys == nil {
		return entry, value, fault.CannotRun("the secret %s is in a variable of yours", name).WithCode(api.CodeKeys)
	}
	value, err = l.read(ctx, entry.Source)
	if err != nil {
		return entry, value, fault.CannotRun("reading the secret %s: %w", name, err)
	}
	return entry, value, nil
}

// notSet refuses a session whose secret its person has not set with this node.
func (n *Node) notSet(name string) error {
	f := fault.CannotRun("the policy asks for the secret %s, which you have not set", name)
	if n.o.Deputy != nil {
		return f.WithHint("mojoup-node secret set %s --host HOST; the system node has none of those that you set with a node of your own", name)
	}
	return f.WithHint("mojoup-node secret set %s --host HOST", name)
}

// apartFromSecrets refuses a session that could read the file of one of its
// person's keys, or change what a key's command runs outside, whether it is
// given that key or not: the next session that is would run it.
func (l *life) apartFromSecrets(ctx context.Context, home string, s sandbox.Spec) error {
	path := l.n.commandPath(home)
	readBy := func(ref source.Reference) *reading { return &reading{ref.Kind, ref.Paths(home, path)} }
	read := l.n.readings.all() // before the list, in which is what was set meanwhile
	own, err := l.n.vault.List(ctx, l.caller.UID)
	if err != nil {
		own = nil // then no key is read either, and who wants one is told why
	}
	for _, e := range own {
		if file, by := inHand(readBy(e.Source), s.Mounts); file != "" {
			return fault.CannotRun("the secret %s is read by %s, which the session would have in its hands by %s", e.Name, file, by).
				WithHint("move it elsewhere, or set the secret from another place: mojoup-node secret set %s", e.Name)
		}
	}
	for tool, ref := range l.n.signInCommands(home) {
		if file, by := inHand(readBy(ref), s.Mounts); file != "" {
			return fault.CannotRun("a sign-in of %s is read by %s, which the session would have in its hands by %s", tool, file, by).
				WithHint("move it elsewhere, or set the mode of that sign-in to off")
		}
	}
	for _, one := range read {
		if file, by := inHand(one, s.Mounts); file != "" {
			return fault.CannotRun("a key is being read by %s, which the session would have in its hands by %s", file, by).
				WithHint("start it again in a moment")
		}
	}
	return nil
}

// read reads a key as the session's caller has them.
func (l *life) read(ctx context.Context, ref source.Reference) (secrets.Value, error) {
	home := l.n.home(l.req.Env)
	return l.n.read(ctx, ref, home, source.Reader{
		Cache: &l.n.commands, Path: l.n.commandPath(home), Getenv: func(name string) string { return string(l.req.Keys[name]) },
	})
}

// unreachable says that a key can go nowhere, or is "".
func unreachable(p *policy.Effective, e vault.Entry) string {
	if p.MayReach(e.Binding.Hosts) {
		return ""
	}
	return fmt.Sprintf("the key of %s goes to %s only, which the policy does not allow", e.Name, strings.Join(e.Binding.Hosts, ", "))
}

// refreshKeys asks those sources again that may have another key by now, as
// long as the session runs, and takes back what its person has taken back.
func (l *life) refreshKeys(ctx context.Context) {
	tick := time.NewTicker(l.n.o.Times.Keys)
	defer tick.Stop()
	said, gone := map[string]string{}, map[string]bool{} // gone: or for others to read
	for turn := 1; ; turn++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		l.reviewKeys(ctx)
		for name, ref := range l.keys.sources() {
			// A file costs nothing to ask. A command is kept for five minutes by
			// its cache; a keyring is a bus and a daemon.
			if ref.Kind == source.Store || ref.Kind == source.Env || ref.Kind == source.Keyring && turn%keyringTurns != 0 {
				continue
			}
			err := l.refreshKey(ctx, name, ref)
			switch {
			case ctx.Err() != nil:
				return
			case taken(err) && gone[name]: // and not just being replaced
				l.withdraw(ctx, name, err.Error())
				continue
			}
			gone[name] = taken(err)
			if err != nil && said[name] != err.Error() {
				said[name] = err.Error()
				l.diary.note(api.EventNotice, fmt.Sprintf("the secret %s keeps the key that it had: %v", name, err))
			}
		}
	}
}

// taken reports whether a key is not where it was, or could not be set from there any
// more since others may read it.
func taken(err error) bool { return source.Gone(err) || source.Exposed(err) }

func (l *life) refreshKey(ctx context.Context, name string, ref source.Reference) error {
	v, err := l.read(ctx, ref)
	if err != nil {
		return err
	}
	l.keys.reviewing.Lock()
	defer l.keys.reviewing.Unlock()
	if l.keys.sources()[name] != ref { // its person has removed it meanwhile, or set it anew
		v.Wipe()
		return nil
	}
	return l.given(ctx, name, func() error { return l.keys.ring.Rotate(name, v) })
}

// keyringTurns is every how many turns a keyring is asked.
const keyringTurns = 12

// sources are where each key is kept, as of now.
func (k *keys) sources() map[string]source.Reference {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.kept)
}
