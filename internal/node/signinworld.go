package node

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/searchpath"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// signInWorld is where the tools of a person find themselves.
func (n *Node) signInWorld(home string, places api.SignInPlaces) signin.World {
	vars, names := map[string]string{}, signin.PlaceVariables(n.signInTools(home))
	for _, kv := range places.Variables {
		if name, v, ok := strings.Cut(kv, "="); ok && slices.Contains(names, name) {
			vars[name] = v
		}
	}
	return signin.World{
		Home:    home,
		Lookup:  func(name string) (string, bool) { v, ok := vars[name]; return v, ok },
		Keyring: n.signInKeyring,
		Command: func(ctx context.Context, argv []string) (secrets.Value, bool, error) {
			v, found, err := n.signInCommand(ctx, home, argv)
			if errors.Is(err, errNotThere) {
				err = nil
			}
			return v, found, err
		},
	}
}

// errNotThere says that a program which prints a sign-in cannot be run now: it may be
// in the middle of an update.
var errNotThere = errors.New("there is no such program, or only where a session could change it")

// signInCommand runs a program as a secret's command is run: as the user of this
// process, in no directory of a repository's, for ten seconds at most, and what it
// said counts for five minutes.
func (n *Node) signInCommand(ctx context.Context, home string, argv []string) (secrets.Value, bool, error) {
	path := n.commandPath(home)
	ref, program := signInReference(path, argv)
	if program == "" || searchpath.Leads(program, home, n.writable()...) { // apartFromSecrets says so
		return secrets.Value{}, false, errNotThere
	}
	v, err := n.read(ctx, ref, home, source.Reader{Cache: &n.commands, Path: path})
	if _, held := errors.AsType[*handsError](err); held {
		return secrets.Value{}, false, errNotThere
	}
	if e, is := errors.AsType[*source.Error](err); is && e.None() {
		return secrets.Value{}, false, nil
	}
	return v, err == nil, err
}

// commandPath is the PATH for commands that read secrets outside: without the
// directories that live sessions can write, and without any repository's.
func (n *Node) commandPath(home string) string {
	return cmp.Or(searchpath.Outside(os.Getenv("PATH"), home, n.writable()...), "/usr/bin:/bin")
}

// signInReference is the command, with its program by an absolute path, which is
// "" where there is none.
func signInReference(path string, argv []string) (ref source.Reference, program string) {
	if program = searchpath.Find(path, argv[0]); program == "" {
		return ref, ""
	}
	line := "cd / && exec " + fault.Quoted(program)
	for _, w := range argv[1:] {
		line += " " + fault.Quoted(w)
	}
	return source.Reference{Kind: source.Command, At: line}, program
}

// signInCommands are those by which sign-ins could be given to sessions, by
// tool.
func (n *Node) signInCommands(home string) map[string]source.Reference {
	out, path := map[string]source.Reference{}, n.commandPath(home)
	for _, tool := range n.signInTools(home) {
		for _, p := range tool.Places {
			if len(p.Command) == 0 || n.signInMode(tool) == signin.Off {
				continue
			}
			if ref, program := signInReference(path, p.Command); program != "" {
				out[tool.Name] = ref
			}
		}
	}
	return out
}

// signInKeyring asks the person's keyring. Without one there is none to be
// found in it.
func (n *Node) signInKeyring(ctx context.Context, attributes map[string]string) (secrets.Value, bool, error) {
	if !source.HasKeyring() {
		return secrets.Value{}, false, nil
	}
	return source.KeyringItem(ctx, attributes)
}
