package cli

import (
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set when linking; a build without it asks the build itself.
var version string

func buildVersion() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "unknown"
}

func newVersion(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "version",
		Short: "say which build this is",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, map[string]string{
					"version": buildVersion(), "go": runtime.Version(), "system": runtime.GOOS + "/" + runtime.GOARCH,
				})
			}
			newPen(p).printf("mojoup-node %s (%s, %s/%s)\n", buildVersion(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}
