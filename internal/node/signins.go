package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/searchpath"
	"github.com/mojoup/mojoup-node/internal/tools"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
	"github.com/mojoup/mojoup-node/pkg/secrets/source"
)

// SignIns says what is found of the sign-ins of the caller's tools.
func (n *Node) SignIns(ctx context.Context, c console.Caller, req api.SignInsRequest) (api.SignIns, error) {
	out := api.SignIns{SignIns: []api.SignIn{}}
	if err := n.mayAsk(c); err != nil {
		return out, err
	}
	home := n.home(req.Env)
	w, before := n.signInWorld(home, req.SignIns), ""
	some := false // of that tool
	for _, tool := range n.signInTools(home) {
		if some = some && tool.Name == before; some && tool.Spare {
			continue
		}
		one, there := n.signInShown(ctx, tool, w)
		switch last := len(out.SignIns) - 1; {
		case there && tool.Spare && tool.Name == before:
			out.SignIns[last] = one // it takes the place of none at all
		case there || tool.Name != before:
			// The first of a tool is shown always, its others where there are any.
			out.SignIns = append(out.SignIns, one)
		}
		some, before = some || there, tool.Name
	}
	out.SignIns = append(out.SignIns, n.brokenProfiles(home)...)
	return out, nil
}

// brokenProfiles are the tools of which nothing is known, each with why.
func (n *Node) brokenProfiles(home string) (out []api.SignIn) {
	for _, t := range tools.Dirs(n.o.Paths.Tools(home)).Broken() {
		out = append(out, api.SignIn{
			Tool: t.Name, State: api.SignInProfile, Mode: string(signin.Off), Hosts: []string{},
			Sentence: "the profile of " + t.Name + " cannot be used: " + t.Fault(), Hint: t.Advice(),
		})
	}
	return out
}

// signInTools are the sign-ins that the profiles know of, a person's own
// profiles among them.
func (n *Node) signInTools(home string) []signin.Tool {
	if n.o.Tools != nil {
		return n.o.Tools
	}
	return tools.Dirs(n.o.Paths.Tools(home)).SignIns()
}

// signInShown is one sign-in, for people, and whether there is one.
func (n *Node) signInShown(ctx context.Context, tool signin.Tool, w signin.World) (out api.SignIn, there bool) {
	mode := n.signInMode(tool)
	out = api.SignIn{Tool: tool.Name, Service: tool.Service, State: "found", Mode: string(mode), RealInside: mode.RealInside(), Hosts: tool.Binding.Hosts}
	s, err := tool.Find(ctx, w)
	if err == nil {
		defer s.Wipe()
		err = s.Check(time.Now())
		out.Kept, out.Account, out.Expires, out.Renews = s.Kept, s.Account, s.Expires, s.Renews
		if s.OthersRead {
			out.Sentence, out.Hint = fmt.Sprintf("others on this machine may read the sign-in of %s", tool.Title), "chmod 600 "+s.Path
		}
	}
	if err != nil {
		f := fault.As(err)
		out.State, out.Sentence, out.Hint = string(signin.KindOf(err)), f.Error(), f.Hint
	}
	return out, signin.KindOf(err) != signin.None
}

// signInMode is how sessions get the sign-in of a tool.
func (n *Node) signInMode(tool signin.Tool) signin.Mode {
	if _, err := config.Lookup(config.SignInMode + tool.Name); err != nil {
		return tool.Default
	}
	return signin.Mode(n.settingsNow().String(config.SignInMode + tool.Name))
}

// settingsNow are for those settings that take effect at once. While they cannot be
// read, those of before hold.
func (n *Node) settingsNow() *config.Config {
	if n.o.Follow == nil {
		return n.o.Settings
	}
	now, err := n.o.Follow()
	if err != nil {
		said := err.Error()
		if before := n.unread.Swap(&said); before == nil || *before != said {
			n.log.Warn("the settings cannot be read again: those of before hold", "err", err)
		}
	} else {
		n.unread.Store(nil)
	}
	return now
}

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
	ref, ok := signInReference(path, argv)
	if !ok || searchpath.Leads(searchpath.Find(path, argv[0]), home, n.writable()...) { // apartFromSecrets says so
		return secrets.Value{}, false, errNotThere
	}
	v, err := source.Reader{Cache: &n.commands, Path: path}.Read(ctx, ref)
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

// writable are the directories of the host that live sessions can write.
func (n *Node) writable() (out []string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.live {
		if trees := l.trees.Load(); trees != nil {
			out = append(out, *trees...)
		}
	}
	return out
}

// signInReference is the command, with its program by an absolute path, or
// false where there is none.
func signInReference(path string, argv []string) (source.Reference, bool) {
	program := searchpath.Find(path, argv[0])
	if program == "" {
		return source.Reference{}, false
	}
	line := "cd / && exec " + fault.Quoted(program)
	for _, w := range argv[1:] {
		line += " " + fault.Quoted(w)
	}
	return source.Reference{Kind: source.Command, At: line}, true
}

// signInCommands are those by which sign-ins could be given to sessions, by
// tool.
func (n *Node) signInCommands(home string) map[string]source.Reference {
	out := map[string]source.Reference{}
	for _, tool := range n.signInTools(home) {
		for _, p := range tool.Places {
			if len(p.Command) == 0 || n.signInMode(tool) == signin.Off {
				continue
			}
			if ref, ok := signInReference(n.commandPath(home), p.Command); ok {
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

// lent is a sign-in that a session has.
type lent struct {
	tool signin.Tool
	mode signin.Mode
	path string // of the person's file, as the tool names it, or ""
	// find finds it anew where it is in no file: in a keyring, or said by a program.
	find func(ctx context.Context) (*signin.SignIn, error)
	// standIn is what the session has of the token in mode standin.
	standIn string
	// owned notes a token that goes inside.
	owned func(*signin.SignIn) error
	// renews has it renewed where the tool keeps it, where that is due, or where
	// its token has the mark of one that a host did not take.
	renews func(ctx context.Context, rejected string) error

	missing   bool                        // at the last look, which only one goroutine takes
	following sync.Mutex                  // is held while its file is looked at
	seen      atomic.Pointer[fs.FileInfo] // of the file, when it was last taken over
	behind    atomic.Bool                 // its file inside is not what it is to be

	mu sync.Mutex
	// mu guards what follows.
	found    *signin.SignIn
	refusers map[string]refuser // by host and path
	refused  int                // how often it was renewed for the sake of one
	asked    time.Time          // a keyring or a program, because its token was not taken
	// withdrawn is why the session has it no longer, or "".
	withdrawn string
}

// changed reports whether the file is another than the one that was last taken
// over.
func (o *lent) changed(now fs.FileInfo) bool {
	p := o.seen.Load()
	if p == nil {
		return true
	}
	before := *p
	return !os.SameFile(before, now) || !before.ModTime().Equal(now.ModTime()) || before.Size() != now.Size()
}

func (o *lent) now() *signin.SignIn {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.found
}

// staged is what of it goes inside.
func (o *lent) staged() (signin.Staged, error) { return o.now().Stage(o.mode, o.standIn) }

// stagedOf is what goes inside of several, but for those that are withdrawn.
func stagedOf(some []*lent) ([]signin.Staged, error) {
	var all []signin.Staged
	for _, one := range some {
		if one.isWithdrawn() {
			continue
		}
		s, err := one.staged()
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return signin.Merged(all), nil
}

// signInFiles are the files of the sign-ins in the session's home, which is its
// memory and ends with it.
func (l *life) signInFiles(home string) (files []sandbox.Mount) {
	all, err := stagedOf(l.lent)
	if err != nil {
		return nil // it was staged once already
	}
	for _, s := range all {
		if s.Target != "" {
			files = append(files, sandbox.Mount{Kind: sandbox.Seed, Target: filepath.Join(home, s.Target), Content: s.Content(), Mode: 0o600})
		}
	}
	return files
}

// giveSignIns finds the sign-ins that the policy or the tool asks for, and says
// what of them goes inside. A session does not start with less than its policy
// asks for; a tool that was never signed in to starts without.
func (l *life) giveSignIns(ctx context.Context, p *prepared, given []string) (env []string, err error) {
	for _, want := range wanted(l.signInNames(p)) {
		some, err := l.findSignIns(ctx, p, want.of, given)
		switch {
		case err != nil && (want.optional || !policyWants(p.policy, want.of) && signin.KindOf(err) == signin.None):
			p.notices = append(p.notices, "without a sign-in: "+fault.As(err).Error())
			continue
		case err != nil:
			return nil, fault.CannotRun("%w", err)
		}
		l.lent = append(l.lent, some...)
		p.notices = append(p.notices, aboutLent(p.policy, some)...)
	}
	all, err := stagedOf(l.lent)
	for _, s := range all {
		if s.Variable != "" {
			env = append(env, s.Variable+"="+s.Value)
		}
	}
	return env, err
}

// signInNames are the tools whose sign-in is asked for.
func (l *life) signInNames(p *prepared) []string {
	names := slices.Clone(p.policy.SignIns)
	if len(signin.Named(l.n.signInTools(l.n.home(l.req.Env)), l.req.Tool)) > 0 && !policyWants(p.policy, l.req.Tool) {
		names = append(names, l.req.Tool)
	}
	return names
}

func policyWants(e *policy.Effective, tool string) bool {
	return slices.ContainsFunc(e.SignIns, func(s string) bool { return strings.TrimSuffix(s, policy.OptionalSecret) == tool })
}

// findSignIns are those of one tool, in the mode of the settings: none where
// that is off, or a key takes their place.
func (l *life) findSignIns(ctx context.Context, p *prepared, name string, given []string) (out []*lent, err error) {
	home := l.n.home(l.req.Env)
	named := signin.Named(l.n.signInTools(home), name)
	if len(named) == 0 {
		return nil, l.unknownSignIn(home, name)
	}
	mode := l.n.signInMode(named[0])
	wants := policyWants(p.policy, name)
	if mode == signin.Off && wants {
		p.notices = append(p.notices, fmt.Sprintf("without the sign-in of %s, which the policy asks for: %s", named[0].Title, l.n.offBy(named[0])))
	}
	if mode == signin.Off || !wants && l.hasKey(name, slices.Concat(l.req.Env, given)) {
		return nil, nil
	}
	w := l.n.signInWorld(home, l.req.SignIns)
	var none error
	for _, tool := range named {
		if tool.Spare && len(out) > 0 {
			continue
		}
		one, err := l.findSignIn(ctx, tool, w, mode)
		switch {
		case err == nil && !slices.ContainsFunc(out, func(o *lent) bool { return o.tool.Variable != "" && o.tool.Variable == one.tool.Variable }):
			out = append(out, one)
		case err == nil:
			one.now().Wipe() // the variable has another already
		case signin.KindOf(err) != signin.None:
			return nil, err
		case none == nil:
			none = err
		}
	}
	if len(out) == 0 {
		return nil, none
	}
	return out, nil
}

// unknownSignIn says why nothing is known of a sign-in that the policy asks for.
func (l *life) unknownSignIn(home, name string) error {
	if l.n.o.Tools == nil {
		dirs := tools.Dirs(l.n.o.Paths.Tools(home))
		for _, t := range dirs.Broken() {
			if t.Name == name {
				return fault.CannotRun("the policy asks for the sign-in of %s, and its profile cannot be used: %s", name, t.Fault()).WithHint("%s", t.Advice())
			}
		}
		if own, err := dirs.Find(name); err == nil {
			return fault.CannotRun("the policy asks for the sign-in of %s, and its profile has no [signin]", name).
				WithHint("take %s out of \"signIns\" of the policy, or say in %s where it keeps one", name, own.Source)
		}
	}
	var known []string
	for _, t := range l.n.signInTools(home) {
		known = append(known, t.Name)
	}
	slices.Sort(known)
	return fault.CannotRun("the policy asks for the sign-in of %s, which is no tool that is known here", name).
		WithHint("those with a sign-in: %s; a profile of yours can add one, see `mojoup-node tool show --help`", strings.Join(slices.Compact(known), ", "))
}

// offBy says what switches a sign-in off.
func (n *Node) offBy(tool signin.Tool) string {
	if _, err := config.Lookup(config.SignInMode + tool.Name); err != nil {
		return `its profile says default = "off"`
	}
	return config.SignInMode + tool.Name + " is off"
}

// findSignIn finds one, which is renewed first where it is about to expire.
func (l *life) findSignIn(ctx context.Context, tool signin.Tool, w signin.World, mode signin.Mode) (*lent, error) {
	s, err := tool.Find(ctx, w)
	if err == nil && s.Renews && s.Path != "" && renewalDue(s) {
		s, err = l.renewedFirst(ctx, tool, w, s)
	}
	if err != nil {
		return nil, err
	}
	if mode, err = s.In(mode); err == nil {
		err = s.Check(time.Now())
	}
	if err != nil {
		s.Wipe()
		return nil, err
	}
	one, err := l.lend(s, mode)
	if err == nil && one.path == "" {
		if s.Printed { // whose program is gone has not said that there is none
			w.Command = func(ctx context.Context, argv []string) (secrets.Value, bool, error) {
				return l.n.signInCommand(ctx, w.Home, argv)
			}
		}
		one.find = func(ctx context.Context) (*signin.SignIn, error) { return tool.Find(ctx, w) }
	}
	return one, err
}

// renewedFirst is the sign-in after a renewal, or as it was where that cannot
// be had and it still holds.
func (l *life) renewedFirst(ctx context.Context, tool signin.Tool, w signin.World, s *signin.SignIn) (*signin.SignIn, error) {
	if err := l.n.renew(ctx, Renewal{Tool: tool, Path: s.Path}); err != nil {
		if s.Left(time.Now()) > 0 {
			l.client.Notice(fmt.Sprintf("the sign-in of %s expires soon: %v", tool.Title, err))
			return s, nil
		}
		s.Wipe()
		return nil, err
	}
	s.Wipe()
	return tool.Find(ctx, w)
}

// hasKey reports whether the session has a key that the tool prefers to its
// sign-in.
func (l *life) hasKey(tool string, env []string) bool {
	p, err := tools.Dirs(l.n.o.Paths.Tools(l.n.home(l.req.Env))).Find(tool)
	return err == nil && p.Choose == "first" && slices.ContainsFunc(p.Keys, func(k profile.Key) bool { return variableOf(env, k.Name) != "" })
}

func variableOf(env []string, name string) string {
	for _, kv := range slices.Backward(env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// lend makes what the session gets.
func (l *life) lend(s *signin.SignIn, mode signin.Mode) (one *lent, err error) {
	one = &lent{tool: s.Tool, found: s, mode: mode, path: s.Named}
	one.owned = func(s *signin.SignIn) error { return l.own(one, s) }
	one.renews = func(ctx context.Context, rejected string) error {
		// A tool that replaces a link by a file leaves a token behind that is spent.
		path, err := filepath.EvalSymlinks(one.path)
		if err != nil {
			return err
		}
		return l.n.renew(ctx, Renewal{Tool: one.tool, Path: path, Rejected: rejected})
	}
	if mode == signin.StandIn {
		one.standIn, err = l.keys.ring.Add(secretOf(s))
	} else {
		err = l.own(one, s)
	}
	if err == nil {
		_, err = one.staged()
	}
	return one, err
}

// secretOf is its token as a key of a ring.
func secretOf(s *signin.SignIn) secrets.Secret {
	return secrets.Secret{Name: signInKey(s.Tool), Value: secrets.NewValue(s.Access().RevealForTheWire()), Lasting: true, Binding: s.Tool.Binding}
}

// signInKey names a sign-in among the session's keys. No secret of a policy can
// have that name.
func signInKey(t signin.Tool) string { return secrets.SignIn + t.Name + " " + t.Service }

// aboutLent is what people should know of sign-ins that go inside.
func aboutLent(e *policy.Effective, some []*lent) (lines []string) {
	for _, one := range some {
		tool := one.tool
		if one.mode.RealInside() {
			lines = append(lines, fmt.Sprintf("mode %s puts a real access token of %s (%s) inside", one.mode, tool.Title, tool.Service))
		}
		if line := tool.Idle(e.MayReach); line != "" {
			lines = append(lines, line)
		}
	}
	return lines
}

// returnSignIns forgets the tokens of a session that has ended.
func (l *life) returnSignIns() {
	for _, one := range l.lent {
		one.now().Wipe()
	}
}
