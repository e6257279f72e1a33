package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/internal/fault"
)

// called is what a command is called behind the program's name, which stands in
// front of every sentence already.
func called(cmd *cobra.Command) string {
	return strings.TrimPrefix(cmd.CommandPath(), cmd.Root().Name()+" ")
}

// noArgs and exactly refuse with our words and exit code.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if cmd.HasSubCommands() {
		return unknownCommand(cmd, args[0])
	}
	return fault.Usage("%s takes no arguments, got %q", called(cmd), args[0]).WithHint("see `%s --help`", cmd.CommandPath())
}

func exactly(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return fault.Usage("%s needs %s", called(cmd), strings.Join(names[len(args):], " and ")).
				WithHint("see `%s --help`", cmd.CommandPath())
		case len(args) > len(names):
			return fault.Usage("%s takes %s only, got %q too", called(cmd), strings.Join(names, " and "), args[len(names)]).
				WithHint("see `%s --help`", cmd.CommandPath())
		}
		for i, name := range names {
			if args[i] == "" && name != aValue {
				return fault.Usage("%s needs %s, and got an empty word", called(cmd), name).WithHint(emptyHint)
			}
		}
		return nil
	}
}

// atMostOne refuses a second word.
func atMostOne(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) > 0 {
			return exactly(name)(cmd, args)
		}
		return nil
	}
}

// aValue is the word that may be empty: that of a setting which holds a text.
const aValue = "a value"

const emptyHint = "a variable that holds nothing looks like this"

// noEmptyFlag refuses a flag that was given and says nothing. No keys that leave
// a session are an answer.
func noEmptyFlag(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) {
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		if err == nil && f.Name != detachKeysFlag && slices.Contains(values, "") {
			err = fault.Usage("--%s is empty", f.Name).WithHint(emptyHint)
		}
	})
	return err
}

// notBoth refuses flags that exclude each other, in the words of the others.
func notBoth(cmd *cobra.Command, a, b string) error {
	if cmd.Flags().Changed(a) && cmd.Flags().Changed(b) {
		return fault.Usage("--%s and --%s exclude each other", a, b).WithHint("see `%s --help`", cmd.CommandPath())
	}
	return nil
}

func unknownCommand(cmd *cobra.Command, word string) error {
	f := fault.Usage("there is no command %q", strings.TrimSpace(strings.TrimPrefix(called(cmd)+" ", cmd.Root().Name()+" ")+word))
	if word == "" {
		return f.WithHint(emptyHint)
	}
	cmd.SuggestionsMinimumDistance = 2
	near := cmd.SuggestionsFor(word) // in the order of the alphabet
	if nearest := config.Nearest(word, near); nearest != "" {
		near = []string{nearest}
	}
	if len(near) > 0 {
		return f.WithHint("did you mean `%s %s`?", cmd.CommandPath(), near[0])
	}
	return f.WithHint("see `%s --help`", cmd.CommandPath())
}

// badFlag says in our words what cobra's parser says in Go's.
func badFlag(cmd *cobra.Command, err error) error {
	help := fmt.Sprintf("see `%s --help`", cmd.CommandPath())
	if invalid, ok := errors.AsType[*pflag.InvalidValueError](err); ok {
		return fault.Usage("--%s cannot be %q: it is %s", invalid.GetFlag().Name, invalid.GetValue(), flagKind(invalid.GetFlag())).WithHint("%s", help)
	}
	if unknown, ok := errors.AsType[*pflag.NotExistError](err); ok {
		if near := config.Nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" && unknown.GetSpecifiedShortnames() == "" {
			help = fmt.Sprintf("did you mean --%s?", near)
		}
	}
	return fault.Usage("%w", err).WithHint("%s", help)
}

// flagKind says what a flag wants.
func flagKind(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "bool":
		return "a switch, given without a value"
	case "duration":
		return "a time, as 30s or 5m"
	case "int":
		return "a whole number"
	}
	return "a " + f.Value.Type()
}

func flagNames(cmd *cobra.Command) (names []string) {
	cmd.Flags().VisitAll(func(f *pflag.Flag) { names = append(names, f.Name) })
	return names
}

// newHelp is `help`, which knows no command that is not there.
func newHelp(p Process) *cobra.Command {
	return &cobra.Command{
		Use:   "help [COMMAND]…",
		Short: "show the help of a command",
		RunE: func(cmd *cobra.Command, args []string) error {
			about, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 && about.HasSubCommands() {
				if about == nil {
					about, rest = cmd.Root(), args
				}
				return unknownCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			about.SetOut(p.Stdout)
			return about.Help()
		},
	}
}
