package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/config"
)

func newConfig(p Process) *cobra.Command {
	return group("config", "get, set, unset and list settings",
		newConfigGet(p), newConfigSet(p), newConfigUnset(p), newConfigList(p))
}

// settingValue is one setting for programs.
type settingValue struct {
	Key     string `json:"key"`
	Value   any    `json:"value"`
	Source  string `json:"source"`
	Default string `json:"default"`
	About   string `json:"about"`
	Restart bool   `json:"restart"`
	NotYet  string `json:"notYet,omitempty"`
}

func shownSetting(v config.Value) settingValue {
	return settingValue{
		Key: v.Setting.Key, Value: v.Any(), Source: v.Source.String(), Default: v.Setting.Default,
		About: v.Setting.Sentence, Restart: v.Setting.Restart, NotYet: v.Setting.Later,
	}
}

// settingsOrigin finds the file and environment without reading them, so that
// a broken file can still be repaired from here.
func settingsOrigin(p Process) (config.Origin, here, error) {
	paths, err := config.FindPaths(p.Getenv, p.UID)
	return origin(p, paths), here{paths: paths}, err
}

func newConfigGet(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:               "get KEY",
		Short:             "print one setting",
		Args:              exactly("a setting"),
		ValidArgsFunction: completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, h, err := settingsOrigin(p)
			if err != nil {
				return err
			}
			if _, err := config.Lookup(args[0]); err != nil {
				return err
			}
			c, err := o.Load()
			if err != nil {
				return err
			}
			v, err := c.Get(args[0])
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, shownSetting(v))
			}
			newPen(p).printf("%s\n", v.Text)
			talk{w: p.Stderr}.line("from %s", v.Source.String())
			h.tellSettings(cmd.Context(), p)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func newConfigSet(p Process) *cobra.Command {
	return &cobra.Command{
		Use:               "set KEY VALUE",
		Short:             "write one setting into the file and leave the rest of it as it is",
		Args:              exactly("a setting", aValue),
		ValidArgsFunction: completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, h, err := settingsOrigin(p)
			if err != nil {
				return err
			}
			change, err := o.Set(args[0], args[1])
			return h.tellChange(cmd.Context(), p, change, err, "set")
		},
	}
}

func newConfigUnset(p Process) *cobra.Command {
	return &cobra.Command{
		Use:               "unset KEY",
		Short:             "take one setting out of the file: its default holds again",
		Args:              exactly("a setting"),
		ValidArgsFunction: completeKeys,
		RunE: func(cmd *cobra.Command, args []string) error {
			o, h, err := settingsOrigin(p)
			if err != nil {
				return err
			}
			change, err := o.Unset(args[0])
			return h.tellChange(cmd.Context(), p, change, err, "unset")
		},
	}
}

// tellChange says what happened, and what may keep it from meaning what the
// person had in mind.
func (h here) tellChange(ctx context.Context, p Process, c config.Change, err error, did string) error {
	if err != nil {
		return err
	}
	say := talk{w: p.Stderr}
	if c.Changed {
		say.line("%s %s in %s", did, c.Key, c.File)
	} else {
		say.line("%s was that already", c.Key)
	}
	for _, n := range c.Notices {
		say.line("note: %s", n)
	}
	h.tellSettings(ctx, p)
	return nil
}

func newConfigList(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "list every setting, its value and where that comes from",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				all := []settingValue{}
				for _, v := range h.settings.Values() {
					all = append(all, shownSetting(v))
				}
				return printJSON(p.Stdout, all)
			}
			var lines [][]string
			for _, v := range h.settings.Values() {
				note := v.Setting.Sentence
				if v.Setting.Later != "" {
					note = "(no effect: " + v.Setting.Later + ") " + note
				}
				lines = append(lines, []string{v.Setting.Key, shownText(v.Text), v.Source.String(), note})
			}
			newPen(p).rows([]string{"SETTING", "VALUE", "SOURCE", "MEANS"}, lines)
			for _, n := range h.settings.Notices() {
				talk{w: p.Stderr}.line("note: %s", n)
			}
			h.tellSettings(cmd.Context(), p)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func shownText(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func completeKeys(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var keys []string
	for _, s := range config.Settings() {
		keys = append(keys, s.Key+"\t"+s.Sentence)
	}
	return keys, cobra.ShellCompDirectiveNoFileComp
}
