package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

func newSecret(p Process) *cobra.Command {
	return group("secret", "keys that stay outside of sessions", newSecretSet(p), newSecretList(p), newSecretRemove(p))
}

type secretOptions struct {
	req                         api.SecretRequest
	file, env, command, keyring string
}

func newSecretSet(p Process) *cobra.Command {
	var o secretOptions
	cmd := &cobra.Command{
		Use:   "set NAME --host HOST[:PORT]… [flags]",
		Short: "keep a key, or say where it is kept, and where it may go",
		Long: `Set a secret of yours. A session whose policy names it under "secrets" gets a
variable of that name with a stand-in: it has the key's shape, and is worth
nothing but in requests of that session over TLS to the hosts, and in the
places, that are named here. There the node puts the key in its place on the
way out, and takes it out of what comes back. A request with a stand-in anywhere
else in its URL or headers is refused and reported, where the node reads it. In
a body a stand-in passes as the random word that it is, but for the field that
--body names.

The key is read from stdin and kept in the node's own encrypted store, or stays
where it is: in a variable of whoever starts the session, in a file that only
you can read, in what a command writes (run by /bin/sh, 10 seconds, kept for 5
minutes), or in the desktop's keyring. Set again, a key in the store reaches
sessions that run at once, one in a file or command when it has changed there; one
in a variable is for them what it was when they were started. Where it may go holds
for them from their next request on.

Without --header, --query or --body the key may stand in the headers
Authorization (as bearer, token, or basic password), X-Api-Key and
X-Goog-Api-Key. A command finds programs in the node's PATH without those
directories that lie in a repository: a session could write there. What a session
that runs has in its hands, a file or what a command runs, is not read, and no
session gets into its hands what a secret is read by. Requests that
have to be signed with a key, as AWS wants it, cannot be made with a stand-in: make
them outside of the session, or give the session keys of few rights and a short
life with --env, which are then inside.`,
		Example: `  mojoup-node secret set ANTHROPIC_API_KEY --host api.anthropic.com <key
  mojoup-node secret set GITHUB_TOKEN --host github.com --host api.github.com --command 'gh auth token'
  mojoup-node secret set MAPS_KEY --host maps.x.example --query key --path '/maps/api/**' --file ~/.maps-key`,
		Args: nameAndNoKey,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.req.Name = args[0]
			return setSecret(cmd.Context(), p, o)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&o.req.Hosts, "host", nil, "a `host`, as in a policy's rules, with :PORT where that is not 443; may be given more than once")
	f.StringArrayVar(&o.req.Headers, "header", nil, "a `header` that the key may stand in, as X-Api-Key or 'Authorization: bearer' (bare, bearer, token, basic)")
	f.StringArrayVar(&o.req.Query, "query", nil, "a `parameter` of the URL that the key may stand in; needs --path")
	f.StringArrayVar(&o.req.Body, "body", nil, "a `field` of a form or JSON object, up to 1 MiB, that the key may stand in; needs --path")
	f.StringArrayVar(&o.req.Paths, "path", nil, "a `path` pattern, as in a policy's rules; without one the key may go to every path")
	f.StringVar(&o.file, "file", "", "the key is in this `file`, which only you may read")
	f.StringVar(&o.env, "env", "", "the key is in this `variable` of whoever starts the session")
	f.StringVar(&o.command, "command", "", "this `command` writes the key")
	f.StringVar(&o.keyring, "keyring", "", "the key is the keyring's item with these `attributes`, as service=x,account=y")
	return cmd
}

// nameAndNoKey takes a name. What else was written may be the key itself, by habit
// or by mistake, also behind a flag, and is not repeated: the error would go where
// keys do not belong, as into a log.
func nameAndNoKey(cmd *cobra.Command, args []string) (err error) {
	if len(args) > 1 {
		return fault.Usage("secret set takes a name only, and got more, which is not shown here").WithHint(inHistory)
	}
	if len(args) == 1 && secrets.LooksLikeKey(args[0]) {
		return fault.Usage("the name of the secret looks like a key, and is not shown here").WithHint(inHistory)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err == nil && slices.ContainsFunc(values, secrets.LooksLikeKey) {
			err = fault.Usage("--%s holds what looks like a key, and is not shown here", f.Name).WithHint(inHistory)
		}
	})
	if err != nil {
		return err
	}
	return exactly("a name")(cmd, args)
}

const inHistory = "give the key by stdin, as `mojoup-node secret set NAME --host HOST <FILE`; if it was on this command line it is in your shell's history now: take it out there, or have its service make a new one"

func setSecret(ctx context.Context, p Process, o secretOptions) error {
	if err := outside(p); err != nil {
		return err
	}
	if secrets.Signs(o.req.Name) {
		talk{w: p.Stderr}.line("%s signs requests, which a stand-in cannot do: what a session sends with it will not be taken; for what needs a signature, %s", o.req.Name, secrets.SigningHelp)
	}
	req, err := o.request()
	if err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	if req.Kind == string(source.Store) {
		if req.Key, err = readKey(p); err != nil {
			return err
		}
	}
	var done api.SecretSet
	err = h.withNode(ctx, p, func() (err error) {
		done, err = h.client().SetSecret(ctx, req)
		return err
	})
	if err != nil {
		return err
	}
	say := talk{w: p.Stderr}
	say.line("set %s for %s", req.Name, strings.Join(req.Hosts, ", "))
	if h.served(ctx).by != nil {
		say.line("it is kept with the system node, for you alone: a node of your own does not have it")
	}
	if o.env != "" && p.Getenv(o.env) == "" {
		say.line("note: %s is not set here; a session that is to have the secret is started where it is", o.env)
	}
	if done.Sessions > 0 {
		say.line("sessions that have the new key already: %d", done.Sessions)
	}
	if len(done.Rebound) > 0 {
		say.line("sessions that run had it for another host or place, and can use it as it is set now only: %s", strings.Join(done.Rebound, ", "))
	}
	return nil
}

// request is what the node is asked, but for a key from stdin. What is wrong
// is said before a key is asked for.
func (o secretOptions) request() (api.SecretRequest, error) {
	req := o.req
	req.Kind = string(source.Store)
	for kind, at := range map[source.Kind]string{source.File: o.file, source.Env: o.env, source.Command: o.command, source.Keyring: o.keyring} {
		switch {
		case at == "":
		case req.At != "":
			return req, fault.Usage("a key is kept in one place").WithHint("give one of --file, --env, --command, --keyring")
		default:
			req.Kind, req.At = string(kind), at
		}
	}
	if o.file != "" {
		var err error
		if req.At, err = filepath.Abs(o.file); err != nil {
			return req, fault.Usage("--file %s: %w", o.file, err)
		}
	}
	b := secrets.Binding{Hosts: req.Hosts, Headers: req.Headers, Query: req.Query, Body: req.Body, Paths: req.Paths}
	for _, err := range []error{policy.CheckSecretName(req.Name), plan.CheckSecretVariable(req.Name), b.Check(), source.Reference{Kind: source.Kind(req.Kind), At: req.At}.Check()} {
		if err != nil {
			return req, fault.Usage("%w", err)
		}
	}
	return req, nil
}

// readKey reads a key from stdin; on a terminal it is not shown.
func readKey(p Process) (api.Key, error) {
	if f, ok := p.Stdin.(*os.File); ok && isTerminal(p.Stdin) {
		fmt.Fprint(p.Stderr, "Key (not shown): ")
		b, err := term.ReadPassword(int(f.Fd()))
		fmt.Fprintln(p.Stderr)
		if err != nil && !errors.Is(err, io.EOF) {
			return "", fault.Unknown("reading the key: %w", err)
		}
		if len(b) == 0 {
			return "", errNoKey()
		}
		return api.Key(b), nil
	}
	b, err := io.ReadAll(io.LimitReader(bufio.NewReader(p.Stdin), secrets.MaxLength+3))
	if err != nil {
		return "", fault.Unknown("reading the key: %w", err)
	}
	if len(bytes.TrimSpace(b)) == 0 {
		return "", errNoKey()
	}
	return api.Key(b), nil
}

func errNoKey() error {
	return fault.Usage("no key was given").
		WithHint("write it to stdin, as `mojoup-node secret set NAME --host HOST <FILE`, or say where it is kept: --file, --env, --command, --keyring")
}

func newSecretList(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "your secrets, without their keys: where each is kept and may go",
		Long: `Your secrets, without their keys: where each is kept and may go. They are those of
the node that answers: a system node has others of yours than a node of your own,
and where there are any it is said.`,
		Args: noArgs,
		RunE: listing(p, (*client.Client).Secrets, printSecrets, here.tellSecrets),
	}
	addJSON(cmd)
	return cmd
}

// listing asks a node for all of one kind, starting one where none runs, and
// prints them. also, if not nil, says what belongs to it.
func listing[T any](p Process, ask func(*client.Client, context.Context) (T, error), show func(Process, T), also func(here, context.Context, Process)) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, _ []string) error {
		if err := outside(p); err != nil {
			return err
		}
		h, err := look(p)
		if err != nil {
			return err
		}
		var all T
		err = h.withNode(cmd.Context(), p, func() (err error) {
			all, err = ask(h.client(), cmd.Context())
			return err
		})
		if err != nil {
			return err
		}
		if wantsJSON(cmd) {
			return printJSON(p.Stdout, all)
		}
		show(p, all)
		if also != nil {
			also(h, cmd.Context(), p)
		}
		return nil
	}
}

func printSecrets(p Process, all api.Secrets) {
	pen := newPen(p)
	if len(all.Secrets) == 0 {
		pen.printf("you have set no secrets\n")
		return
	}
	var rows [][]string
	for _, s := range all.Secrets {
		var places []string
		places = append(places, s.Headers...)
		for _, q := range s.Query {
			places = append(places, "parameter "+q)
		}
		for _, f := range s.Body {
			places = append(places, "field "+f)
		}
		to := strings.Join(s.Hosts, ", ")
		if len(s.Paths) > 0 {
			to += " at " + strings.Join(s.Paths, ", ")
		}
		rows = append(rows, []string{s.Name, source.Reference{Kind: source.Kind(s.Kind), At: s.At}.String(), to, strings.Join(places, ", ")})
	}
	pen.rows([]string{"SECRET", "KEPT IN", "GOES TO", "IN"}, rows)
	if all.Protection != "" {
		talk{w: p.Stderr}.line("the node's store is %s", all.Protection)
	}
}

func newSecretRemove(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "remove NAME",
		Short: "forget a secret and take it from the sessions that run",
		Long: `Forget a secret. The sessions that run with it lose it at once and are named: what
they send with its stand-in is refused, and what goes on with the key (a stream, a
WebSocket) is cut. Set again it works there again. The key itself stays good at its
service until it is withdrawn there.`,
		Args: exactly("a name"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := outside(p); err != nil {
				return err
			}
			if err := policy.CheckSecretName(args[0]); err != nil {
				return fault.Usage("%w", err).WithHint("`mojoup-node secret list` names those that you have")
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			var done api.SecretRemoved
			err = h.withNode(cmd.Context(), p, func() (err error) {
				done, err = h.client().RemoveSecret(cmd.Context(), args[0])
				return err
			})
			if err == nil {
				sayRemoved(p, args[0], done)
			}
			return err
		},
	}
}

// sayRemoved says what was removed, and from which sessions.
func sayRemoved(p Process, name string, done api.SecretRemoved) {
	say := talk{w: p.Stderr}
	say.line("removed %s", name)
	switch n := len(done.Sessions); {
	case n == 1:
		say.line("1 session that runs had it, and has it no longer: %s", done.Sessions[0])
	case n > 1:
		say.line("%d sessions that run had it, and have it no longer: %s", n, strings.Join(done.Sessions, ", "))
	}
	if len(done.Sessions) > 0 {
		say.line("set again with `%s` it works there again", done.SetBy)
	}
}

// keysOf are the values of the variables in which the person keeps keys.
func (h here) keysOf(ctx context.Context, p Process) (map[string]api.Key, error) {
	all, err := h.client().Secrets(ctx)
	if err != nil {
		return nil, err
	}
	out := map[string]api.Key{}
	for _, s := range all.Secrets {
		if v := p.Getenv(s.At); s.Kind == string(source.Env) && v != "" {
			out[s.At] = api.Key(v)
		}
	}
	return out, nil
}
