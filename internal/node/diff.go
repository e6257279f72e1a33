package node

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/host"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/internal/session"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Diff writes what has changed in a session's work tree since it began, as git
// says it. A session may have written the tree, and git obeys what lies in it:
// so git runs in a sandbox of its own, to which everything is read-only and
// which nobody serves a way out.
func (n *Node) Diff(ctx context.Context, c console.Caller, id string, req api.DiffRequest, s console.Stream) api.Ended {
	if err := n.mayAsk(c); err != nil {
		return refused(err)
	}
	repository, head, err := n.began(ctx, c, id)
	if err == nil {
		var code int
		if code, err = n.inQuarantine(ctx, c, repository, diffCommands(head, req), s); err == nil {
			return api.Ended{Code: code}
		}
	}
	return refused(err)
}

// began is where a session works, and the commit at which it began.
func (n *Node) began(ctx context.Context, c console.Caller, id string) (repository, head string, err error) {
	sid, err := n.called(ctx, id)
	if err != nil {
		return "", "", err
	}
	row, err := n.find(ctx, sid)
	if err != nil {
		return "", "", err
	}
	known := false
	err = n.Events(ctx, c, id, false, func(events []api.Event) error {
		for _, e := range events {
			if e.Kind == api.EventHead {
				known, head = true, e.Text
			}
		}
		return nil
	})
	if err == nil && !known {
		err = fault.Negative("it is not known at which commit session %s began", id).
			WithHint("it had no git repository, or its node was killed; `git diff` compares with a commit of your choice")
	}
	return row.Repository, head, err
}

// emptyTree is what a repository without a commit is compared with: the id of
// the tree without entries, the same in every repository that uses SHA-1.
const emptyTree = "4b825dc642cb6eb9a060e54bf8d69288fbee4904"

// noCommit is what stands for the commit of a repository that had none.
const noCommit = "none"

// quietGit is git with all off that could make it run something else, which
// would find nothing to harm.
var quietGit = []string{"git", "--no-optional-locks", "--no-pager", "-c", "safe.directory=*", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=true"}

// diffCommands are what git is asked.
func diffCommands(head string, req api.DiffRequest) [][]string {
	if head == noCommit {
		head = emptyTree
	}
	diff := []string{"diff", "--no-ext-diff", "--no-textconv", "--no-color", "--ignore-submodules=none"}
	if req.Stat {
		diff = append(diff, "--stat=100")
	}
	return [][]string{
		slices.Concat(quietGit, diff, []string{head, "--"}),
		slices.Concat(quietGit, []string{"ls-files", "--others", "--exclude-standard"}),
	}
}

// quarantineFor bounds how long git may take.
const quarantineFor = 2 * time.Minute

// inQuarantine runs commands in a sandbox of their own, in which a repository
// and everything else is read-only. The last command's output is what is not
// tracked: it goes to stderr, each name with words before it.
func (n *Node) inQuarantine(ctx context.Context, c console.Caller, repository string, commands [][]string, s console.Stream) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, quarantineFor)
	defer cancel()
	at, err := n.seats.looking(ctx, s.Notice)
	if err != nil {
		return 0, err
	}
	defer at.leave()
	q, err := n.openQuarantine(ctx, c, repository, at)
	if err != nil {
		return 0, err
	}
	defer q.close(ctx)
	if err := s.Started(api.Started{}); err != nil {
		return 0, err
	}
	for i, argv := range commands {
		stdio := sandbox.Stdio{Stdout: s.Stdout(), Stderr: s.Stderr()}
		if i > 0 {
			stdio.Stdout = &untracked{to: s}
		}
		code, err := run(ctx, q.box, sandbox.Command{Argv: argv, Dir: repository}, stdio)
		if err != nil || code != 0 {
			return code, err
		}
	}
	return 0, nil
}

func run(ctx context.Context, box sandbox.Sandbox, cmd sandbox.Command, stdio sandbox.Stdio) (int, error) {
	proc, err := box.Exec(ctx, cmd, stdio)
	if err != nil {
		return 0, execFailed(err, nil, "")
	}
	exit, err := proc.Wait(ctx)
	return exit.Code, err
}

// sandboxing is the engine that sandboxes here, whatever the session had: this
// is never run without one.
func (n *Node) sandboxing(ctx context.Context) (sandbox.Engine, error) {
	select {
	case <-n.examined:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	_, v := capability.Decide(n.report.Checks, capability.Native)
	if !v.Able {
		return nil, fault.CannotRun("git is run in a sandbox only, because a session may have written what it obeys: %s", v.String())
	}
	return n.o.Engines["native"], nil
}

// quarantine is a sandbox for git alone. It leaves nothing outside and has no
// limits that would: so there is nothing to write down before.
type quarantine struct {
	n          *Node
	box        sandbox.Sandbox
	repository string
}

// openQuarantine makes the sandbox of who has a seat.
func (n *Node) openQuarantine(ctx context.Context, c console.Caller, repository string, _ *gitSeat) (*quarantine, error) {
	spec, err := n.quarantineSpec(ctx, c, repository)
	if err != nil {
		return nil, err
	}
	engine, err := n.sandboxing(ctx)
	if err != nil {
		return nil, err
	}
	box, err := bounded(ctx, n.o.Times.Patience, func() (sandbox.Sandbox, error) { return engine.Prepare(ctx, spec) }, func(late sandbox.Sandbox) {
		_ = late.Remove(context.WithoutCancel(ctx))
	})
	if err != nil {
		return nil, cannotStart(err)
	}
	return &quarantine{n: n, box: box, repository: repository}, nil
}

// close takes the sandbox down, whatever has become of ctx.
func (q *quarantine) close(ctx context.Context) {
	down, cancel := context.WithTimeout(context.WithoutCancel(ctx), q.n.o.Times.Remove)
	defer cancel()
	if ln := q.box.Listener(); ln != nil {
		_ = ln.Close()
	}
	if err := q.box.Remove(down); err != nil {
		q.n.log.Error("removing a sandbox for git", "repository", q.repository, "err", err)
	}
}

// ask runs one command, which must end well, and returns the beginning of what
// it writes, as much as was to be had.
func (q *quarantine) ask(ctx context.Context, argv []string, stdin string, most int) ([]byte, error) {
	out, said := &beginning{most: most}, &beginning{most: 1 << 10}
	code, err := run(ctx, q.box, sandbox.Command{Argv: argv, Dir: q.repository}, sandbox.Stdio{Stdin: strings.NewReader(stdin), Stdout: out, Stderr: said})
	if err == nil && code != 0 {
		err = fmt.Errorf("%s ended with %d: %q", argv[0], code, said.kept)
	}
	return out.kept, err
}

// beginning keeps so much of what is written, and takes the rest.
type beginning struct {
	most int
	kept []byte
}

func (b *beginning) Write(p []byte) (int, error) {
	b.kept = append(b.kept, p[:min(len(p), b.most-len(b.kept))]...)
	return len(p), nil
}

// quarantineSpec is a sandbox like a session's in this repository, but that
// nothing of the host can be written.
func (n *Node) quarantineSpec(ctx context.Context, c console.Caller, repository string) (sandbox.Spec, error) {
	home := n.home(n.environ)
	r, err := n.look(home, repository, repository)
	if err != nil {
		return sandbox.Spec{}, err
	}
	facts, err := host.Gather(ctx, &n.trust, home, n.environ)
	if err != nil {
		return sandbox.Spec{}, fmt.Errorf("looking at this machine: %w", err)
	}
	id := session.New()
	authority, err := leafcert.New(string(id))
	if err != nil {
		return sandbox.Spec{}, fmt.Errorf("making an authority: %w", err)
	}
	c = n.within(c)
	person := host.Person(c.UID, c.GID, nil)
	person.Home = home
	made, err := plan.Make(plan.Input{
		ID: string(id), Repository: r, User: person, Host: facts, SessionCA: authority.CertificatePEM(),
		Private: n.private(home), WorkDir: n.o.Paths.Empty(),
	})
	if err != nil {
		return sandbox.Spec{}, err
	}
	spec := made.Spec
	spec.Protect, spec.Checks = nil, nil
	for i := range spec.Mounts {
		if spec.Mounts[i].Kind == sandbox.Bind {
			spec.Mounts[i].Access = sandbox.ReadOnly
		}
	}
	spec.Env = append(spec.Env, "GIT_OPTIONAL_LOCKS=0", "GIT_TERMINAL_PROMPT=0", "GIT_PAGER=cat")
	return spec, nil
}

// untracked puts words before each line that git writes.
type untracked struct {
	to   console.Stream
	rest []byte
}

func (u *untracked) Write(p []byte) (int, error) {
	u.rest = append(u.rest, p...)
	for {
		at := slices.Index(u.rest, '\n')
		if at < 0 {
			if len(u.rest) > 64<<10 {
				u.rest = u.rest[:0] // no path is as long
			}
			return len(p), nil
		}
		if _, err := fmt.Fprintf(u.to.Stderr(), "not tracked: %s\n", u.rest[:at]); err != nil {
			return 0, io.ErrClosedPipe
		}
		u.rest = u.rest[at+1:]
	}
}
