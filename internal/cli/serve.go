package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"runtime/debug"
	"time"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/pkg/capability"
)

func newServe(p Process) *cobra.Command {
	var linger time.Duration
	var stop, system bool
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "run the node",
		Long: `Run the node in the foreground until it is told to end (SIGTERM, Ctrl-C); its
sessions end first. Log lines go to stderr as JSON; "mojoup-node status" says where
those of a node are that runs in the background.

With --linger the node ends by itself once it has had no session for a while:
so does the one that "mojoup-node run" starts where none runs. A socket that
systemd made is taken, and systemd is told when the node answers.

With --system, as root, the node serves those people too whom the setting
node.people.allow names. Whatever is done on somebody's files is done by a process
of theirs, which is started when they ask for something and ends 30 seconds after
their last session; slots and memory are shared out among all. Root sees
everybody's sessions and may end them, and everybody else sees their own.

There the settings are root's, of /etc/mojoup: what somebody sets for themselves
counts for a node of their own only, and "config" says so. Secrets, approvals and
past sessions are each person's, and apart from those of a node of their own; tool
profiles, sign-ins and the policies of repositories are the same for both. Commands
ask a node of one's own where one runs, and else the system node.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if stop {
				return stopNode(cmd.Context(), p)
			}
			err := notBoth(cmd, "system", "linger")
			if err == nil && system {
				err = serveSystem(cmd.Context(), p)
			} else if err == nil {
				err = serve(cmd.Context(), p, linger)
			}
			if err != nil {
				tellWhyNot(p, fault.As(err))
			}
			return err
		},
	}
	cmd.Flags().DurationVar(&linger, "linger", 0, "end this long after the last session (30s where no time is given)")
	cmd.Flags().Lookup("linger").NoOptDefVal = node.LingerFor.String()
	cmd.Flags().BoolVar(&system, "system", false, "serve other people too (root only)")
	cmd.Flags().BoolVar(&stop, "stop", false, "end the node that runs, its sessions first, and wait until it is gone")
	return cmd
}

// collectAt is how much a node's heap may grow between two collections, in
// percent. It is small and mostly short-lived (certificates, plans): at Go's
// 100 nearly every start of a session would wait for a collection.
const collectAt = 400

// collectLess makes this process collect as a node does, unless the person has
// said how.
func collectLess(p Process) {
	if p.Getenv("GOGC") == "" {
		debug.SetGCPercent(collectAt)
	}
}

func serve(ctx context.Context, p Process, linger time.Duration) error {
	collectLess(p)
	if err := outside(p); err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	log := slog.New(slog.NewJSONHandler(p.Stderr, nil))
	divide(ctx, p, log)
	engines, err := engines(h, log)
	if err != nil {
		return err
	}
	ln, err := activated()
	if err != nil {
		return err
	}
	n, err := node.New(node.Options{
		Paths: h.paths, Settings: h.settings, Follow: origin(p, h.paths).Follow(h.settings).Now, Version: buildVersion(), Logger: log, Engines: engines,
		Examine: func(ctx context.Context, e capability.Engine) capability.Report {
			return h.examine(ctx, e, false)
		},
		Linger: linger, Listener: ln, Log: h.logPlace(p), Locked: hide,
		Ready: func() {
			tellReady(p, readyWord)
			_, _ = daemon.SdNotify(false, daemon.SdNotifyReady)
		},
	})
	if err != nil {
		return err
	}
	err = n.Serve(ctx)
	if errors.Is(err, node.ErrRunning) && p.Getenv(readyVariable) != "" {
		// Whoever started this one wants a node to answer: the other one, if not
		// yet, or this one, where the other is just ending.
		err = h.answerOrServe(ctx, p, n)
	}
	_, _ = daemon.SdNotify(false, daemon.SdNotifyStopping)
	return alreadyRunning(err)
}

func alreadyRunning(err error) error {
	if errors.Is(err, node.ErrRunning) {
		return fault.Negative("%w", err).WithCode("already-running").WithHint("`mojoup-node status` shows it")
	}
	return err
}

// answerOrServe waits until the node that holds the lock answers, and says so to
// whoever waits, or serves in its place once it has gone.
func (h here) answerOrServe(ctx context.Context, p Process, n *node.Node) error {
	waiting, cancel := context.WithTimeout(ctx, startWithin/2)
	defer cancel()
	again := time.NewTicker(10 * time.Millisecond)
	defer again.Stop()
	for {
		if _, err := h.own().Status(waiting); err == nil {
			tellReady(p, readyWord)
			return node.ErrRunning
		}
		if err := n.Serve(ctx); !errors.Is(err, node.ErrRunning) {
			return err
		}
		select {
		case <-again.C:
		case <-waiting.Done():
			return node.ErrRunning
		}
	}
}

// stopNode ends the node that runs. It asks over the socket: no signal is ever
// sent to a process that was found by a number.
func stopNode(ctx context.Context, p Process) error {
	h, err := look(p)
	if err != nil {
		return err
	}
	if err := h.own().Shutdown(ctx); errors.Is(err, client.ErrNotRunning) {
		talk{w: p.Stderr}.line("%s", err)
		return nil
	} else if err != nil {
		return err
	}
	return node.WaitGone(ctx, h.paths)
}

// activated is the socket that systemd made, or nil.
func activated() (net.Listener, error) {
	lns, err := activation.Listeners()
	if err != nil {
		return nil, fault.Unknown("taking systemd's socket: %w", err)
	}
	switch len(lns) {
	case 0:
		return nil, nil
	case 1:
		return lns[0], nil
	}
	return nil, fault.Usage("systemd gave %d sockets, the node takes one", len(lns))
}

// openLog opens the log of a node that runs in the background. It is begun
// anew once it has grown large: it is for looking at the last trouble. A symbolic
// link is not followed: the log would be written wherever it points.
func openLog(path string) (*os.File, error) {
	const large = 1 << 20
	flags := os.O_WRONLY | os.O_CREATE | os.O_APPEND | noFollow
	if info, err := os.Lstat(path); err == nil && info.Size() > large {
		flags |= os.O_TRUNC
	}
	f, err := os.OpenFile(path, flags, 0o600)
	if err != nil {
		return nil, fault.Unknown("opening the node's log: %w", err)
	}
	return f, nil
}
