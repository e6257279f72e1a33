package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/tools"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

// tool is the agent tool of a session, if it has one, and where its keys are.
type tool struct {
	*profile.Profile
	keys []toolKey
}

// A toolKey is one key of a tool that the person has.
type toolKey struct {
	profile.Key
	// entry is the person's secret of that name; else the key is in variable.
	entry    *vault.Entry
	variable string
	// fallback says that the tool itself would not look in that variable, so
	// that a sign-in comes before it.
	fallback bool
}

// findTool reads the profile of the session's tool and looks for its keys. No
// key is read here.
func (l *life) findTool(ctx context.Context, home string) (err error) {
	l.tool = nil
	if l.req.Tool == "" {
		return nil
	}
	t := &tool{}
	if t.Profile, err = tools.Dirs(l.n.o.Paths.Tools(home)).Find(l.req.Tool); err != nil {
		return err
	}
	if _, can := t.Arguments("", false); l.req.Headless != "" && !can {
		return fault.Usage("the profile of %s does not say how it runs without a person", t.Name).WithHint("give the words to the tool itself: run --tool %s -- WORDS", t.Name)
	}
	own, err := l.n.vault.List(ctx, l.caller.UID)
	if err != nil {
		return fault.CannotRun("looking for the keys of %s: %w", t.Name, err)
	}
	t.find(own, l.req.Env, func(name string) string { return string(l.req.ToolKeys[name]) })
	l.tool = t
	return nil
}

// find chooses among the keys that there are as the tool itself would. What
// the person gives by --env is theirs to give: the tool is then left alone.
func (t *tool) find(own []vault.Entry, env []string, getenv func(string) string) {
	sources := []func(profile.Key) []string{profile.Key.Sources, func(k profile.Key) []string { return k.Fallback }}
	for turn, from := range sources {
		for _, k := range t.Keys {
			switch {
			case t.Choose == profile.ChooseFirst && len(t.keys) > 0:
				return
			case slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, k.Name+"=") }):
				if t.Choose == profile.ChooseFirst {
					return
				}
			case !t.has(k.Name):
				if found, ok := findKey(k, own, from(k), getenv); ok {
					found.fallback = turn > 0 && found.entry == nil
					t.keys = append(t.keys, found)
				}
			}
		}
	}
}

func (t *tool) has(name string) bool {
	return slices.ContainsFunc(t.keys, func(k toolKey) bool { return k.Name == name })
}

// findKey prefers what the person has set for it as a secret.
func findKey(k profile.Key, own []vault.Entry, from []string, getenv func(string) string) (toolKey, bool) {
	if i := slices.IndexFunc(own, func(e vault.Entry) bool { return e.Name == k.Name }); i >= 0 {
		return toolKey{Key: k, entry: &own[i]}, true
	}
	for _, name := range from {
		if v := getenv(name); v != "" && k.Takes(v) {
			return toolKey{Key: k, variable: name}, true
		}
	}
	return toolKey{}, false
}

// rules are the hosts that the tool asks for, nil without a tool.
func (t *tool) rules() *policy.ToolRules {
	if t == nil {
		return nil
	}
	var names []string
	for _, k := range t.keys {
		names = append(names, k.Name)
	}
	return t.Rules(names)
}

// giveToolKeys puts the tool's keys into the session's ring and returns the
// variables that hold their stand-ins. Those that the policy names are there
// already, and the policy has the first word about them.
//
// It is asked twice: for what comes before a sign-in, and for the rest where
// there is none.
func (l *life) giveToolKeys(ctx context.Context, p *prepared, given []string, fallback bool) (env []string, err error) {
	if l.tool == nil {
		return nil, nil
	}
	has := func(name string) bool {
		return slices.ContainsFunc(given, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
	}
	if l.tool.Choose == profile.ChooseFirst && slices.ContainsFunc(l.tool.Keys, func(k profile.Key) bool { return has(k.Name) }) {
		return nil, nil
	}
	for _, k := range l.tool.keys {
		if has(k.Name) || k.fallback != fallback {
			continue
		}
		secret, ref, err := l.readToolKey(ctx, k)
		if err != nil {
			return nil, err
		}
		standIn, err := l.keys.ring.Add(secret)
		if shape := (*secrets.ShapeError)(nil); errors.As(err, &shape) && k.variable != "" {
			// Whatever a variable of the person's holds, the tool may do without.
			p.notices = append(p.notices, fmt.Sprintf("%s gets no key from your variable %s: %v", l.tool.Name, k.variable, shape))
			continue
		}
		if err != nil {
			return nil, fault.CannotRun("%w", err)
		}
		l.keys.keep(k.Name, ref, k.entry != nil)
		env = append(env, k.Name+"="+standIn)
	}
	return env, nil
}

// readToolKey reads one key of the session's person.
func (l *life) readToolKey(ctx context.Context, k toolKey) (secrets.Secret, source.Reference, error) {
	if k.entry == nil {
		value := source.Trimmed([]byte(l.req.ToolKeys[k.variable]))
		return secrets.Secret{Name: k.Name, Value: value, Binding: k.Binding(), Prefixes: k.Prefixes}, source.Reference{Kind: source.Env, At: k.variable}, nil
	}
	entry, value, err := l.findKey(ctx, k.Name)
	return secrets.Secret{Name: k.Name, Value: value, Binding: entry.Binding, Prefixes: k.Prefixes}, entry.Source, err
}

// wants is what the tool wants of the session's home and environment.
func (t *tool) wants(home, dir string, standIns []string) (out plan.Tool) {
	if t == nil {
		return out
	}
	v := profile.Values{Home: home, Dir: dir, StandIns: map[string]string{}}
	for _, kv := range standIns {
		name, standIn, _ := strings.Cut(kv, "=")
		v.StandIns[name] = standIn
	}
	out.Env = t.Environment(v)
	for _, f := range t.MadeUp(v) {
		out.Files = append(out.Files, plan.OwnFile{Path: f.Path, Text: f.Text})
	}
	return out
}

// carried is the caller's environment without what would lead the tool
// elsewhere. What was asked for by name stays.
func (t *tool) carried(env []string) []string {
	if t == nil {
		return env
	}
	return slices.DeleteFunc(slices.Clone(env), func(kv string) bool {
		name, _, _ := strings.Cut(kv, "=")
		return t.Clears(name) && len(plan.CallerEnv([]string{kv})) > 0
	})
}

// argv is the command: with a tool its program, then the profile's words for a
// prompt without a person, then the person's own.
func (l *life) argv(sandboxed bool) []string {
	if l.tool == nil {
		return l.req.Command
	}
	argv := []string{l.tool.Program.Name}
	if l.req.Headless != "" {
		words, _ := l.tool.Arguments(l.req.Headless, sandboxed)
		argv = append(argv, words...)
	}
	return append(argv, l.req.Command...)
}

// installed says how to get a tool that is not there.
func (t *tool) installed() string {
	if t.Program.Package == "" {
		return fmt.Sprintf("%s is not installed where a session can see it", t.Program.Name)
	}
	return fmt.Sprintf("%s is not installed where a session can see it: `npm install -g %s`, then run again", t.Program.Name, t.Program.Package)
}

// toolNotices name the hosts of a tool that the policy does not let it reach:
// the tool itself would only say that it has no connection.
func toolNotices(e *policy.Effective, tool string) (notices []string) {
	for _, r := range e.ToolRefusals() {
		notices = append(notices, fmt.Sprintf("%s cannot reach %s:%d: %s", tool, r.Host, r.Port, r.Decision.Reason))
	}
	return notices
}

// inImage says how a program gets into the image of engine docker.
func inImage(program string) string {
	if slices.ContainsFunc(profile.Builtin(), func(p *profile.Profile) bool { return p.Program.Name == program }) {
		return fmt.Sprintf("the image of sessions does not have it: mojoup-node image build --tool %s", program)
	}
	return "the image of sessions does not have it: mojoup-node image build --package NAME installs one of Debian's packages"
}
