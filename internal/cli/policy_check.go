package cli

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/effective"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/internal/tools"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin"
)

func newPolicyCheck(p Process) *cobra.Command {
	var given string
	cmd := &cobra.Command{
		Use:   "check [FILE]",
		Short: "find mistakes in a policy, with line and column",
		Long: `Read a policy (default: .mojoup/policy.json of this repository) and name every
mistake with line, column and what to write instead, and every line that does
less than it looks. Exit code 0 where it would load, 1 where it would not.`,
		Args: atMostOne("a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			top, file, source, err := checkedSource(cmd.Context(), p, given, args)
			if err != nil {
				return err
			}
			c, err := checkPolicy(cmd.Context(), p, top, file, source)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				if err := printJSON(p.Stdout, c); err != nil {
					return err
				}
			} else {
				printChecked(newPen(p), c)
			}
			if len(c.Problems) > 0 {
				return exitCode(fault.ExitNegative)
			}
			return nil
		},
	}
	cmd.Flags().StringVar(&given, "repo", "", "the repository, where it is not the one around the current directory")
	addJSON(cmd)
	return cmd
}

// checkedSource is the file that was named, or the repository's own.
func checkedSource(ctx context.Context, p Process, given string, args []string) (top, file string, source []byte, err error) {
	if len(args) == 1 {
		if source, err = readNamed(args[0]); err != nil {
			return "", "", nil, err
		}
		return "", args[0], source, nil
	}
	r, err := repositoryOf(p, given)
	if err != nil {
		return "", "", nil, err
	}
	top = r.Top
	source, err = repo.ReadPolicy(ctx, top)
	if errors.Is(err, repo.ErrNoPolicy) {
		return "", "", nil, fault.Unknown("%w", err).WithHint("without one nothing is reachable from a session here; name a file to check that one")
	}
	return top, filepath.Join(top, repo.PolicyFile), source, err
}

// checked is what policy check found in one document.
type checked struct {
	File     string           `json:"file"`
	Problems []policy.Problem `json:"problems"`
	Warnings []policy.Warning `json:"warnings"`
	// Notes are lines that load and have no effect, or less than they look.
	Notes []string `json:"notes"`
}

// checkPolicy reads a document and then does with it what a session would:
// a document that no session would take is not without mistakes.
func checkPolicy(ctx context.Context, p Process, top, file string, source []byte) (checked, error) {
	out := checked{File: file, Problems: []policy.Problem{}, Warnings: []policy.Warning{}, Notes: []string{}}
	known, broken := signInsHere(p)
	doc, err := policy.Parse(file, source)
	if err == nil {
		out.Warnings = append(out.Warnings, policy.Lint(doc, toolsOf(known, broken)...)...)
		var e *policy.Effective
		layer := policy.Layer{Name: policy.LayerRepository, Source: file, Document: doc}
		if e, err = effective.Compile(ctx, []policy.Layer{layer}, effective.Input{Find: finder(p, top)}); err == nil {
			for _, n := range e.Notes {
				out.Notes = append(out.Notes, n.String())
			}
			out.Notes = append(out.Notes, effective.NotYet(e)...)
			out.Notes = append(out.Notes, idleSignIns(file, doc, e, known, broken)...)
		}
	}
	if wrong, ok := errors.AsType[*policy.Errors](err); ok {
		out.Problems, err = wrong.Problems, nil
		out.Warnings = slices.DeleteFunc(out.Warnings, func(w policy.Warning) bool { // what is a mistake is said once
			return slices.ContainsFunc(out.Problems, func(x policy.Problem) bool {
				return x.Line == w.Line && x.Column == w.Column && x.Message == w.Message
			})
		})
	}
	return out, err
}

// signInsHere are the sign-ins that a policy may name here, and the profiles that
// cannot be used.
func signInsHere(p Process) (known []signin.Tool, broken []tools.Tool) {
	paths, err := config.FindPaths(p.Getenv, p.UID)
	if err != nil {
		return signin.Builtin(), nil
	}
	dirs := toolDirs(p, paths)
	return dirs.SignIns(), dirs.Broken()
}

// toolsOf are the names of tools whose profiles are there.
func toolsOf(known []signin.Tool, broken []tools.Tool) (names []string) {
	for _, t := range known {
		names = append(names, t.Name)
	}
	for _, t := range broken {
		names = append(names, t.Name)
	}
	return names
}

// idleSignIns are notes about the sign-ins of a policy that no session would get,
// or could use: of those whose token may go nowhere a node says so at each start.
func idleSignIns(file string, d *policy.Document, e *policy.Effective, known []signin.Tool, broken []tools.Tool) (notes []string) {
	note := func(i int, format string, args ...any) {
		at := d.At(fmt.Sprintf("signIns[%d]", i))
		notes = append(notes, fmt.Sprintf("%s:%d:%d: %s", file, at.Line, at.Column, fmt.Sprintf(format, args...)))
	}
	for i, s := range d.SignIns {
		if slices.Index(d.SignIns, s) != i {
			continue // said already
		}
		name := strings.TrimSuffix(s, policy.OptionalSecret)
		if at := slices.IndexFunc(broken, func(t tools.Tool) bool { return t.Name == name }); at >= 0 {
			note(i, "no session starts with %s: %s", name, broken[at].Fault())
			continue
		}
		named := signin.Named(known, name)
		var idle []string
		for _, t := range named {
			if line := t.Idle(e.MayReach); line != "" {
				idle = append(idle, line)
			}
		}
		if len(named) > 0 && len(idle) == len(named) {
			note(i, "%s: it is of use with --tool %s only, which brings its hosts along", idle[0], name)
		}
	}
	return notes
}

func printChecked(pen pen, c checked) {
	for _, x := range c.Problems {
		pen.printf("%s%s\n", visible(x.String()), inBrackets(x.Hint))
	}
	for _, w := range c.Warnings {
		pen.printf("%s:%d:%d: warning: %s: %s%s\n", visible(c.File), w.Line, w.Column, visible(w.Path), visible(w.Message), inBrackets(w.Hint))
	}
	for _, n := range c.Notes {
		pen.printf("note: %s\n", visible(n))
	}
	if len(c.Problems)+len(c.Warnings)+len(c.Notes) == 0 {
		pen.printf("%s: no mistakes found\n", visible(c.File))
	}
}
