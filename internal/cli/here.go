package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/sandbox/process"
)

// here is what a command knows of the node that it is about.
type here struct {
	paths    config.Paths
	settings *config.Config
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
		return fault.CannotRun("finding this program to start a node: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fault.CannotRun("starting a node: %w", err)
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
		return fault.CannotRun("starting a node: %w", err)
	}
	_ = cmd.Process.Release()
	return h.waitReady(ctx, r)
}

func (h here) waitReady(ctx context.Context, r *os.File) error {
	if err := r.SetReadDeadline(time.Now().Add(startWithin)); err != nil {
		return fault.CannotRun("waiting for the node: %w", err)
	}
	interrupted := context.AfterFunc(ctx, func() { _ = r.SetReadDeadline(time.Now()) })
	defer interrupted()
	var word [1024]byte
	n, err := r.Read(word[:])
	switch said := strings.TrimSpace(string(word[:n])); {
	case said == readyWord:
		return nil
	case said != "":
		return fault.CannotRun("the node did not start: %s", said).WithHint("its log: %s", h.logPath())
	case ctx.Err() != nil:
		return fault.CannotRun("interrupted while the node started")
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fault.CannotRun("the node did not answer within %s", startWithin).WithHint("its log: %s", h.logPath())
	}
	return fault.CannotRun("the node ended while starting").WithHint("its log: %s", h.logPath())
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

// noNode says what to do where a question needs a running node.
func noNode(err error) error {
	if errors.Is(err, client.ErrNotRunning) {
		return fault.Unknown("%w", err).WithCode("not-running").WithHint("start it with `mojoup-node serve`")
	}
	return err
}
