package config

import (
	"fmt"
	"net/netip"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/console"
)

// variablePrefix begins the names of the variables that override settings.
const variablePrefix = "MOJOUP_"

// A Setting is one row of the table.
type Setting struct {
	Key      string
	Kind     Kind
	Default  string   // in the form that `config set` takes
	Allowed  []string // of kind Enum
	Sentence string   // what it does
	Restart  bool     // takes effect when the node starts the next time
	// Later says why the setting does nothing in this version; "" where it
	// does something.
	Later string
	// Refused are allowed values that this version cannot carry out: a session
	// that would need one does not start.
	Refused []string
	// check refuses a value of the right kind by saying what it must be.
	check func(data any) (want string)
}

// Variable is the environment variable that overrides the setting.
func (s Setting) Variable() string {
	return variablePrefix + strings.ToUpper(strings.ReplaceAll(s.Key, ".", "_"))
}

// A retiredSetting used to exist. It stays here, so that who still has it
// learns what became of it.
type retiredSetting struct {
	Key    string
	Became string // a sentence, lower case
}

// A table is the settings there are and were.
type table struct {
	settings []Setting
	retired  []retiredSetting
}

// Settings returns every row, in the order in which they are shown.
func Settings() []Setting { return append([]Setting(nil), current.settings...) }

// Lookup returns one row, or a [KeyError].
func Lookup(key string) (Setting, error) { return current.lookup(key) }

func (t table) lookup(key string) (Setting, error) {
	for _, s := range t.settings {
		if s.Key == key {
			return s, nil
		}
	}
	return Setting{}, t.unknown(key)
}

// Names of the settings that parts of the node ask for.
const (
	SandboxEngine      = "node.sandbox.engine"
	SignInMode         = "node.signin.mode." // and the tool's name
	RolesSandbox       = "node.roles.sandbox"
	SandboxImage       = "node.sandbox.image"
	OpenShellGateway   = "node.openshell.gateway"
	SandboxMaxSessions = "node.sandbox.max_sessions"
	SandboxSpares      = "node.sandbox.spares"
	LimitCPUs          = "node.sandbox.limits.cpus"
	LimitMemory        = "node.sandbox.limits.memory"
	LimitProcesses     = "node.sandbox.limits.processes"
	LimitDisk          = "node.sandbox.limits.disk"
	LimitWall          = "node.sandbox.limits.wall"
	NetworkPrivate     = "node.network.private"
	PolicyTrust        = "node.policy.trust"
	FilesMounts        = "node.files.mounts"
	ConsoleListen      = "node.console.listen"
	PeopleAllow        = "node.people.allow"
)

// Values of node.sandbox.engine.
const (
	EngineAuto   = "auto"
	EngineDocker = "docker"
	EngineNative = "native"
	EngineOff    = "off"
)

// notYet is why most settings do nothing: their part of the node is not built.
const notYet = "this version does nothing with it yet"

// refused says in one sentence that a value cannot be carried out, or "".
func (s Setting) refused(text string) string {
	if !slices.Contains(s.Refused, text) {
		return ""
	}
	return fmt.Sprintf("%s %s is not part of this version yet: sessions that need it are refused", s.Key, text)
}

// current is the table. Its order is the order of `config list` and of the
// page in docs.
var current = table{settings: append(append(nodeSettings(), signInSettings()...), serviceSettings()...)}

// nodeSettings are those of sessions and of the node itself.
func nodeSettings() []Setting {
	return []Setting{
		{Key: SandboxEngine, Kind: Enum, Default: EngineAuto, Allowed: []string{EngineAuto, EngineDocker, EngineNative, EngineOff}, Restart: true,
			Sentence: "What runs sessions in sandboxes. `auto` takes `docker` where its checks pass, else `native`; with `off` sessions are ordinary processes."},
		{Key: RolesSandbox, Kind: Bool, Default: "false", Restart: true,
			Sentence: "Run the sessions that others start (API, console, hub) in sandboxes. `mojoup-node run` does so in any case."},
		{Key: SandboxImage, Kind: String, Restart: true,
			Sentence: "Container image of sessions on engine `docker`; empty means the one that `mojoup-node image build` makes, mojoup-sandbox:latest. One that is named here and goes missing while the node runs is fetched by Docker."},
		{Key: SandboxMaxSessions, Kind: Int, Default: "0", Restart: true,
			Sentence: "Sessions that may run at once; 0 means as many as memory allows. Whoever comes later waits, is told the place and the reason, and starts in turn."},
		{Key: SandboxSpares, Kind: Int, Default: "1", Restart: true, check: atMost(16),
			Sentence: "Sandboxes that are begun in advance, each about half a MiB, so that a session starts sooner: from the second one of a node on. 0 means none; 16 at most."},
		{Key: LimitCPUs, Kind: Float, Default: "0", Restart: true,
			Sentence: "Processors' worth of time that one session may use; 0 means no limit. Of this and a policy's limit the smaller one holds, as of those below."},
		{Key: LimitMemory, Kind: Size, Default: "0", Restart: true,
			Sentence: "Memory of one session; 0 means no limit."},
		{Key: LimitProcesses, Kind: Int, Default: "0", Restart: true,
			Sentence: "Processes and threads of one session; 0 means the usual number, 4096 or less."},
		{Key: LimitDisk, Kind: Size, Default: "0", Restart: true,
			Sentence: "Scratch files and home directory of one session together; 0 means the usual size, 4 GiB or less. The repository is not limited. On engine docker 0 means no limit, and a session that passes one is ended."},
		{Key: LimitWall, Kind: Duration, Default: "0", Restart: true,
			Sentence: "How long one session may last; 0 means no limit."},
		{Key: PeopleAllow, Kind: List, check: people,
			Sentence: "Who may use the system node (`serve --system`) beside root: names or numbers of users, `@group` for everybody in a group, `*` for everybody; empty means nobody."},
		{Key: NetworkPrivate, Kind: Prefixes, Restart: true, check: openable,
			Sentence: "Private address ranges that a policy's rules may open, and to which the hosts of its registry presets may lead; empty means none."},
		{Key: PolicyTrust, Kind: Enum, Default: "ask", Allowed: []string{"ask", "ceiling", "always"}, Restart: true, Refused: []string{"ceiling"},
			Sentence: "What a repository's policy may ask for: `ask` wants a person's approval, `ceiling` clips it to the tool's hosts and the hub, `always` takes it as written."},
		{Key: FilesMounts, Kind: List, Restart: true, Later: notYet, check: paths,
			Sentence: "Paths that a repository's policy may ask to have mounted; empty means none."},
		{Key: "node.hub.url", Kind: String, Restart: true, Later: notYet, check: link("https"),
			Sentence: "Address of the hub whose policies hold here; empty means no hub."},
		{Key: "node.hub.token_file", Kind: String, Restart: true, Later: notYet, check: path,
			Sentence: "File with the token that the hub asks for."},
		{Key: "node.hub.organisation", Kind: String, Restart: true, Later: notYet,
			Sentence: "Organisation whose policy the hub is asked for."},
		{Key: "node.hub.team", Kind: String, Restart: true, Later: notYet,
			Sentence: "Team whose policy the hub is asked for."},
		{Key: "node.hub.max_age", Kind: Duration, Default: "168h", Restart: true, Later: notYet,
			Sentence: "How long the hub's last good answer holds while it cannot be asked. Afterwards no session that needs it starts."},
		{Key: OpenShellGateway, Kind: String, Restart: true,
			Sentence: "OpenShell gateway of engine `docker`; empty means the one that the OpenShell command uses."},
		{Key: ConsoleListen, Kind: String, Default: "127.0.0.1:7717", Restart: true, check: pageAddress,
			Sentence: "Where the node page is shown to browsers on this machine, as http://mojoup-node.localhost with that port: 127.0.0.1 or [::1] and a port, 0 for one that is free; `off` for no page. `mojoup-node status` shows the address."},
		{Key: "node.archive.url", Kind: String, Restart: true, Later: notYet, check: link("file", "s3"),
			Sentence: "Where records and archives are kept, `file://` or `s3://`; empty means the state directory."},
	}
}

// signInSettings has one row for each tool, so that no key holds a name that
// somebody else chose.
func signInSettings() []Setting {
	var out []Setting
	for _, tool := range []struct{ key, name string }{
		{"claude", "Claude Code"}, {"copilot", "Copilot CLI"}, {"codex", "Codex"}, {"opencode", "OpenCode"}, {"kilo", "Kilo Code"},
	} {
		out = append(out, Setting{
			Key: SignInMode + tool.key, Kind: Enum, Default: "standin", Allowed: []string{"standin", "lease", "hold", "copy", "off"},
			Sentence: "How a session of " + tool.name + " gets the person's sign-in. All but `standin` and `off` put a real access token inside; none puts a refresh token there. Sessions that run keep their mode, but for `off`, which takes the sign-in from them within ten seconds.",
		})
	}
	return out
}

// serviceSettings are those of code for assistants and of what it needs.
func serviceSettings() []Setting {
	row := func(key string, kind Kind, def, sentence string) Setting {
		return Setting{Key: key, Kind: kind, Default: def, Sentence: sentence, Restart: true, Later: notYet}
	}
	engine := row("node.tasks.engine", Enum, EngineNative, "What runs tasks.")
	engine.Allowed = []string{EngineNative, EngineDocker}
	policy := row("node.tasks.policy", String, "", "Policy file of tasks; empty means any public host on ports 80 and 443.")
	policy.check = path
	mirror := row("node.images.mirror", Enum, "default", "Where dependency images take packages from first.")
	mirror.Allowed = []string{"default", "cn"}
	return []Setting{
		row("node.roles.tasks", Bool, "false", "Run code for assistants."),
		engine,
		row("node.tasks.image", String, "", "Base image of tasks; empty means the node's own."),
		policy,
		row("node.tasks.user", String, "", "User that tasks run as on a node that is root."),
		row("node.tasks.max_running", Int, "2", "Script tasks that may run at once."),
		row("node.tasks.max_queued", Int, "8", "Script tasks that may wait."),
		row("node.tasks.queue_wait", Duration, "20s", "How long a script task waits for a slot."),
		row("node.tasks.cpu", Duration, "60s", "Processor time of one call of a script task."),
		row("node.tasks.memory", Size, "1GiB", "Memory of a script task."),
		row("node.tasks.processes", Int, "256", "Processes and threads of a script task."),
		row("node.tasks.wall", Duration, "300s", "How long one call of a script task may last."),
		row("node.tasks.output", Size, "256KiB", "Output of one call that is kept."),
		row("node.tasks.export", Size, "16MiB", "Largest file that a script task may deliver."),
		row("node.tasks.attachment", Size, "16MiB", "Largest attachment that is put into a script task."),
		row("node.workspaces.max_running", Int, "10", "Commands of conversation workspaces that may run at once."),
		row("node.workspaces.max_queued", Int, "50", "Commands of conversation workspaces that may wait."),
		row("node.workspaces.cpu", Duration, "30s", "Processor time of one command."),
		row("node.workspaces.wall", Duration, "120s", "How long one command may last."),
		row("node.workspaces.memory", Size, "1GiB", "Memory of one command."),
		row("node.workspaces.output", Size, "256KiB", "Output of one command that is kept."),
		row("node.workspaces.export", Size, "16MiB", "Largest file that a workspace may deliver."),
		row("node.workspaces.attachment", Size, "16MiB", "Largest attachment that is put into a workspace."),
		row("node.runtimes.idle", Duration, "900s", "How long an unused plugin runtime stays."),
		mirror,
	}
}

// path wants an absolute path, or nothing.
func path(data any) string {
	if p := data.(string); p != "" && (!filepath.IsAbs(p) || filepath.Clean(p) != p) {
		return "an absolute path without . and .. in it"
	}
	return ""
}

// paths wants absolute paths; one may begin with the person's home, which only
// a session knows.
func paths(data any) string {
	for _, p := range data.([]string) {
		if rest, ok := strings.CutPrefix(p, "~/"); ok {
			p = "/" + rest
		}
		if path(p) != "" {
			return "absolute paths or ones that begin with ~/, without . and .. in them"
		}
	}
	return ""
}

// people wants names or numbers of users, groups with an @, or a star.
func people(data any) string {
	for _, who := range data.([]string) {
		name := strings.TrimPrefix(who, "@")
		if name == "" || name != strings.TrimSpace(name) || strings.ContainsAny(name, "@:/, ") || strings.Contains(name, "*") && who != "*" {
			return "names or numbers of users, @group or *"
		}
	}
	return ""
}

// pageAddress wants a place for the node page: on this machine alone, since there
// is no TLS, and where the name of the page leads.
func pageAddress(data any) string {
	text := data.(string)
	if _, err := console.ParsePageAddress(text); err != nil && text != console.PageOff {
		return "127.0.0.1 or [::1] with a port, for example 127.0.0.1:7717, or " + console.PageOff + ": the page has no TLS and stays on this machine"
	}
	return ""
}

// link wants a URL with one of the schemes, or nothing.
func link(schemes ...string) func(any) string {
	return func(data any) string {
		text := data.(string)
		if text == "" {
			return ""
		}
		u, err := url.Parse(text)
		for _, s := range schemes {
			if err == nil && u.Scheme == s && u.User == nil && (u.Host != "" || s == "file" && u.Path != "") {
				return ""
			}
		}
		return "a URL that begins with " + strings.Join(schemes, ":// or ") + ":// and holds no password"
	}
}

// atMost wants a number that is not above most.
func atMost(most int64) func(any) string {
	return func(data any) string {
		if n, ok := data.(int64); !ok || n > most {
			return fmt.Sprintf("a number from 0 to %d", most)
		}
		return ""
	}
}

// openable wants ranges that are not everything.
func openable(data any) string {
	for _, p := range data.([]netip.Prefix) {
		if p.Bits() == 0 {
			return "ranges, not all addresses"
		}
	}
	return ""
}
