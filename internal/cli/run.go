package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

type runOptions struct {
	repo, tool, engine, policy string
	headless                   string
	env                        []string
	tty, noTTY, quiet, detach  bool
	record                     bool
	view                       viewOptions
	command                    []string
}

func newRun(p Process) *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run [flags] -- COMMAND [ARGUMENT…]",
		Short: "run one session in a sandbox",
		Long: `Run a command in a sandbox of its own, in the repository around the current
directory. Terminal, signals, window size and exit code pass through. Where no
node runs, one is started in the background; it ends 30 seconds after its last
session.

With --tool the words after -- are arguments of the tool, without it they are
the command. The tool's key is found where you have it, as a secret or in your
environment, or your sign-in to it where the tool keeps that, and the session gets
a stand-in (node.signin.mode.TOOL can ask for more); its own hosts are added to
what the policy allows, where that does not deny them. With --headless the tool
answers one prompt and, since the sandbox holds it, does not ask before it acts.

Inside there is the repository at its own path, the system and your toolchains
read-only, a private home and /tmp, and no way out but what the policy allows:
.mojoup/policy.json of the repository, and --policy.

On a terminal Ctrl-] and then d leaves the session running, as --detach does from
the beginning; otherwise it ends with its client. A session that was left is seen
again by ` + "`session attach`" + `. With --detach there is a terminal only with --tty, else
the command's input has ended.

With --record-terminal what the terminal shows is kept, at most 32 MiB of it,
until the session is forgotten: what is typed where it can be seen as well, but
no password that a program asks for without showing it. Otherwise nothing is.

A session that is ended before its command is (stopped, over its time limit, the
node ended) gets SIGTERM, then 5 seconds; the exit code is 125 and a sentence
says why. Where this command itself goes away, the session gets SIGHUP.`,
		Example: `  mojoup-node run -- make test
  mojoup-node run --tool claude
  mojoup-node run --tool codex --headless 'make the tests pass'
  git log -1 --format=%B | mojoup-node run --no-tty -- wc -w`,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notBoth(cmd, "tty", "no-tty"); err != nil {
				return err
			}
			o.command = args
			return run(cmd.Context(), p, o)
		},
	}
	o.flags(cmd.Flags())
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (o *runOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.repo, "repo", "", "the repository, where it is not the one around the current directory")
	f.StringVar(&o.tool, "tool", "", "run this agent tool: claude, copilot, codex, opencode, kilo, or one of your own")
	f.StringVar(&o.headless, "headless", "", "give the tool this `prompt` and let it work without asking anybody")
	f.StringVar(&o.engine, "engine", "", "use this engine instead of the configured one: auto, native, docker; off is an ordinary process")
	f.StringArrayVar(&o.env, "env", nil, "set a variable inside, as `KEY=VALUE`; may be given more than once")
	f.StringVar(&o.policy, "policy", "", "a policy `file` of your own, as one more layer")
	f.BoolVar(&o.tty, "tty", false, "give the command a terminal even where stdin or stdout is none")
	f.BoolVar(&o.noTTY, "no-tty", false, "give the command plain streams even on a terminal")
	f.BoolVar(&o.detach, "detach", false, "print the session's id once its command runs, and leave it running")
	f.BoolVar(&o.record, "record-terminal", false, "keep what the terminal shows, for session logs --terminal; without it nothing of that is kept")
	o.view.flags(f)
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing but errors")
}

func run(ctx context.Context, p Process, o runOptions) error {
	if err := outside(p); err != nil {
		return err
	}
	req, err := o.request(p)
	if err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return fault.As(err).WithExit(fault.ExitCannotRun)
	}
	t, err := findTool(p, h.paths, o.tool)
	if err != nil {
		return err
	}
	if t != nil {
		_, req.ToolKeys = keyNames(p, t)
	}
	return h.runAs(ctx, p, o, req)
}

// runAs runs a session, and once more with what the node finds missing: the
// whole environment of an ordinary process, a yes to the repository's policy.
func (h here) runAs(ctx context.Context, p Process, o runOptions, req api.RunRequest) error {
	once := func() error {
		var asked error
		err := h.withNode(ctx, p, func() error {
			asked = h.runOnce(ctx, p, o, req)
			return asked
		})
		if err != nil && err != asked { // there was no node to ask
			return fault.As(err).WithExit(fault.ExitCannotRun)
		}
		return err
	}
	err, asked := once(), false
	for f := fault.As(err); f != nil; f = fault.As(err) {
		switch {
		case f.Code == api.CodeEnvironment && req.WholeEnv == nil:
			req.WholeEnv = p.Environ()
		case f.Code == api.CodeKeys && req.Keys == nil:
			keys, err := h.keysOf(ctx, p)
			if err != nil {
				return fault.As(err).WithExit(fault.ExitCannotRun)
			}
			req.Keys = keys
		case f.Code == api.CodeApproval && !asked && isTerminal(p.Stdin) && isTerminal(p.Stderr):
			if err := h.approve(ctx, p, api.ApprovalRequest{Directory: req.Directory, Repository: req.Repository, Env: req.Env}, false); err != nil {
				return fault.As(err).WithExit(fault.ExitCannotRun)
			}
			asked = true
		default:
			return err
		}
		err = once()
	}
	return nil
}

// withNode asks something of the node that runs. Where none does, or the one
// that did is just ending, one is started in the background.
func (h here) withNode(ctx context.Context, p Process, ask func() error) error {
	const tries = 3 // each of them has met a node that was ending
	for try := 1; ; try++ {
		err := ask()
		switch {
		case err == nil || try == tries:
			return err
		case errors.Is(err, client.ErrSystemEnding):
			continue // its part for this person is started anew, or it is gone
		case errors.Is(err, client.ErrNotRunning):
		case errors.Is(err, client.ErrEnding), fault.As(err).Code == api.CodeStopping:
			err := node.WaitGone(ctx, h.paths)
			if errors.Is(err, fs.ErrPermission) {
				continue // the same of a system node that MOJOUP_RUNTIME_DIR names
			}
			if err != nil {
				return fault.Unknown("%w", err)
			}
		default:
			return err
		}
		if err := h.startNode(ctx, p); err != nil {
			return fault.As(err)
		}
	}
}

// request is what the node needs to know: it has neither the caller's
// terminal, environment nor directory.
func (o runOptions) request(p Process) (api.RunRequest, error) {
	if o.headless != "" && o.tool == "" {
		return api.RunRequest{}, fault.Usage("--headless is a prompt for an agent tool").WithHint("name it: --tool claude")
	}
	if len(o.command) == 0 && o.tool == "" {
		return api.RunRequest{}, fault.Usage("run needs a command after --, or --tool").WithHint("for example `mojoup-node run -- make test`")
	}
	req := api.RunRequest{
		Tool: o.tool, Command: o.command, Headless: o.headless, Engine: o.engine,
		Env: plan.CallerEnv(p.Environ()), RecordTerminal: o.record, SignIns: signInPlaces(p),
	}
	if _, err := engineNamed(o.engine); err != nil {
		return req, err
	}
	if err := checkVariables(o.env); err != nil {
		return req, err
	}
	req.Env = append(req.Env, o.env...)
	if o.policy != "" {
		text, err := readNamed(o.policy)
		if err != nil {
			return req, err
		}
		if _, err := policy.Parse(o.policy, text); err != nil {
			return req, fault.CannotRun("%w", err)
		}
		req.PolicyName, req.Policy = o.policy, string(text)
	}
	var err error
	if req.Directory, req.Repository, err = whereabouts(p, o.repo); err != nil {
		return req, fault.As(err).WithExit(fault.ExitCannotRun)
	}
	if req.Repository != "" {
		req.Directory = req.Repository
	}
	if req.Detach = o.detach; req.Detach || o.headless != "" {
		req.Terminal = terminalFor(p, o.tty, !o.tty)
	} else {
		req.Terminal = terminalFor(p, o.tty, o.noTTY)
	}
	return req, nil
}

// whereabouts are the directory that a question is about and the repository
// that --repo names, if any.
func whereabouts(p Process, repo string) (dir, repository string, err error) {
	if filepath.IsAbs(repo) { // then nothing depends on where this process is
		return filepath.Clean(repo), filepath.Clean(repo), nil
	}
	if dir, err = workingDirectory(p); err == nil && repo != "" {
		repository, err = filepath.Abs(repo)
	}
	return dir, repository, err
}

// workingDirectory is where the person is.
func workingDirectory(p Process) (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fault.Unknown("the current directory is gone or cannot be read").WithHint("go to one that is there, or name it with --repo")
	}
	return spelled(p, dir), nil
}

// spelled is the current directory as the person got there, through symbolic
// links, where the shell's PWD names the same directory.
func spelled(p Process, dir string) string {
	pwd := p.Getenv("PWD")
	if !filepath.IsAbs(pwd) || filepath.Clean(pwd) != pwd {
		return dir
	}
	a, errA := os.Stat(pwd)
	b, errB := os.Stat(dir)
	if errA == nil && errB == nil && os.SameFile(a, b) {
		return pwd
	}
	return dir
}

// checkVariables refuses what --env cannot set.
func checkVariables(env []string) error {
	for _, kv := range env {
		if name, _, ok := strings.Cut(kv, "="); !ok || !validName(name) {
			return fault.Usage("--env %q is not KEY=VALUE", kv).WithHint("a name has letters, digits and _ and does not begin with a digit")
		}
	}
	return nil
}

func validName(name string) bool {
	for i, r := range name {
		letter := r == '_' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
		if !letter && (i == 0 || r < '0' || r > '9') {
			return false
		}
	}
	return name != ""
}

// runOnce carries one attempt.
func (h here) runOnce(ctx context.Context, p Process, o runOptions, req api.RunRequest) error {
	v, err := o.view.open(p, req.Terminal != nil && !o.detach, o.quiet)
	if err != nil {
		return err
	}
	defer v.close()
	streams := v.streams()
	var id string
	streams.Started = func(started api.Started) {
		id = started.Session.ID
		if o.detach {
			return
		}
		if started.Terminal && v.keys.String() != "" && v.screen.file != nil {
			v.notice("session " + id + ": " + v.keys.String() + " leaves it running")
		}
		v.started(started)
	}
	if o.detach || o.headless != "" { // tools wait for an input that may come
		streams.Stdin = nil
	}
	ended, err := h.client().Run(context.WithoutCancel(ctx), req, streams)
	v.close()
	if err == nil && ended.Detached && o.detach {
		fmt.Fprintln(p.Stdout, id)
		return nil
	}
	return v.finish(ended, err, id)
}
