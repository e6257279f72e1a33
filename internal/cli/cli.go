// Package cli promises the command tree: it parses what a person or script
// typed, calls one function of the parts, and prints the answer.
//
// The answer goes to stdout and the conversation to stderr. With --json stdout
// holds exactly one document, also where the command fails. Exit codes: 0
// done, 1 a check or verdict is negative, 2 wrong usage, 3 could not find out,
// 125 the node could not run the session, 126 and 127 as a shell, else the
// command's own.
package cli

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
)

// Process is what a command sees of the process that it runs in.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	Getenv         func(string) string
	Environ        func() []string
	Executable     func() (string, error)
	UID            int
}

// ThisProcess is the real one.
func ThisProcess() Process {
	return Process{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		Getenv: os.Getenv, Environ: os.Environ, Executable: os.Executable, UID: os.Getuid(),
	}
}

// exitCode ends a command with a code and nothing more to say.
type exitCode int

func (e exitCode) Error() string { return "" }

// Main runs one command line and returns the process's exit code.
func Main(args []string, p Process) int {
	out := &answer{w: p.Stdout}
	p.Stdout = out
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := newRoot(p)
	root.SetArgs(args)
	cmd, err := root.ExecuteContextC(ctx)
	if _, coded := errors.AsType[exitCode](err); out.err != nil && (err == nil || coded) {
		err = unwritten(out.err)
	}
	return finish(p, cmd, err)
}

// finish turns a command's error into words on stderr, a document on stdout
// where one was asked for, and an exit code.
func finish(p Process, cmd *cobra.Command, err error) int {
	if code, ok := errors.AsType[exitCode](err); ok {
		return int(code)
	}
	if err == nil {
		return fault.ExitDone
	}
	f := fault.As(err)
	say := talk{w: p.Stderr}
	say.line("%s", f.Sentence)
	if f.Hint != "" {
		say.hint("%s", f.Hint)
	}
	if wantsJSON(cmd) {
		_ = printJSON(p.Stdout, map[string]any{"error": f.Problem()})
	}
	return f.Exit
}

// unwritten says that stdout did not take the answer.
func unwritten(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		err = p.Err
	}
	return fault.Unknown("the answer could not be written: %w", err).WithHint("look at where the output goes to")
}

// written reports whether stdout took everything so far.
func written(p Process) error {
	if a, ok := p.Stdout.(*answer); ok {
		return a.err
	}
	return nil
}

// answer remembers that stdout could not be written, so that a full disk is
// not taken for success.
type answer struct {
	w   io.Writer
	err error
}

func (a *answer) Write(b []byte) (int, error) {
	n, err := a.w.Write(b)
	if err != nil && a.err == nil {
		a.err = err
	}
	return n, err
}

// newRoot builds the whole tree.
func newRoot(p Process) *cobra.Command {
	root := &cobra.Command{
		Use:   "mojoup-node",
		Short: "run coding agents in sandboxes of their own",
		Long: `mojoup-node runs each coding-agent session in a sandbox of its own: it reaches
only what the policy allows, works in the repository at its own path, and
leaves nothing behind.

Exit codes: 0 done, 1 a check or verdict is negative, 2 wrong usage, 3 could not
find out, 125 the node could not run the session, 126 and 127 as a shell, else
the command's own (128 and the number for a signal).`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		// What is asked for and holds nothing is never as if it had not been asked
		// for: a policy that was to narrow a session would not.
		PersistentPreRunE: func(cmd *cobra.Command, _ []string) error { return noEmptyFlag(cmd) },
		SilenceErrors:     true,
		SilenceUsage:      true,
	}
	root.SetIn(p.Stdin)
	root.SetOut(p.Stdout)
	root.SetErr(p.Stderr)
	root.SetFlagErrorFunc(badFlag)
	root.SetHelpCommand(newHelp(p))
	root.CompletionOptions.DisableDefaultCmd = true
	root.Version = buildVersion()
	root.SetVersionTemplate("mojoup-node {{.Version}}\n")
	root.AddCommand(
		newDoctor(p), newStatus(p), newConfig(p), newServe(p), newRun(p), newSession(p),
		newPolicy(p), newSecret(p), newSignIn(p), newTool(p), newImage(p), newCleanup(p), newBench(p), newVersion(p), newCompletion(p), newDeputy(p),
	)
	return root
}

// group is a command that only holds others.
func group(use, short string, children ...*cobra.Command) *cobra.Command {
	g := &cobra.Command{Use: use, Short: short, Args: noArgs, RunE: func(cmd *cobra.Command, _ []string) error {
		return fault.Usage("%s needs a command", called(cmd)).WithHint("see `%s --help`", cmd.CommandPath())
	}}
	g.AddCommand(children...)
	return g
}

// addJSON gives a reading command its --json.
func addJSON(cmd *cobra.Command) { cmd.Flags().Bool("json", false, "answer with one JSON document") }

func wantsJSON(cmd *cobra.Command) bool {
	if cmd == nil {
		return false
	}
	on, err := cmd.Flags().GetBool("json")
	return err == nil && on
}
