package cli

import (
	"errors"
	"io/fs"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/tools"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

func newTool(p Process) *cobra.Command {
	return group("tool", "the agent tools that --tool knows", newToolList(p), newToolShow(p), newToolCheck(p))
}

// toolDirs are where this person's own profiles lie.
func toolDirs(p Process, paths config.Paths) tools.Dirs { return paths.Tools(p.Getenv("HOME")) }

// findTool is the profile that `run --tool` would use, nil for no name.
func findTool(p Process, paths config.Paths, name string) (*profile.Profile, error) {
	if name == "" {
		return nil, nil
	}
	found, err := toolDirs(p, paths).Find(name)
	var unknown *tools.UnknownError
	switch {
	case errors.As(err, &unknown):
		return nil, fault.Usage("%w", err)
	case err != nil:
		return nil, fault.CannotRun("%w", err)
	}
	return found, nil
}

// keyNames are the keys of a tool for which this process's environment has a
// value, and those values by variable.
func keyNames(p Process, t *profile.Profile) (names []string, values map[string]api.Key) {
	values = map[string]api.Key{}
	for _, k := range t.Keys {
		found := false
		for _, v := range append(append([]string{}, k.Sources()...), k.Fallback...) {
			if s := p.Getenv(v); s != "" {
				values[v] = api.Key(s)
				found = found || k.Takes(s)
			}
		}
		if found {
			names = append(names, k.Name)
		}
	}
	return names, values
}

// toolRules are the hosts of a tool as a session has them that takes its keys
// from this environment.
func toolRules(p Process, paths config.Paths, name string) (*policy.ToolRules, error) {
	t, err := findTool(p, paths, name)
	if t == nil || err != nil {
		return nil, err
	}
	names, _ := keyNames(p, t)
	return t.Rules(names), nil
}

// A listedTool is one entry of `tool list --json`.
type listedTool struct {
	Name string `json:"name"`
	// Title, Program and Keys are empty where the profile cannot be used.
	Title   string   `json:"title,omitempty"`
	Program string   `json:"program,omitempty"`
	Path    string   `json:"path,omitempty"` // where the program is, if it is on PATH
	Keys    []string `json:"keys"`           // the variables in which it takes keys
	// File is the profile's, empty for a built-in one.
	File     string `json:"file,omitempty"`
	Replaces bool   `json:"replaces,omitempty"`
	Problem  string `json:"problem,omitempty"`
}

func newToolList(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "the tools that there are, and where each profile comes from",
		Args:  noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			out := []listedTool{}
			for _, t := range toolDirs(p, h.paths).List() {
				out = append(out, listed(t))
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, map[string]any{"tools": out})
			}
			printTools(newPen(p), out)
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}

func listed(t tools.Tool) listedTool {
	out := listedTool{Name: t.Name, File: t.File, Replaces: t.Replaces, Keys: []string{}}
	if t.Err != nil {
		out.Problem, _, _ = strings.Cut(t.Err.Error(), "\n")
		return out
	}
	out.Title, out.Program = t.Profile.Title, t.Profile.Program.Name
	for _, k := range t.Profile.Keys {
		out.Keys = append(out.Keys, k.Name)
	}
	if at, err := exec.LookPath(out.Program); err == nil {
		out.Path = at
	}
	return out
}

func printTools(pen pen, all []listedTool) {
	var rows [][]string
	for _, t := range all {
		at, from := t.Path, t.File
		if at == "" {
			at = "not on PATH"
		}
		switch {
		case t.Problem != "":
			at, from = "", "cannot be used: "+t.Problem
		case from == "":
			from = "built in"
		case t.Replaces:
			from += ", in place of the built-in one"
		}
		rows = append(rows, []string{t.Name, t.Title, at, from})
	}
	pen.rows([]string{"TOOL", "IS", "PROGRAM", "PROFILE"}, rows)
}

func newToolShow(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "show NAME",
		Short: "print a tool's profile, as a start for one of your own",
		Long: `Print the profile of a tool: how it is started, what it reaches, which keys it
takes and where they go, where its sign-in is kept and what of it is never
copied. A file NAME.toml of that form in ~/.config/mojoup/tools adds a tool, or
takes the place of a built-in profile; its "name" is that of the file, so change
that in a copy. docs/tools.md explains each line.`,
		Example: "  mkdir -p ~/.config/mojoup/tools\n  mojoup-node tool show claude >~/.config/mojoup/tools/mine.toml",
		Args:    exactly("the name of a tool"),
		RunE: func(_ *cobra.Command, args []string) error {
			h, err := look(p)
			if err != nil {
				return err
			}
			t, err := findTool(p, h.paths, args[0])
			if err != nil {
				return err
			}
			text, err := profile.Text(args[0]), error(nil)
			if t.Source != "" {
				text, err = readBounded(t.Source)
			}
			if err != nil {
				return fault.Unknown("reading the profile: %w", err)
			}
			_, err = p.Stdout.Write(text)
			return err
		},
	}
}

func newToolCheck(p Process) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "find mistakes in a profile, with file, line and key",
		Args:  exactly("a file"),
		RunE: func(cmd *cobra.Command, args []string) error {
			file, err := filepath.Abs(args[0])
			if err != nil {
				return fault.Usage("%s: %w", args[0], err)
			}
			t, err := tools.Read(file)
			var wrong *profile.Errors
			switch {
			case errors.Is(err, fs.ErrNotExist):
				return fault.Unknown("there is no file %s", args[0]).WithHint("the path begins at the current directory; `mojoup-node tool list` names the profiles that are used")
			case err != nil && !errors.As(err, &wrong):
				return fault.Negative("%w", err)
			case wantsJSON(cmd):
				problems := []profile.Problem{}
				if wrong != nil {
					problems = wrong.Problems
				}
				if err := printJSON(p.Stdout, map[string]any{"problems": problems}); err != nil {
					return err
				}
			case wrong != nil:
				newPen(p).printf("%s\n", wrong.Error())
			default:
				newPen(p).printf("%s is a profile of %s; it is used when it lies in %s\n", args[0], t.Title, "~/.config/mojoup/tools")
			}
			if wrong != nil {
				return exitCode(fault.ExitNegative)
			}
			return nil
		},
	}
	addJSON(cmd)
	return cmd
}
