package config

import (
	"fmt"
	"strings"
)

// Markdown is the page of settings of the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString(`# Settings

Made from the table in ` + "`internal/config`" + `; ` + "`mojoup-node config list`" + ` shows the same with the values of this machine and where each comes from.

A setting stands in ` + "`node.toml`" + `, for example as ` + "`node.sandbox.engine = \"native\"`" + `. An environment variable overrides it: its name is the setting's in capitals with ` + "`_`" + ` for each point and ` + "`MOJOUP_`" + ` before it, as in ` + "`MOJOUP_NODE_SANDBOX_ENGINE`" + `. A name that is no setting is an error in both places. ` + "`mojoup-node config set KEY VALUE`" + ` changes the one line of the file and leaves the rest as it is. A file that belongs to anybody but the node's user or root, or that others may write, is refused.

| | a user's node | a node of root |
|---|---|---|
| settings (` + "`MOJOUP_CONFIG`" + `) | ` + "`$XDG_CONFIG_HOME/mojoup/node.toml`" + `, else in ` + "`~/.config/mojoup`" + ` | ` + "`" + systemConfig + "`" + ` |
| state (` + "`MOJOUP_STATE_DIR`" + `) | ` + "`$XDG_STATE_HOME/mojoup`" + `, else ` + "`~/.local/state/mojoup`" + ` | ` + "`" + systemState + "`" + ` |
| socket (` + "`MOJOUP_RUNTIME_DIR`" + `) | ` + "`$XDG_RUNTIME_DIR/mojoup`" + `, else ` + "`/run/user/UID/mojoup`" + `, else ` + "`/tmp/mojoup-UID`" + ` | ` + "`" + systemRuntime + "`" + ` |

The variable named in brackets moves a place. Every setting takes effect when the node starts, unless its row says otherwise.

Where a system node (` + "`serve --system`" + `) carries somebody's sessions, root's settings hold and that person's do not: those count for a node of their own only, and ` + "`config get`, `set`, `unset` and `list`" + ` say so. Secrets, approvals and past sessions of each person lie in ` + "`" + systemState + "/" + PeopleName + "/UID`" + `, for them alone, apart from those of a node of their own; ` + "`secret list`" + ` says where others are.

## Forms of values

| kind | in ` + "`node.toml`" + ` | for ` + "`config set`" + ` and in variables |
|---|---|---|
| text, one of | ` + "`\"native\"`" + ` | ` + "`native`" + ` |
| true or false | ` + "`true`" + ` | ` + "`true`" + ` |
| number, decimal number | ` + "`8`, `1.5`" + ` | ` + "`8`, `1.5`" + ` |
| size | ` + "`\"4GiB\"`" + `, also KiB, MiB, TiB, B | ` + "`4GiB`" + ` |
| duration | ` + "`\"8h\"`" + `, also ms, s, m | ` + "`8h`" + ` |
| address ranges, list of texts | ` + "`[\"10.2.0.0/16\"]`" + ` | ` + "`10.2.0.0/16,fd00::/8`" + `, or as in the file |

## Those that take effect

`)
	writeRows(&b, func(s Setting) bool { return s.Later == "" })
	b.WriteString("\n## Those that do nothing in this version\n\nThey can be set, and `config set` and `config list` say that they have no effect.\n\n")
	writeRows(&b, func(s Setting) bool { return s.Later != "" })
	return b.String()
}

// writeRows writes the rows that are wanted as a table.
func writeRows(b *strings.Builder, want func(Setting) bool) {
	b.WriteString("| setting | kind | default | what it does |\n|---|---|---|---|\n")
	for _, s := range current.settings {
		if !want(s) {
			continue
		}
		kind := string(s.Kind)
		if s.Kind == Enum {
			kind = "`" + strings.Join(s.Allowed, "`, `") + "`"
		}
		def := "empty"
		if s.Default != "" {
			def = "`" + s.Default + "`"
		}
		sentence := s.Sentence
		if len(s.Refused) > 0 {
			sentence += " Not part of this version yet: `" + strings.Join(s.Refused, "`, `") + "`; sessions that need it are refused."
		}
		if !s.Restart {
			sentence += " Takes effect at once."
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", s.Key, kind, def, sentence)
	}
}
