package node

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/internal/effective"
	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/host"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

// prepared is everything that is known before the first act.
type prepared struct {
	repository repo.Repository
	seen       []sight // of its directories, and of that of the command
	stood      []stood // what stood where something is to be protected
	policy     *policy.Effective
	engine     sandbox.Engine
	sandboxed  bool
	spec       sandbox.Spec
	command    sandbox.Command
	authority  *leafcert.Authority
	facts      []sandbox.Fact
	notices    []string
	limits     sandbox.Limits
	limitsFrom map[string]string // by fact, the settings of the node that are stricter than the policy
}

// consider looks, reads the policy and chooses the engine. It makes nothing,
// and fails with the sentence that the person gets.
func (l *life) consider(ctx context.Context) (p prepared, err error) {
	if err := checkRequest(l.req); err != nil {
		return p, err
	}
	home := l.n.home(l.req.Env)
	if p.repository, err = l.n.look(home, l.req.Directory, l.req.Repository); err != nil {
		return p, err
	}
	p.seen = sights(l.req.Directory, p.repository)
	if err := l.apartFromSignIns(p.repository, home); err != nil {
		return p, err
	}
	l.stage("look")
	if err := l.findTool(ctx, home); err != nil {
		return p, err
	}
	if p.policy, err = l.n.policy(ctx, home, l.caller.UID, p.repository, l.tool.rules(), given(l.req)); err != nil {
		return p, err
	}
	l.stage("policy")
	p.limits, p.limitsFrom = limits(p.policy.Limits, l.n.o.Settings)
	if err := l.choose(ctx, &p); err != nil {
		return p, err
	}
	l.stage("verdict")
	return p, nil
}

// plan says what will be made. It makes nothing either.
func (l *life) plan(ctx context.Context, p prepared) (_ prepared, err error) {
	if p.sandboxed {
		err = l.planSandbox(ctx, l.n.home(l.req.Env), &p)
	} else {
		err = l.planProcess(&p)
	}
	if wall := p.limits.Wall; wall > 0 {
		p.facts = append(p.facts, sandbox.Fact{Name: "time limit", Strength: sandbox.Held, Detail: spelled(wall) + ", then SIGTERM, and the end of everything inside " + spelled(l.n.o.Times.HangUp) + " later"})
	}
	l.stage("plan")
	return p, err
}

// checkRequest refuses what no client of ours sends.
func checkRequest(r api.RunRequest) error {
	bad := func(format string, args ...any) error {
		return fault.Usage(format, args...).WithCode("bad-request")
	}
	switch {
	case !filepath.IsAbs(r.Directory):
		return bad("the working directory %q is not absolute", r.Directory)
	case r.Repository != "" && !filepath.IsAbs(r.Repository):
		return bad("the repository %q is not absolute", r.Repository)
	case len(r.Command) == 0 && r.Tool == "":
		return bad("there is no command to run")
	case r.Headless != "" && r.Tool == "":
		return bad("there is no tool for the prompt")
	case len(r.Command) > 0 && r.Command[0] == "" && r.Tool == "":
		return fault.Usage("the command is an empty word").WithCode("bad-request").WithHint("a variable that holds nothing looks like this")
	case r.RecordTerminal && r.Terminal == nil:
		return fault.Usage("there is no terminal to record").WithCode("no-terminal").WithHint("--tty gives the command one")
	}
	switch capability.Engine(r.Engine) {
	case "", capability.Auto, capability.Native, capability.Docker, capability.Off:
		return nil
	}
	return fault.Usage("unknown engine %q", r.Engine).WithHint("engines: auto, native, docker, off")
}

// look finds the repository and refuses one that would hand the person's home
// or the node's own files to a session.
func (n *Node) look(home, directory, repository string) (repo.Repository, error) {
	if repository == "" {
		repository = directory
	}
	r, err := repo.Look(repository)
	if err != nil {
		return r, err
	}
	if err := host.Places(home, n.environ, n.private(home)).Allow(r); err != nil {
		return r, err
	}
	return r, r.AddHostConfig(repo.HostConfigs(home, "")...)
}

// apartFromSignIns refuses a repository in which a sign-in of the caller's lies,
// by a link or a variable: whatever the mode, the session could read it and end
// it.
func (l *life) apartFromSignIns(r repo.Repository, home string) error {
	files := signin.Files(l.n.signInTools(home), l.n.signInWorld(home, l.req.SignIns))
	return repo.Places{SignIns: files}.Allow(r)
}

// home is the person's home: the one that HOME of the caller names, where it
// is the person's own directory, else that of passwd. Under sudo HOME is
// often somebody else's.
func (n *Node) home(env []string) string {
	for _, kv := range env {
		dir, ok := strings.CutPrefix(kv, "HOME=")
		if ok && filepath.IsAbs(dir) && ownDirectory(dir, n.uid) {
			return filepath.Clean(dir)
		}
	}
	return n.user.HomeDir
}

// private are the node's own file and directories, and those of profiles: what they
// name as commands runs outside.
func (n *Node) private(home string) []string {
	p := n.o.Paths
	own := append([]string{p.Config, p.State, p.Runtime}, p.Tools(home)...)
	if n.o.Deputy != nil {
		own = append(own, n.o.Deputy.Private...)
	}
	return own
}

func given(r api.RunRequest) *effective.Text {
	if r.PolicyName == "" {
		return nil
	}
	return &effective.Text{Name: r.PolicyName, Source: []byte(r.Policy)}
}

// choose picks the engine from what was asked, what the policy says and the
// verdict of this start. A session falls back to an ordinary process on a
// negative verdict only, never because a start failed.
func (l *life) choose(ctx context.Context, p *prepared) error {
	asked := capability.Engine(l.req.Engine)
	if asked == "" {
		asked = l.n.configured()
	}
	required := p.policy.Sandbox == policy.SandboxRequired
	if asked == capability.Off {
		if required {
			return fault.CannotRun("the policy requires a sandbox, engine off has none").WithHint("run without --engine off, or set node.sandbox.engine")
		}
		return l.ordinary(p, "not sandboxed: engine off")
	}
	select {
	case <-l.n.examined:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	_, v := capability.Decide(l.n.report.Checks, asked)
	switch {
	case v.Able:
		p.engine, p.sandboxed = l.n.o.Engines[v.Chosen], true
		if p.engine == nil {
			return fault.CannotRun("engine %s is not part of this build", v.Chosen)
		}
		return nil
	case p.policy.Sandbox == policy.SandboxPreferred:
		return l.ordinary(p, "not sandboxed: "+v.String())
	}
	doctor := "mojoup-node doctor"
	if l.req.Engine != "" {
		doctor += " --engine " + string(asked)
	}
	return fault.CannotRun("%s", v.String()).WithHint("`%s` says how to mend it", doctor)
}

// ordinary makes the session a process like any other, with a warning wherever
// it is listed.
func (l *life) ordinary(p *prepared, notice string) error {
	if l.req.WholeEnv == nil {
		return fault.CannotRun("an ordinary process needs your whole environment").WithCode(api.CodeEnvironment)
	}
	p.engine, p.sandboxed = l.n.o.Engines["process"], false
	p.notices = append(p.notices, notice)
	return nil
}

// planSandbox makes the plan of a sandboxed session.
func (l *life) planSandbox(ctx context.Context, home string, p *prepared) (err error) {
	n := l.n
	if err := p.repository.AddPolicy(p.policy.Protect, p.policy.Hide); err != nil {
		return err
	}
	hidden := n.hideSockets(&p.repository)
	facts, err := host.Gather(ctx, &n.trust, home, slices.Concat(n.environ, l.req.Env))
	if err != nil {
		return fmt.Errorf("looking at this machine: %w", err)
	}
	if p.authority, err = leafcert.New(string(l.id)); err != nil {
		return fmt.Errorf("making the session's certificate authority: %w", err)
	}
	standIns, signIns, logins, err := l.giveSecrets(ctx, p)
	if err != nil {
		return err
	}
	name, email := p.repository.Author(repo.HostConfigs(home, "")...)
	person := host.Person(l.caller.UID, l.caller.GID, nil)
	person.Home = home
	made, err := plan.Make(plan.Input{
		ID: string(l.id), Repository: p.repository, User: person, Host: facts,
		Env: slices.Concat(l.tool.carried(l.req.Env), signIns, standIns), Tool: l.tool.wants(home, p.repository.Top, standIns), Author: plan.Author{Name: name, Email: email}, Logins: logins, Direct: p.policy.Direct(), SessionCA: p.authority.CertificatePEM(),
		Limits: p.limits, Private: n.private(home), WorkDir: n.o.Paths.Empty(), Image: p.engine.Name() == string(capability.Docker),
	})
	if err != nil {
		return err
	}
	p.spec, p.facts = made.Spec, made.Facts
	p.spec.Mounts = append(p.spec.Mounts, l.signInFiles(person.Home)...)
	p.stood = standing(p.spec, p.repository.Hide)
	l.has.Store(bound(p.spec)) // before it looks, see reading.go
	if err := l.apartFromSecrets(ctx, home, p.spec); err != nil {
		return err
	}
	p.notices = append(p.notices, hidden...)
	p.command = sandbox.Command{Argv: l.argv(true), Dir: made.Dir, TTY: size(l.req.Terminal)}
	for _, note := range p.policy.Notes {
		p.notices = append(p.notices, note.String())
	}
	p.notices = append(p.notices, effective.NotYet(p.policy)...)
	p.notices = append(p.notices, toolNotices(p.policy, l.req.Tool)...)
	// What the policy does not give is news at every start; what the machine
	// does not have is for who looks.
	for _, line := range p.notices {
		l.client.Notice(line)
	}
	p.notices = append(p.notices, made.Notes...)
	return nil
}

// giveSecrets gives the session the keys of its policy and its tool and the
// sign-ins, as stand-ins in its environment. The tool's keys of the last resort
// are for where there is no sign-in.
func (l *life) giveSecrets(ctx context.Context, p *prepared) (standIns, signIns []string, logins []plan.Login, err error) {
	if standIns, logins, err = l.giveKeys(ctx, p); err != nil {
		return nil, nil, nil, err
	}
	toolKeys, err := l.giveToolKeys(ctx, p, standIns, false)
	if err != nil {
		return nil, nil, nil, err
	}
	standIns = append(standIns, toolKeys...)
	if signIns, err = l.giveSignIns(ctx, p, standIns); err != nil || len(l.lent) > 0 {
		return standIns, signIns, logins, err
	}
	toolKeys, err = l.giveToolKeys(ctx, p, standIns, true)
	return append(standIns, toolKeys...), signIns, logins, err
}

// planProcess is what is left of a plan without a sandbox.
func (l *life) planProcess(p *prepared) error {
	p.spec = sandbox.Spec{
		ID: string(l.id), Identity: sandbox.Identity{UID: l.caller.UID, GID: l.caller.GID},
		Env: slices.Concat(l.req.WholeEnv, l.req.Env, []string{process.Variable + "=" + string(l.id)}),
	}
	p.command = sandbox.Command{Argv: l.argv(false), Dir: l.req.Directory, TTY: size(l.req.Terminal)}
	for _, line := range p.notices {
		l.client.Notice("warning: " + line)
	}
	return nil
}
