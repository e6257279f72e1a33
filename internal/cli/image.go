package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

func newImage(p Process) *cobra.Command {
	return group("image", "make and look at images of sessions on engine docker", newImageBuild(p), newImageCheck(p))
}

// imageOptions are what `image build` was asked for.
type imageOptions struct {
	name, from, suite string
	tools, packages   []string
}

func newImageBuild(p Process) *cobra.Command {
	var o imageOptions
	cmd := &cobra.Command{
		Use:   "build",
		Short: "make the image that sessions on engine docker start in",
		Long: `Make an image that fits: a Debian system with a shell, iproute2, nftables, git, node
and python, and the agent tools that are named. Its packages come from where this
machine gets its own; Docker is handed the result, no image is pulled.

A Debian system is made with mmdebstrap, or as root with debootstrap. Where neither
is there, --from builds upon an image that Docker has, which must have apt.`,
		Example: `  mojoup-node image build --tool claude
  mojoup-node image build --name mine:1 --package golang --package cargo
  mojoup-node image build --from debian:bookworm`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return buildImage(cmd.Context(), p, o) },
	}
	cmd.Flags().StringVar(&o.name, "name", "", "what the image is called; the one that sessions use where nothing is said")
	cmd.Flags().StringVar(&o.from, "from", "", "build upon this image instead of making a system")
	cmd.Flags().StringVar(&o.suite, "suite", "", "Debian suite; this machine's where nothing is said, or bookworm")
	cmd.Flags().StringArrayVar(&o.tools, "tool", nil, "agent tool to install: claude, codex, copilot, kilo, opencode; may be given again")
	cmd.Flags().StringArrayVar(&o.packages, "package", nil, "Debian package to install; may be given again")
	return cmd
}

func newImageCheck(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [IMAGE]",
		Short: "say whether an image fits sessions on engine docker",
		Long: `Look into an image, without starting it, for what OpenShell and sessions need, and
name the agent tools that it has. Exit code 1 where it does not fit.`,
		Args: atMostOne("an image"),
		RunE: func(cmd *cobra.Command, args []string) error {
			return checkImage(cmd.Context(), p, strings.Join(args, ""), wantsJSON(cmd))
		},
	}
	addJSON(cmd)
	return cmd
}

// imageReport is the answer of `image check --json`.
type imageReport struct {
	Image  string   `json:"image"`
	Fits   bool     `json:"fits"`
	Reason string   `json:"reason,omitempty"`
	Mend   string   `json:"mend,omitempty"`
	Bytes  int64    `json:"bytes"`
	Tools  []string `json:"tools"` // never null
}

func printImageReport(p Process, r imageReport, asJSON bool) error {
	if asJSON {
		return printJSON(p.Stdout, r)
	}
	pen := newPen(p)
	if !r.Fits {
		pen.printf("%s does not fit: %s\n", visible(r.Image), visible(r.Reason))
		if r.Mend != "" {
			pen.printf("mend: %s\n", visible(r.Mend))
		}
		return nil
	}
	pen.printf("%s fits (%d MB)\n", visible(r.Image), r.Bytes/1_000_000)
	if len(r.Tools) == 0 {
		pen.printf("agent tools: none; `mojoup-node image build --tool claude` makes one with it\n")
		return nil
	}
	pen.printf("agent tools: %s\n", strings.Join(r.Tools, ", "))
	return nil
}
