package registries

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// findNpm asks npm for all its settings at once: the default registry, those
// of scopes, and where its settings files are. Without npm the person's own
// npmrc may still name a registry.
func findNpm(ctx context.Context, l *look) error {
	user := filepath.Join(l.env.Home, ".npmrc")
	if p := l.npmVar("userconfig"); filepath.IsAbs(p) {
		user = p
	}
	lines, err := l.npmrc(user)
	if err != nil {
		return err
	}
	npm, ok := l.program("npm")
	if !ok {
		return l.npmFromFile(user, lines)
	}
	l.passNpmVariables(lines)
	asked := "npm config list --json"
	out, err := l.run(ctx, ask{
		args: []string{npm, "config", "list", "--json"},
		// Its cache, where it would log, is a directory that cannot be made.
		without: []string{"npm_config_cache"},
		env:     []string{"npm_config_cache=" + os.DevNull + "/none", "npm_config_update_notifier=false", "npm_config_loglevel=silent", "NO_COLOR=1"},
	})
	if err != nil {
		return l.failed(asked, err)
	}
	config, err := parseNpmConfig(out)
	if err != nil {
		return l.failed(asked, err)
	}
	return l.addNpm(asked, config, user)
}

// addNpm adds the registries that npm named, each with the file that set it.
func (l *look) addNpm(asked string, config map[string]string, user string) error {
	places := []string{user}
	for _, key := range []string{"userconfig", "globalconfig"} {
		if p := config[key]; filepath.IsAbs(p) && !slices.Contains(places, p) {
			places = append(places, p)
		}
	}
	sources := map[string]string{}
	for _, p := range slices.Backward(places) {
		lines, err := l.npmrc(p)
		if err != nil {
			return err
		}
		for _, s := range lines {
			sources[s.key] = at(p, s.line)
		}
	}
	if config["registry"] == "" {
		return l.failed(asked, errNoRegistry)
	}
	for key, value := range config {
		if !isNpmRegistry(key) {
			continue
		}
		source := asked
		if s, ok := sources[key]; ok {
			source = s
		}
		if l.npmVar(key) != "" {
			source = variable("npm_config_" + key)
		}
		l.addURL(value, source)
	}
	return nil
}

func (l *look) npmFromFile(user string, lines []setting) error {
	named := false
	for _, s := range lines {
		if !isNpmRegistry(s.key) {
			continue
		}
		value, ok := expandNpm(s.value, func(n string) (string, bool) { v, ok := l.vars[n]; return v, ok })
		if !ok {
			l.note("%s uses a variable that is not set and was left out", at(user, s.line))
			continue
		}
		named = named || s.key == "registry"
		l.addURL(value, at(user, s.line))
	}
	if v := l.npmVar("registry"); v != "" {
		named = true
		l.addURL(v, variable("npm_config_registry"))
	}
	if !named {
		return &MissingError{Registry: l.registry, Client: "npm"}
	}
	return nil
}

var errNoRegistry = errors.New("the answer names no registry")

// parseNpmConfig keeps the settings that are text.
func parseNpmConfig(b []byte) (map[string]string, error) {
	var all map[string]any
	if json.Unmarshal(b, &all) != nil {
		return nil, errors.New("the answer is not a JSON object")
	}
	out := map[string]string{}
	for k, v := range all {
		if s, ok := v.(string); ok {
			out[k] = s
		}
	}
	return out, nil
}

func isNpmRegistry(key string) bool {
	return key == "registry" || (strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry"))
}

// npmVar reads a setting from the environment, where npm looks at any case.
func (l *look) npmVar(key string) string {
	for k, v := range l.vars {
		name, ok := strings.CutPrefix(strings.ToLower(k), "npm_config_")
		if ok && strings.ReplaceAll(name, "_", "-") == strings.ReplaceAll(key, "_", "-") {
			return v
		}
	}
	return ""
}

func (l *look) npmrc(path string) ([]setting, error) {
	b, err := l.read(path)
	if err != nil {
		return nil, err
	}
	return parseNpmrc(b), nil
}

// passNpmVariables hands on what the person's npmrc puts in for registries;
// a token's variable stays out.
func (l *look) passNpmVariables(lines []setting) {
	for _, s := range lines {
		if !isNpmRegistry(s.key) {
			continue
		}
		for _, n := range npmVariables(s.value) {
			n = strings.TrimSuffix(n, "?")
			if v, ok := l.vars[n]; ok {
				l.pass = append(l.pass, n+"="+v)
			}
		}
	}
}
