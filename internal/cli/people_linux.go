package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/internal/people"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// shares is for how many people's worth of waiting sessions there is room at
// the door of a system node.
const shares = 64

// hide is [people.Hide], which other systems have not.
func hide() error { return people.Hide() }

// serveSystem serves several people.
func serveSystem(ctx context.Context, p Process) error {
	if err := outside(p); err != nil {
		return err
	}
	if p.UID != 0 {
		return fault.Usage("only root can serve other people").WithHint("`mojoup-node serve` is your own node")
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	collectLess(p)
	lock, err := node.Hold(h.paths)
	if err != nil {
		return alreadyRunning(err)
	}
	defer lock.Close()
	ln, err := h.systemSocket()
	if err != nil {
		return err
	}
	defer ln.Close()
	door, err := node.NewDoor(h.settings, shares)
	if err != nil {
		return err
	}
	o := h.peopleOptions(slog.New(slog.NewJSONHandler(p.Stderr, nil)))
	o.Listener, o.Door, o.Kind = ln, door, node.Slots
	o.Allow = func() ([]string, error) {
		now, err := origin(p, h.paths).Load()
		if err != nil {
			return nil, err
		}
		return now.List(config.PeopleAllow), nil
	}
	following := origin(p, h.paths).Follow(h.settings)
	o.Live = func() ([]string, error) {
		now, err := following.Now()
		return variables(now, atOnce), err
	}
	o.Status, o.Checks = h.systemStatus(ctx, h.logPlace(p))
	o.Page = console.OpenPage(h.settings.String(config.ConsoleListen))
	o.Ready = func() {
		tellReady(p, readyWord)
		_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
	}
	b, err := people.New(o)
	if err != nil {
		return err
	}
	if err := h.paths.Enrol(); err != nil {
		o.Logger.Warn("who looks for what dead nodes left will not find this one", "err", err)
	}
	err = b.Serve(ctx)
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	if left, lerr := os.ReadDir(filepath.Join(h.paths.State, config.UnfinishedName)); lerr == nil && len(left) == 0 {
		return errors.Join(err, h.paths.Leave())
	}
	return err
}

// systemSocket is systemd's or one of our own, to which everybody may connect:
// who may use the node is told by who they are.
func (h here) systemSocket() (net.Listener, error) {
	if ln, err := activated(); ln != nil || err != nil {
		return ln, err
	}
	return node.Listen(h.paths, 0o666)
}

// peopleOptions are those that do not depend on whether a broker serves.
func (h here) peopleOptions(log *slog.Logger) people.Options {
	o := people.Options{
		Socket: h.paths.Socket(), State: h.paths.State, Runtime: h.paths.Runtime, Config: h.paths.Config,
		Private: []string{h.paths.Config, h.paths.State, h.paths.Runtime}, Linger: node.LingerFor, Logger: log,
	}
	o.Settings = variables(h.settings, func(s config.Setting) bool { return s.Key != config.PeopleAllow && !atOnce(s) })
	return o
}

// atOnce reports whether a setting takes effect in deputies that serve.
func atOnce(s config.Setting) bool { return strings.HasPrefix(s.Key, config.SignInMode) }

// variables are the settings that somebody has set, as variables.
func variables(c *config.Config, want func(config.Setting) bool) (out []string) {
	for _, v := range c.Values() {
		if v.Source.Kind != config.FromDefault && want(v.Setting) {
			out = append(out, v.Setting.Variable()+"="+v.Text)
		}
	}
	return out
}

// systemStatus is what root is told of the node itself, with a verdict on the
// machine that is found out once, and with what it rests on.
func (h here) systemStatus(ctx context.Context, log string) (func() api.Status, func() api.Checks) {
	since := time.Now()
	var found atomic.Pointer[capability.Report]
	go func() {
		report := capability.Examine(ctx, capability.ThisHost(capability.Options{}), h.engine())
		found.Store(&report)
	}()
	status := func() api.Status {
		s := api.Status{
			Node:    api.Node{Running: true, PID: os.Getpid(), Since: since, Version: buildVersion(), Socket: h.paths.Socket(), Log: log, System: true},
			Verdict: api.Verdict{Engine: string(h.engine()), Sentence: node.StillExamined, Pending: true},
		}
		if r := found.Load(); r != nil {
			s.Verdict = node.ShowVerdict(r.Verdict, h.settings.Bool(config.RolesSandbox))
		}
		if h.engine() == capability.Docker {
			s.Verdict = api.Verdict{Engine: string(capability.Docker), Sentence: gatewaysOfTheirOwn}
		}
		return s
	}
	return status, func() api.Checks {
		if r := found.Load(); r != nil {
			return node.ShowChecks(*r)
		}
		return api.Checks{}
	}
}

// gatewaysOfTheirOwn is all that root can be told: OpenShell makes no sandbox for
// user 0.
const gatewaysOfTheirOwn = "Whether agents can be sandboxed is told to each person: their OpenShell gateways are their own"

// tidyPeople undoes what a system node left, of everybody.
func tidyPeople(ctx context.Context, p Process, h here) (did, left []string, err error) {
	lock, err := node.Hold(h.paths)
	if errors.Is(err, node.ErrRunning) {
		return nil, nil, nil // one that has just begun does it
	}
	if err != nil {
		return nil, nil, err
	}
	defer lock.Close()
	return people.TidyUp(ctx, h.peopleOptions(slog.New(slog.NewJSONHandler(p.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))))
}

func newDeputy(p Process) *cobra.Command {
	return &cobra.Command{
		Use: people.Command, Short: "serve one person as a part of a system node", Args: noArgs, Hidden: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return deputy(cmd.Context(), p) },
	}
}

// exitLeft is the exit code of a deputy that could not undo everything.
const exitLeft = exitCode(people.ExitLeft)

// deputy is one person's part of a system node: a node as any other, but for
// where it gets its clients and its slots from.
func deputy(ctx context.Context, p Process) error {
	d, err := people.Join()
	if err != nil {
		return fault.Usage("%w", err).WithHint("`mojoup-node serve --system` is the node that starts them")
	}
	collectLess(p)
	err = serveAs(ctx, p, d)
	if err != nil && !errors.Is(err, exitLeft) {
		d.Failed(fault.As(err).Problem())
	}
	return err
}

// followTold returns the settings that a deputy is told, as they are now.
func followTold(d *people.Deputy) func() (*config.Config, error) {
	var mu sync.Mutex // guards what follows
	var of []string
	var last *config.Config
	return func() (*config.Config, error) {
		mu.Lock()
		defer mu.Unlock()
		live := d.Live()
		if last != nil && slices.Equal(of, live) {
			return last, nil
		}
		now, err := config.Origin{Environ: slices.Concat(d.Hello.Settings, live)}.Load()
		if err == nil {
			of, last = live, now
		}
		return last, err
	}
}

func serveAs(ctx context.Context, p Process, d *people.Deputy) error {
	follow := followTold(d)
	settings, err := follow()
	if err != nil {
		return err
	}
	h := here{settings: settings, paths: config.Paths{System: true, Config: d.Hello.Config, State: d.Hello.State, Runtime: d.Hello.Runtime}}
	log := slog.New(slog.NewJSONHandler(p.Stderr, nil))
	engines, err := engines(h, log)
	if err != nil {
		return err
	}
	ctx, cancel := d.Context(ctx)
	defer cancel()
	if d.Hello.Tidy {
		done, left, err := node.CleanUp(ctx, h.paths, engines)
		if err == nil {
			d.Tidied(done, left)
		}
		return err
	}
	n, err := node.New(node.Options{
		Paths: h.paths, Settings: settings, Follow: follow, Version: buildVersion(), Logger: log, Engines: engines,
		Examine: func(ctx context.Context, e capability.Engine) capability.Report {
			return h.examine(ctx, e, false) // as the person: the gateway is theirs
		},
		Linger: d.Hello.Linger, Listener: d.Listener(), Ready: d.Ready,
		Deputy: &node.Deputy{
			Door: d, Socket: d.Hello.Socket, Private: d.Hello.Private, Retire: d.Retire,
			Visitors: d.Visitors(), Page: d.Hello.Page, PagePorts: d.Hello.PagePorts,
		},
	})
	if err != nil {
		return err
	}
	for err = n.Serve(ctx); errors.Is(err, node.ErrRunning); err = n.Serve(ctx) {
		// A predecessor whose broker has died is still ending its sessions.
		if err := node.WaitGone(ctx, h.paths); err != nil {
			return err
		}
	}
	switch {
	case errors.Is(err, people.ErrTold), errors.Is(err, people.ErrBrokerGone), err == nil:
	default:
		return err
	}
	if n.Left() {
		return exitLeft
	}
	return nil
}
