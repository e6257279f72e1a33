package registries

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
)

// findGo asks the go command, which knows variables, its own settings file
// and its defaults.
func findGo(ctx context.Context, l *look) error {
	goCmd, ok := l.program("go")
	if !ok {
		return l.goFromVars()
	}
	asked := "go env -json GOPROXY GOSUMDB"
	out, err := l.run(ctx, ask{
		args: []string{goCmd, "env", "-json", "GOPROXY", "GOSUMDB", "GOPRIVATE", "GONOPROXY", "GOENV", "GOROOT"},
		// No other toolchain is fetched to answer, no workspace is read.
		env: append(l.goQuiet(), "GOTOOLCHAIN=local", "GOWORK=off", "GOFLAGS="),
	})
	if err != nil {
		return l.failed(asked, err)
	}
	var vars map[string]string
	if json.Unmarshal(out, &vars) != nil || vars["GOPROXY"] == "" {
		return l.failed(asked, errNoRegistry)
	}
	if root := vars["GOROOT"]; filepath.IsAbs(root) {
		l.saw(filepath.Join(root, "go.env"))
	}
	sources := map[string]string{"GOPROXY": "go env GOPROXY", "GOSUMDB": "go env GOSUMDB"}
	if err := l.goSources(vars["GOENV"], sources); err != nil {
		return err
	}
	l.addGoProxy(vars["GOPROXY"], sources["GOPROXY"])
	l.addGoSum(vars["GOSUMDB"], sources["GOSUMDB"])
	if p := vars["GOPRIVATE"] + vars["GONOPROXY"]; p != "" && p != "none" {
		l.note("modules that GOPRIVATE or GONOPROXY names are fetched from their own hosts; those take a rule of their own")
	}
	return nil
}

// goQuiet keeps the go command from writing: it counts its uses below the
// user's configuration directory, where its settings file also is. So the
// directory is one that cannot be made, and the file is named.
func (l *look) goQuiet() []string {
	if runtime.GOOS == "darwin" || runtime.GOOS == "windows" {
		return nil // where the directory is not told by a variable
	}
	env := []string{"XDG_CONFIG_HOME=" + os.DevNull + "/none"}
	if l.vars["GOENV"] != "" {
		return env
	}
	config := filepath.Join(l.env.Home, ".config")
	if x := l.vars["XDG_CONFIG_HOME"]; filepath.IsAbs(x) {
		config = x
	}
	return append(env, "GOENV="+filepath.Join(config, "go", "env"))
}

// goFromVars answers without the go command: GOPROXY in the environment says
// all but the default checksum database.
func (l *look) goFromVars() error {
	if l.vars["GOPROXY"] == "" || l.vars["GOSUMDB"] == "" {
		return &MissingError{Registry: l.registry, Client: "go"}
	}
	l.addGoProxy(l.vars["GOPROXY"], variable("GOPROXY"))
	l.addGoSum(l.vars["GOSUMDB"], variable("GOSUMDB"))
	return nil
}

// goSources says more exactly where the two values stand.
func (l *look) goSources(envFile string, sources map[string]string) error {
	if filepath.IsAbs(envFile) {
		b, err := l.read(envFile)
		if err != nil {
			return err
		}
		for i, line := range strings.Split(string(b), "\n") {
			k, _, ok := strings.Cut(strings.TrimSpace(line), "=")
			if _, asked := sources[k]; ok && asked {
				sources[k] = at(envFile, i+1)
			}
		}
	}
	for k := range sources {
		if l.vars[k] != "" {
			sources[k] = variable(k)
		}
	}
	return nil
}

// addGoProxy reads the list as the go command does: it ends at "direct" or
// "off", and a word without ":/" is a host.
func (l *look) addGoProxy(list, source string) {
	for _, p := range strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == '|' }) {
		p = strings.TrimSpace(p)
		switch {
		case p == "":
		case p == "off":
			return
		case p == "direct":
			l.note("%s also says \"direct\": a module that no proxy has is fetched from its own host, which takes a rule of its own", source)
			return
		case strings.Contains(p, ":/"):
			l.addURL(p, source)
		case !filepath.IsAbs(p):
			l.addURL("https://"+p, source)
		}
	}
}

// addGoSum reads "name[+key] [url]", or "off". Without a URL the name is the
// host.
func (l *look) addGoSum(value, source string) {
	words := strings.Fields(value)
	switch {
	case len(words) == 0 || words[0] == "off":
	case len(words) > 1:
		u := words[1]
		if !strings.Contains(u, ":/") {
			u = "https://" + u
		}
		l.addURL(u, source)
	default:
		name, _, _ := strings.Cut(words[0], "+")
		l.addURL("https://"+name, source)
	}
}
