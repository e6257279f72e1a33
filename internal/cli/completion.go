package cli

import (
	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/fault"
)

func newCompletion(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "print the completion script of a shell",
		Long: `Print a script that completes commands, flags and settings.

  bash:  source <(mojoup-node completion bash)
  zsh:   mojoup-node completion zsh > "${fpath[1]}/_mojoup-node"
  fish:  mojoup-node completion fish | source`,
		Args:      exactly("a shell: bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
		RunE: func(cmd *cobra.Command, args []string) error {
			var err error
			switch args[0] {
			case "bash":
				err = cmd.Root().GenBashCompletionV2(p.Stdout, true)
			case "zsh":
				err = cmd.Root().GenZshCompletion(p.Stdout)
			case "fish":
				err = cmd.Root().GenFishCompletion(p.Stdout, true)
			default:
				return fault.Usage("no completion for %q", args[0]).WithHint("known shells: bash, zsh, fish")
			}
			if written(p) != nil {
				return nil // Main says it
			}
			return err
		},
	}
}
