package plan

import (
	"maps"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/pelletier/go-toml/v2"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Settings of registry clients that a session needs, so that a company's
// mirror is used inside as it is outside. What is taken over is where packages
// come from, and nothing else of these files: they hold tokens.
var settingsFiles = []string{
	"/etc/npmrc", "~/.npmrc",
	"/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf",
	"~/.config/go/env",
	"~/.cargo/config", "~/.cargo/config.toml",
}

// SettingsFiles names the client settings to be read for a person, those that
// win last.
func SettingsFiles(home string) []string {
	var out []string
	for _, file := range settingsFiles {
		if rest, ok := strings.CutPrefix(file, "~"); ok {
			file = home + rest
		}
		out = append(out, file)
	}
	return out
}

// ClientVariables are those of the person's own environment that say where
// packages come from.
var ClientVariables = []string{
	"GONOPROXY", "GONOSUMDB", "GOPRIVATE", "GOPROXY", "GOSUMDB", "NPM_CONFIG_REGISTRY", "PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL",
	"UV_DEFAULT_INDEX", "UV_INDEX_URL",
}

const npmrcFile = runDir + "/npmrc"

// clients carries the settings over and returns variables that say so.
func (b *builder) clients() []string {
	vars := map[string]string{}
	var npmrc []string
	for _, file := range SettingsFiles(b.in.User.Home) {
		text, ok := b.in.Host.Settings[file]
		if !ok {
			continue
		}
		lines := settingLines(string(text))
		switch filepath.Base(file) {
		case "npmrc", ".npmrc":
			npmrc = append(npmrc, b.npm(file, lines)...)
		case "pip.conf":
			b.pip(file, lines, vars)
		case "env":
			for _, l := range lines {
				if slices.Contains(ClientVariables, l.key) && strings.HasPrefix(l.key, "GO") {
					vars[l.key] = b.open(file, l.value, ",|")
				}
			}
		default:
			b.cargo(file, text)
		}
	}
	for _, kv := range b.in.Host.Variables {
		if name, value, ok := strings.Cut(kv, "="); ok && slices.Contains(ClientVariables, name) {
			vars[name] = b.open(name, value, ",| ")
		}
	}
	if len(npmrc) > 0 {
		b.text(npmrcFile, strings.Join(npmrc, "\n")+"\n")
		vars["NPM_CONFIG_GLOBALCONFIG"] = npmrcFile
	}
	var out []string
	for name, value := range vars {
		if value != "" {
			out = append(out, name+"="+value)
		}
	}
	return out
}

type line struct{ key, value string }

// settingLines reads KEY=VALUE lines as npm, pip and go write them. An
// indented line continues the value before it, as in pip's files; sections do
// not matter for the keys that are asked for.
func settingLines(text string) []line {
	var out []line
	for raw := range strings.Lines(text) {
		trimmed := strings.TrimSpace(raw)
		if trimmed == "" || strings.ContainsAny(trimmed[:1], "#;[") {
			continue
		}
		key, value, ok := strings.Cut(trimmed, "=")
		switch {
		case len(out) > 0 && (raw[0] == ' ' || raw[0] == '\t') && !ok:
			out[len(out)-1].value += " " + trimmed
		case ok:
			out = append(out, line{strings.TrimSpace(key), strings.Trim(strings.TrimSpace(value), `"'`)})
		}
	}
	return out
}

func (b *builder) npm(file string, lines []line) []string {
	var out []string
	for _, l := range lines {
		scope, scoped := strings.CutSuffix(l.key, ":registry")
		if l.key != "registry" && !(scoped && strings.HasPrefix(scope, "@") && word(scope[1:])) {
			continue
		}
		if v := b.open(file, l.value, ""); v != "" {
			out = append(out, l.key+"="+v)
		}
	}
	return out
}

func (b *builder) pip(file string, lines []line, vars map[string]string) {
	for _, l := range lines {
		switch key := strings.ReplaceAll(strings.ToLower(l.key), "_", "-"); key {
		case "index-url", "extra-index-url":
			vars["PIP_"+strings.ToUpper(strings.ReplaceAll(key, "-", "_"))] = b.open(file, l.value, " ")
		}
	}
}

// cargo keeps the tables that say where crates come from. Cargo cannot be told
// so by variables, so the file stands where it stands on the host.
func (b *builder) cargo(file string, text []byte) {
	type source struct {
		Registry    string `toml:"registry,omitempty"`
		ReplaceWith string `toml:"replace-with,omitempty"`
	}
	type registry struct {
		Index    string `toml:"index,omitempty"`
		Protocol string `toml:"protocol,omitempty"`
	}
	var all struct {
		Source     map[string]source   `toml:"source,omitempty"`
		Registries map[string]registry `toml:"registries,omitempty"`
		Registry   struct {
			Default string `toml:"default,omitempty"`
			Index   string `toml:"index,omitempty"`
		} `toml:"registry,omitempty"`
	}
	if err := toml.Unmarshal(text, &all); err != nil {
		b.note("%s is not taken over: it cannot be read", file)
		return
	}
	for name, s := range all.Source {
		s.Registry, s.ReplaceWith = b.open(file, s.Registry, ""), wordOnly(s.ReplaceWith)
		all.Source[name] = s
	}
	for name, r := range all.Registries {
		r.Index, r.Protocol = b.open(file, r.Index, ""), wordOnly(r.Protocol)
		all.Registries[name] = r
	}
	maps.DeleteFunc(all.Source, func(name string, s source) bool { return !word(name) || s == source{} })
	maps.DeleteFunc(all.Registries, func(name string, r registry) bool { return !word(name) || r.Index == "" })
	all.Registry.Index, all.Registry.Default = b.open(file, all.Registry.Index, ""), wordOnly(all.Registry.Default)
	out, err := toml.Marshal(all)
	if err != nil || len(all.Source)+len(all.Registries) == 0 && all.Registry.Default+all.Registry.Index == "" {
		return
	}
	b.add(sandbox.Mount{Kind: sandbox.Text, Target: filepath.Join(b.home, strings.TrimPrefix(file, b.in.User.Home)), Content: out})
}

// open takes the credentials out of a list of addresses, with any of the
// separators between them. What is neither an address nor a plain word is left
// out, and so is an address with more than a place in it: it may be a token.
func (b *builder) open(where, value, separators string) string {
	var out strings.Builder
	for value != "" {
		end := strings.IndexAny(value, separators)
		if end < 0 {
			end = len(value)
		}
		if item := value[:end]; item == "" || word(item) {
			out.WriteString(item)
		} else {
			out.WriteString(b.openURL(where, item))
		}
		if end < len(value) {
			out.WriteByte(value[end])
			end++
		}
		value = value[end:]
	}
	if strings.Trim(out.String(), separators) == "" {
		return ""
	}
	return out.String()
}

func (b *builder) openURL(where, address string) string {
	rest, sparse := strings.CutPrefix(address, "sparse+")
	u, err := url.Parse(rest)
	if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.ContainsAny(u.Path+u.Host, "@${}") {
		b.note("%s: an address is left out, because it may hold a token", where)
		return ""
	}
	if u.User != nil {
		u.User = nil
		b.note("%s: the sign-in for %s stays outside", where, u.Host)
	}
	if sparse {
		return "sparse+" + u.String()
	}
	return u.String()
}

// word reports whether s is a name or pattern such as clients use beside
// addresses: "direct", "*.corp.example", "crates-io".
func word(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune(".*_/+=-", r))
	})
}

func wordOnly(s string) string {
	if word(s) {
		return s
	}
	return ""
}
