package cli

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/capability"
	"github.com/mojoup/mojoup-node/pkg/secrets/vault"
)

func newDoctor(p Process) *cobra.Command {
	var engine string
	var mend, undo, yes bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "check whether this machine can sandbox agents, and say how to mend it",
		Long: `Check everything that sandboxes need, each by doing it: what was found, what is
needed, how to mend it. What only another engine than the one in use needs is
skipped, unless --engine names it. For engine docker a sandbox with a mount is asked
for and deleted again, and a container looks at a file of this node and connects to
it. The last line is the verdict of the configured engine. Where a system node
carries this person's sessions its settings count, and not the person's own.

Exit code 0 only where that engine can sandbox agents, 1 where it cannot or is
switched off, 3 where it could not be found out.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			asked, err := engineNamed(engine)
			if err != nil {
				return err
			}
			h, err := look(p)
			if err != nil {
				return err
			}
			h = h.served(cmd.Context())
			if undo {
				return h.undoFixes(cmd.Context(), p)
			}
			report := h.examine(cmd.Context(), cmp.Or(asked, h.engine()), true)
			report.Checks = slices.Concat(h.judged(), report.Checks, h.store())
			if wantsJSON(cmd) {
				if err := printJSON(p.Stdout, report); err != nil {
					return err
				}
			} else {
				printReport(newPen(p), report)
			}
			if mend {
				if err := h.fix(cmd.Context(), p, report, yes); err != nil {
					return err
				}
			}
			return verdictExit(report.Verdict)
		},
	}
	cmd.Flags().StringVar(&engine, "engine", "", "judge this engine instead of the configured one: auto, native, docker, off")
	cmd.Flags().BoolVar(&mend, "fix", false, "show what could be mended without harm, ask, and do it: linger, registration, the image")
	cmd.Flags().BoolVar(&undo, "undo", false, "take back what --fix has done")
	cmd.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask before --fix changes something")
	addJSON(cmd)
	return cmd
}

// store says against whom the node's own store of secrets is encrypted (D19),
// where there is one. It decides nothing.
func (h here) store() []capability.Check {
	c := capability.Check{Name: "secret-store", Title: "Store of secrets", Engines: []string{}}
	how, err := vault.New(h.paths.State).Protection()
	switch {
	case err != nil:
		c.State, c.Found, c.Needed = capability.Warn, err.Error(), "a store that this user can read, and nobody else"
		c.Reason = "the node's store of secrets cannot be read"
	case how == "":
		return nil
	default:
		c.State, c.Found = capability.OK, how
	}
	return []capability.Check{c}
}

// judged says by whose settings, where these are not the person's own. It decides
// nothing.
func (h here) judged() []capability.Check {
	if h.by == nil {
		return nil
	}
	return []capability.Check{{Name: "settings", Title: "Settings", State: capability.OK, Engines: []string{},
		Found: "those of the system node, which carries this person's sessions: " + h.by.Node.Socket}}
}

// engineNamed is the engine that a flag names, "" for none.
func engineNamed(flag string) (capability.Engine, error) {
	switch e := capability.Engine(flag); e {
	case "", capability.Auto, capability.Native, capability.Docker, capability.Off:
		return e, nil
	}
	return "", fault.Usage("unknown engine %q", flag).WithHint("engines: auto, native, docker, off")
}

func verdictExit(v capability.Verdict) error {
	switch {
	case v.Able:
		return nil
	case v.Engine != string(capability.Off) && !v.Known:
		return exitCode(fault.ExitUnknown)
	}
	return exitCode(fault.ExitNegative)
}

// stateWords carry the meaning; the colours only help to find them.
var stateWords = map[capability.State]struct{ word, colour string }{
	capability.OK:      {"ok", "2"},
	capability.Warn:    {"warning", "3"},
	capability.Fail:    {"FAILED", "1"},
	capability.Unknown: {"unknown", "3"},
	capability.Skipped: {"skipped", "8"},
}

func printReport(pen pen, r capability.Report) {
	for _, c := range r.Checks {
		state, found := r.Shown(c), c.Found
		if state == capability.Skipped && state != c.State {
			found += " (for engine " + strings.Join(c.Engines, ", ") + " only)"
		}
		s := stateWords[state]
		pen.printf("%s  %s: %s\n", pen.paint(s.colour, pad(s.word, 7)), c.Title, pen.cell(found))
		if state == capability.OK || state == capability.Skipped {
			continue
		}
		if c.Needed != "" {
			pen.printf("         needed: %s\n", visible(c.Needed))
		}
		if c.Mend != "" {
			pen.printf("         mend: %s\n", visible(c.Mend))
		}
	}
	pen.printf("\n")
	for _, e := range r.Engines {
		pen.printf("engine %s %s\n", pad(e.Engine+":", 8), engineLine(e))
	}
	pen.printf("checked in %d ms\n\n%s\n", r.Took.Round(time.Millisecond).Milliseconds(), visible(r.Verdict.String()))
}

func engineLine(e capability.EngineVerdict) string {
	switch {
	case e.Able:
		return "can sandbox agents"
	case e.Known:
		return "cannot: " + visible(e.Reason)
	}
	return "could not be found out: " + visible(e.Reason)
}

func pad(s string, n int) string {
	for len(s) < n {
		s += " "
	}
	return s
}
