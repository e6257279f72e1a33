package cli

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

type execOptions struct {
	tty, noTTY bool
	dir        string
	env        []string
	view       viewOptions
}

func newSessionExec(p Process) *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] ID -- COMMAND [ARGUMENT…]",
		Short: "run one more command in a running session",
		Long: `Run another command in the sandbox of a session that runs, sealed as the
session's own command is: the same files, the same way out, the same limits.
Terminal, signals, window size and exit code pass through. It ends with its
client, and with the session at the latest.`,
		Example: "  mojoup-node session exec 5f1c2e -- git status\n  mojoup-node session exec 5f1c2e -- bash",
		Args:    withSessionID(atLeast("a session id", "a command")),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := notBoth(cmd, "tty", "no-tty"); err != nil {
				return err
			}
			return execute(cmd.Context(), p, o, args[0], args[1:])
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.tty, "tty", false, "give the command a terminal even where stdin or stdout is none")
	f.BoolVar(&o.noTTY, "no-tty", false, "give the command plain streams even on a terminal")
	f.StringVar(&o.dir, "dir", "", "the working `directory` inside, where it is not the session's")
	f.StringArrayVar(&o.env, "env", nil, "set a variable inside, as `KEY=VALUE`; may be given more than once")
	o.view.clipboardFlag(f)
	f.SetInterspersed(false)
	return cmd
}

func execute(ctx context.Context, p Process, o execOptions, id string, argv []string) error {
	if err := outside(p); err != nil {
		return err
	}
	req, err := o.request(p, argv)
	if err != nil {
		return err
	}
	h, err := look(p)
	if err != nil {
		return err
	}
	v, err := o.view.open(p, req.Terminal != nil, false)
	if err != nil {
		return err
	}
	defer v.close()
	ended, err := h.client().Exec(context.WithoutCancel(ctx), id, req, v.streams())
	v.close()
	return v.finish(ended, noNode(err), id)
}

func (o execOptions) request(p Process, argv []string) (api.ExecRequest, error) {
	if argv[0] == "--" { // it stands after the id, where flags have ended
		argv = argv[1:]
	} else if strings.HasPrefix(argv[0], "-") {
		return api.ExecRequest{}, fault.Usage("%q stands behind the session's id, where the command begins", argv[0]).
			WithHint("flags stand before the id: mojoup-node session exec [flags] ID -- COMMAND")
	}
	req := api.ExecRequest{Command: argv, Terminal: terminalFor(p, o.tty, o.noTTY)}
	if len(argv) == 0 || argv[0] == "" {
		return req, fault.Usage("session exec needs a command after --").WithHint("for example `mojoup-node session exec ID -- git status`")
	}
	if o.dir != "" {
		if !filepath.IsAbs(o.dir) {
			return req, fault.Usage("--dir %q is not an absolute path", o.dir).WithHint("begin it with /: it is a directory inside")
		}
		req.Directory = filepath.Clean(o.dir)
	}
	if req.Terminal != nil {
		for _, name := range []string{"TERM", "COLORTERM"} {
			if v := p.Getenv(name); v != "" {
				req.Env = append(req.Env, name+"="+v)
			}
		}
	}
	req.Env = append(req.Env, o.env...)
	return req, checkVariables(o.env)
}
