package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
)

// here is what a command knows of the node that it is about.
type here struct {
	paths    config.Paths
	settings *config.Config
	// by is the system node that carries this person's sessions, nil where none
	// does or nobody has asked: see [here.served].
	by *api.Status
}

// outside refuses what needs a node where there can be none: on other systems,
// and inside a session, whose own node is out of reach.
func outside(p Process) error {
	if id := p.Getenv(plan.SessionVariable); id != "" {
		return fault.CannotRun("this is inside session %s, which cannot reach its node", id).WithHint("ask in a terminal outside of it")
	}
	return supported()
}

// look reads the settings and finds the node's directories. It makes nothing.
func look(p Process) (here, error) {
	paths, err := config.FindPaths(p.Getenv, p.UID)
	if err != nil {
		return here{}, err
	}
	settings, err := origin(p, paths).Load()
	return here{paths: paths, settings: settings}, err
}

// origin is where this process's settings come from.
func origin(p Process, paths config.Paths) config.Origin {
	return config.Origin{File: paths.Config, Environ: p.Environ()}
}

// served asks whether a system node carries this person's sessions, by settings
// of its own that count instead of this person's.
func (h here) served(ctx context.Context) here {
	if s, err := h.client().Status(ctx); err == nil && s.Node.System && os.Getuid() != 0 {
		h.by = &s
	}
	return h
}

// engine is the one that is configured.
func (h here) engine() capability.Engine {
	if h.by != nil {
		return capability.Engine(h.by.Verdict.Engine)
	}
	return capability.Engine(h.settings.String(config.SandboxEngine))
}

// setImage is the image that is set, "" for none.
func (h here) setImage() string {
	if h.by != nil {
		return h.by.Node.Image
	}
	return h.settings.String(config.SandboxImage)
}

// setGateway is the gateway that is set, "" for none.
func (h here) setGateway() string {
	if h.by != nil {
		return h.by.Node.Gateway
	}
	return h.settings.String(config.OpenShellGateway)
}

// private are the ranges that rules may open: on the node that carries this
// person's sessions, which has the settings of its start, or else on one that
// would be started now.
func (h here) private(ctx context.Context) []netip.Prefix {
	if s, err := h.client().Status(ctx); err == nil {
		return s.Node.Private
	}
	return h.settings.Prefixes(config.NetworkPrivate)
}

// logPath is the log of a node that runs in the background. It lies in the
// runtime directory, which is looked at before anything is opened in it.
func (h here) logPath() string { return h.paths.Log() }

// client asks the node that this person's commands are about: their own, or
// where none runs that of the system.
func (h here) client() *client.Client { return h.own().OrSystem(h.paths.OrSystem) }

// own asks this person's own node only.
func (h here) own() *client.Client { return client.New(h.paths.Socket()) }

// startWithin bounds how long a node that was started in the background may
// take to answer.
const startWithin = 20 * time.Second

// readyVariable names the descriptor on which a node started in the background
// says that it answers, or in one line why it cannot.
const readyVariable = "MOJOUP_READY_FD"

// startNode starts a node in the background that ends by itself, and returns
// once one answers. Two that start at the same moment are settled by the
// node's lock: the loser says that the other one answers.
func (h here) startNode(ctx context.Context, p Process) error {
	if err := h.paths.MakeRuntime(); err != nil {
		return err
	}
	log, err := openLog(h.logPath())
	if err != nil {
		return err
	}
	defer log.Close()
	self, err := p.Executable()
	if err != nil {
		return fault.Unknown("finding this program to start a node: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fault.Unknown("starting a node: %w", err)
	}
	defer r.Close()
	cmd := exec.CommandContext(context.WithoutCancel(ctx), self, "serve", "--linger")
	// Whoever asks from an ordinary process of a session: the node is not of it.
	cmd.Env = slices.DeleteFunc(slices.Clone(p.Environ()), func(kv string) bool { return strings.HasPrefix(kv, process.Variable+"=") })
	cmd.Env = append(cmd.Env, readyVariable+"=3")
	cmd.ExtraFiles = []*os.File{w}
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = "/"
	detach(cmd)
	err = cmd.Start()
	_ = w.Close()
	if err != nil {
		return fault.Unknown("starting a node: %w", err)
	}
	_ = cmd.Process.Release()
	return h.waitReady(ctx, r)
}

func (h here) waitReady(ctx context.Context, r *os.File) error {
	if err := r.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return fault.Unknown("waiting for the node: %w", err)
	}
	interrupted := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer interrupted()
	said, err := bufio.NewReader(io.LimitReader(r, 64<<10)).ReadString('\n')
	var why api.Problem
	switch said = strings.TrimSpace(said); {
	case said == readyWord:
		return nil
	case json.Unmarshal([]byte(said), &why) == nil && why.Sentence != "":
		f := fault.Unknown("the node did not start: %s", why.Sentence)
		if why.Hint == "" {
			return f.WithHint("its log: %s", h.logPath())
		}
		return f.WithHint("%s; its log: %s", why.Hint, h.logPath())
	case ctx.Err() != nil:
		return fault.Unknown("interrupted while the node started")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.Unknown("the node did not answer within %s", startWithin).WithHint("its log: %s", h.logPath())
	}
	return fault.Unknown("the node ended while starting").WithHint("its log: %s", h.logPath())
}

const readyWord = "ready"

// tellReady is the other side: it writes one line to whoever waits and does
// nothing where nobody does.
func tellReady(p Process, line string) {
	if p.Getenv(readyVariable) != "3" {
		return
	}
	f := os.NewFile(3, "ready")
	if f == nil {
		return
	}
	_, _ = fmt.Fprintln(f, strings.ReplaceAll(line, "\n", " "))
	_ = f.Close()
}

// tellWhyNot says why no node starts, with the next step.
func tellWhyNot(p Process, f *fault.Fault) {
	line, err := json.Marshal(api.Problem{Code: f.Code, Sentence: f.Sentence, Hint: f.Hint})
	if err == nil {
		tellReady(p, string(line))
	}
}

// lastLog is the log of the node that last ran in the background, if any did.
func (h here) lastLog() string {
	if info, err := os.Lstat(h.logPath()); err != nil || info.Size() == 0 {
		return ""
	}
	return h.logPath()
}

// logPlace is where the log of a node of this process goes, for people.
func (h here) logPlace(p Process) string {
	switch {
	case p.Getenv(readyVariable) != "":
		return h.logPath()
	case p.Getenv("JOURNAL_STREAM") != "":
		return fmt.Sprintf("the journal: journalctl _PID=%d", os.Getpid())
	}
	return "where it was started, on stderr"
}

// noNode says what to do where a question is about a session that lives.
func noNode(err error) error {
	if errors.Is(err, client.ErrNotRunning) {
		return fault.Unknown("%w, so no session lives", err).WithCode("not-running").
			WithHint("`mojoup-node session list --past` names those that ended, `mojoup-node status` the socket that was asked")
	}
	return err
}
