package node

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

// KeepsSecrets reports whether the node of a state directory has kept secrets.
func KeepsSecrets(state string) bool { return vault.There(state) }

// Secrets lists the caller's, without their keys.
func (n *Node) Secrets(ctx context.Context, c console.Caller) (api.Secrets, error) {
	out := api.Secrets{Secrets: []api.Secret{}}
	if err := n.mayAsk(c); err != nil {
		return out, err
	}
	all, err := n.vault.List(ctx, c.UID)
	if err == nil {
		out.Protection, err = n.vault.Protection()
	}
	if err != nil {
		return out, fault.Unknown("%w", err).Problem()
	}
	for _, e := range all {
		b := e.Binding.WithDefaults()
		out.Secrets = append(out.Secrets, api.Secret{
			Name: e.Name, Kind: string(e.Source.Kind), At: e.Source.At, Set: e.Set,
			Hosts: b.Hosts, Headers: b.Headers, Query: b.Query, Body: b.Body, Paths: b.Paths,
		})
	}
	return out, nil
}

// SetSecret sets one of the caller's, and gives the new key to their sessions
// that run.
func (n *Node) SetSecret(ctx context.Context, c console.Caller, req api.SecretRequest) (api.SecretSet, error) {
	if err := n.mayAsk(c); err != nil {
		return api.SecretSet{}, err
	}
	done, err := n.setSecret(ctx, c, req)
	if err != nil {
		return api.SecretSet{}, fault.As(err).Problem()
	}
	return done, nil
}

func (n *Node) setSecret(ctx context.Context, c console.Caller, req api.SecretRequest) (done api.SecretSet, err error) {
	e := vault.Entry{
		Name: req.Name, Owner: c.UID, Set: time.Now().UTC().Truncate(time.Second), Source: source.Reference{Kind: source.Kind(req.Kind), At: req.At},
		Binding: secrets.Binding{Hosts: req.Hosts, Headers: req.Headers, Query: req.Query, Body: req.Body, Paths: req.Paths},
	}
	value := source.Trimmed([]byte(req.Key))
	defer value.Wipe()
	for _, err := range []error{policy.CheckSecretName(e.Name), plan.CheckSecretVariable(e.Name), e.Binding.Check(), e.Source.Check()} {
		if err != nil {
			return done, fault.Usage("%w", err)
		}
	}
	switch e.Source.Kind {
	case source.Env: // the caller's, when a session starts
	case source.Store:
		err = secrets.CheckShape(value)
	default:
		home := n.home(nil)
		path := n.commandPath(home)
		end, held := n.beginReading(e.Source, home, path)
		if held != nil {
			return done, fault.Usage("the secret %s cannot be set so: %w", e.Name, held)
		}
		defer end() // when it is in the store
		// What cannot be read now would keep a session from starting later.
		n.commands.Forget()
		var now secrets.Value
		now, err = source.Reader{Cache: &n.commands, Path: path}.Read(ctx, e.Source)
		now.Wipe()
	}
	if err != nil {
		return done, badKey(e.Source.Kind, err)
	}
	done.Rebound = append([]string{}, n.otherwise(c.UID, e.Name, e.Binding)...) // before each of them can find out by itself
	if err := n.vault.Put(ctx, e, value); err != nil {
		return done, fault.Unknown("%w", err)
	}
	done.Sessions = n.reviewSessions(ctx, c.UID, e.Name)
	return done, nil
}

// badKey says whose it is that there is no key: of who set the secret, where
// they gave something else or named a file, or of what was asked for it.
func badKey(kind source.Kind, err error) error {
	if _, shape := errors.AsType[*secrets.ShapeError](err); shape || kind == source.File {
		return fault.Usage("%w", err)
	}
	return fault.Unknown("%w", err)
}

// RemoveSecret forgets one of the caller's, and takes it from their sessions that
// run, which it names.
func (n *Node) RemoveSecret(ctx context.Context, c console.Caller, name string) (api.SecretRemoved, error) {
	out := api.SecretRemoved{Sessions: []string{}}
	if err := n.mayAsk(c); err != nil {
		return out, err
	}
	own, err := n.vault.List(ctx, c.UID)
	if err != nil {
		return out, fault.Unknown("%w", err).Problem()
	}
	if at := slices.IndexFunc(own, func(e vault.Entry) bool { return e.Name == name }); at >= 0 {
		out.SetBy = setBy(name, own[at].Source, own[at].Binding)
	}
	had := n.holders(c.UID, name, func(*life) bool { return true }) // before each of them can find out by itself
	err = n.vault.Remove(ctx, c.UID, name)
	switch {
	case errors.Is(err, vault.ErrNotFound):
		return out, fault.Negative("you have set no secret %q", name).WithHint("`mojoup-node secret list` names those that you have").Problem()
	case err != nil:
		return out, fault.Unknown("%w", err).Problem()
	}
	n.reviewSessions(ctx, c.UID, name)
	out.Sessions = append(out.Sessions, had...)
	return out, nil
}

// setBy is the command by which a person sets a secret so, whole. Its words are for a
// shell.
func setBy(name string, r source.Reference, b secrets.Binding) string {
	words := []string{"mojoup-node secret set", fault.Quoted(name)}
	flag := func(name string, values ...string) {
		for _, v := range values {
			words = append(words, "--"+name, fault.Quoted(v))
		}
	}
	flag("host", b.Hosts...)
	if !slices.Equal(b.WithDefaults().Headers, secrets.Binding{}.WithDefaults().Headers) {
		flag("header", b.Headers...)
	}
	flag("query", b.Query...)
	flag("body", b.Body...)
	flag("path", b.Paths...)
	switch r.Kind {
	case source.Env, source.File, source.Command, source.Keyring:
		flag(string(r.Kind), r.At)
	}
	return strings.Join(words, " ")
}
