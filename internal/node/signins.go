package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/tools"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/secrets"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
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
