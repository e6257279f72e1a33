package plan

import (
	"slices"
	"strconv"
	"strings"
)

// SessionVariable holds the session's id inside, so that whoever runs there can
// know it.
const SessionVariable = "MOJOUP_SESSION"

// callerNames are the variables that a session takes over from its caller;
// those that end in '_' stand for all that begin so.
var callerNames = []string{"COLORTERM", "HOME", "LANG", "LC_", "LOGNAME", "PATH", "SHELL", "TERM", "TZ", "USER"}

// neverNames point at sockets and services of the host, which do not exist
// inside: with them, programs would wait for nobody.
var neverNames = []string{
	"BUILDKIT_HOST", "CONTAINER_HOST", "DBUS_SESSION_BUS_ADDRESS", "DBUS_SYSTEM_BUS_ADDRESS", "DISPLAY", "DOCKER_HOST", "GNOME_KEYRING_CONTROL",
	"GPG_AGENT_INFO", "INVOCATION_ID", "JOURNAL_STREAM", "LISTEN_FDS", "LISTEN_PID", "NOTIFY_SOCKET", "PULSE_SERVER", "SSH_AGENT_PID", "SSH_AUTH_SOCK",
	"TMUX", "VSCODE_IPC_HOOK_CLI", "WAYLAND_DISPLAY", "XAUTHORITY", "XDG_RUNTIME_DIR",
}

// factNames are variables that every session has from the node, whatever a caller
// or a policy says.
var factNames = []string{"HOME", "USER", "LOGNAME", "SHELL", "PATH", "XDG_RUNTIME_DIR", SessionVariable, "PWD"}

// A SecretNameError refuses a secret whose variable no session would have.
type SecretNameError struct{ Name string }

func (e *SecretNameError) Error() string {
	return e.Name + " cannot be the name of a secret: no session would have it in that variable, which is the node's to set or to leave out"
}

// Hint is the next step for people.
func (e *SecretNameError) Hint() string { return "give the secret a name of its own, as GITHUB_TOKEN" }

// CheckSecretVariable refuses the name of a variable that a session cannot have from a
// secret.
func CheckSecretVariable(name string) error {
	if slices.Contains(factNames, name) || slices.Contains(neverNames, name) {
		return &SecretNameError{name}
	}
	return nil
}

// CallerEnv is the part of a caller's environment that may go into a session
// without being asked for by name.
func CallerEnv(environ []string) []string {
	var out []string
	for _, kv := range environ {
		name, _, ok := strings.Cut(kv, "=")
		if ok && slices.ContainsFunc(callerNames, func(n string) bool {
			return name == n || strings.HasSuffix(n, "_") && strings.HasPrefix(name, n)
		}) {
			out = append(out, kv)
		}
	}
	return out
}

// variable is the last value that the caller sent for a name.
func (b *builder) variable(name string) string {
	for _, kv := range slices.Backward(b.in.Env) {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			return v
		}
	}
	return ""
}

// environment is the whole of it, sorted: the caller's, who and where, the way
// out, whom to trust, git, and what was asked for by name.
func (b *builder) environment() []string {
	vars := map[string]string{}
	set := func(kvs ...string) {
		for _, kv := range kvs {
			name, value, _ := strings.Cut(kv, "=")
			vars[name] = value
		}
	}
	set(proxyBlock()...)
	set(trustBlock()...)
	set(b.installers()...)
	set(b.packages...)
	set(b.in.Tool.Env...)
	set(b.in.Env...)
	set(b.gitBlock()...) // holds what the caller gives git, behind what the session needs
	// These are facts, whatever a caller says.
	u := b.in.User
	set("HOME="+u.Home, "USER="+u.Name, "LOGNAME="+u.Name, "SHELL="+b.shell(),
		"PATH="+strings.Join(b.path, ":"), "XDG_RUNTIME_DIR="+b.runtimeDir(), SessionVariable+"="+b.in.ID,
		"PWD="+b.workDir()) // without it a shell shows the real path, not the spelled one
	if vars["TERM"] == "" {
		vars["TERM"] = "dumb"
	}
	if vars["LANG"] == "" {
		vars["LANG"] = "C.UTF-8"
	}
	var out []string
	for name, value := range vars {
		if name != "XDG_RUNTIME_DIR" && slices.Contains(neverNames, name) {
			b.note("%s names a service of the host and is left out", name)
			continue
		}
		out = append(out, name+"="+value)
	}
	slices.Sort(out)
	slices.Sort(b.notes)
	return out
}

// proxyBlock is in both spellings: curl reads http_proxy only in lower case,
// others only upper. NO_PROXY holds the loopback and nothing else, so that no
// request bypasses the proxy to an address that it would refuse.
func proxyBlock() []string {
	var out []string
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"} {
		out = append(out, name+"=http://"+Proxy, strings.ToLower(name)+"=http://"+Proxy)
	}
	const none = "127.0.0.1,localhost,::1"
	return append(out, "NO_PROXY="+none, "no_proxy="+none, "NODE_USE_ENV_PROXY=1")
}

// trustBlock is the second belt beside the system's bundle. Those that replace
// a program's authorities get all of them, those that add get only ours.
func trustBlock() []string {
	out := []string{"NODE_EXTRA_CA_CERTS=" + caFile, "DENO_CERT=" + caFile}
	for _, name := range []string{
		"AWS_CA_BUNDLE", "CARGO_HTTP_CAINFO", "CODEX_CA_CERTIFICATE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO", "PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE",
	} {
		out = append(out, name+"="+bundleFile)
	}
	return out
}

// gitBlock is configuration by environment: it reaches every git inside and no
// file of the host.
func (b *builder) gitBlock() []string {
	r := b.in.Repository
	config := []kv{
		{"core.excludesFile", ignoreFile},
		// The monitor's socket would lie in the shared git directory.
		{"core.fsmonitor", "false"},
		// The host's helpers and keys are not there: an empty helper ends the
		// list, and a commit that must be signed would fail.
		{"credential.helper", ""},
		{"commit.gpgsign", "false"},
		{"tag.gpgsign", "false"},
		// The repository's configuration is read-only: a branch that starts from
		// a remote's would be made and then fail to note that.
		{"branch.autoSetupMerge", "false"},
	}
	config = append(config, b.loginConfig()...)
	if r.GitDir != "" {
		for _, root := range b.repositoryRoots() {
			config = append(config, kv{"safe.directory", root})
		}
		// Both rewrite files that are read-only inside.
		config = append(config, kv{"repack.updateServerInfo", "false"})
		if r.Tree.Linked() {
			config = append(config, kv{"gc.auto", "0"}, kv{"maintenance.auto", "false"})
		}
	}
	if a := b.in.Author; a.Name != "" {
		config = append(config, kv{"user.name", a.Name})
	}
	if a := b.in.Author; a.Email != "" {
		config = append(config, kv{"user.email", a.Email})
	}
	config = append(config, b.ownGitConfig()...)
	out := []string{"GIT_CONFIG_COUNT=" + itoa(len(config))}
	if b.variable("GIT_TERMINAL_PROMPT") == "" {
		out = append(out, "GIT_TERMINAL_PROMPT=0")
	}
	for i, c := range config {
		out = append(out, "GIT_CONFIG_KEY_"+itoa(i)+"="+c.key, "GIT_CONFIG_VALUE_"+itoa(i)+"="+c.value)
	}
	return out
}

// ownGitConfig is the configuration by environment that the caller asked for. It
// stands last, where git prefers it. A count that git would refuse counts nothing.
func (b *builder) ownGitConfig() (config []kv) {
	const most = 1000
	count, err := strconv.Atoi(b.variable("GIT_CONFIG_COUNT"))
	if err != nil || count > most {
		return nil
	}
	for i := range count {
		config = append(config, kv{b.variable("GIT_CONFIG_KEY_" + itoa(i)), b.variable("GIT_CONFIG_VALUE_" + itoa(i))})
	}
	return config
}
