package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Reference is docs/cli.md: every command, made from the tree itself.
func Reference(p Process) string {
	var b strings.Builder
	root := newRoot(p)
	b.WriteString("# Commands\n\nMade from the command tree by `make generate`; do not edit.\n\n")
	b.WriteString(strings.TrimSpace(root.Long) + "\n\nThe answer goes to stdout and the conversation to stderr. With `--json` stdout\nholds exactly one document, also where the command fails:\n`{\"error\":{\"code\":…,\"sentence\":…,\"hint\":…,\"exit\":…}}`. Readers ignore fields\nthat they do not know. Colour only on a terminal, and never with `NO_COLOR`.\n")
	writeCommands(&b, root)
	return b.String()
}

func writeCommands(b *strings.Builder, cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.Hidden || !c.IsAvailableCommand() {
			continue
		}
		if c.HasSubCommands() {
			writeCommands(b, c)
			continue
		}
		writeCommand(b, c)
	}
}

func writeCommand(b *strings.Builder, c *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n    %s\n\n", c.CommandPath(), c.UseLine())
	text := c.Long
	if text == "" {
		text = strings.ToUpper(c.Short[:1]) + c.Short[1:] + "."
	}
	fmt.Fprintf(b, "%s\n", strings.TrimSpace(text))
	if c.Example != "" {
		fmt.Fprintf(b, "\n    %s\n", strings.ReplaceAll(strings.TrimSpace(c.Example), "\n  ", "\n    "))
	}
	var rows strings.Builder
	c.LocalFlags().VisitAll(func(f *pflag.Flag) {
		if !f.Hidden && f.Name != "help" {
			kind, about := pflag.UnquoteUsage(f)
			short := ""
			if f.Shorthand != "" {
				short = "-" + f.Shorthand + ", "
			}
			fmt.Fprintf(&rows, "| `%s` | %s |\n", strings.TrimSpace(short+"--"+f.Name+" "+kind), strings.ReplaceAll(about, "|", "\\|"))
		}
	})
	if rows.Len() > 0 {
		fmt.Fprintf(b, "\n| flag | meaning |\n|---|---|\n%s", rows.String())
	}
}
