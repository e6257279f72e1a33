package registries

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	toml "github.com/pelletier/go-toml/v2"
)

// findCrates reads cargo's settings. Where they do not replace the default
// source, cargo is let show which host it asks (see askCargo); where the
// crates themselves lie is read in the index's own config.json, in cargo's
// cache or fetched by cargo.
func findCrates(ctx context.Context, l *look) error {
	home := filepath.Join(l.env.Home, ".cargo")
	if p := l.vars["CARGO_HOME"]; filepath.IsAbs(p) {
		home = p
	}
	config, path, err := l.cargoConfig(home)
	if err != nil {
		return err
	}
	indexes, replaced := config.indexes(path)
	l.cargoVars(indexes)
	cargo, ok := l.program("cargo")
	switch {
	case !replaced && !ok:
		return &MissingError{Registry: l.registry, Client: "cargo"}
	case !replaced:
		if err := l.askCargo(ctx, cargo, path, indexes); err != nil {
			return err
		}
	}
	for raw, source := range indexes {
		l.addURL(strings.TrimPrefix(raw, "sparse+"), source)
	}
	missing := l.cargoDownloads(filepath.Join(home, "registry", "index"), slices.Collect(maps.Keys(indexes)), "")
	if len(missing) > 0 && ok && !l.env.Offline {
		missing = l.fetchCargo(ctx, cargo, path, missing)
	}
	for _, raw := range missing {
		l.unsettled = true
		l.note("where the crates of the index that %s names are downloaded from is known once cargo has read it: run cargo fetch in a project that uses it", indexes[raw])
	}
	return nil
}

// cargoConfig is the part of cargo's settings that names places.
type cargoConfig struct {
	Source map[string]struct {
		Registry    string `toml:"registry"`
		ReplaceWith string `toml:"replace-with"`
		Directory   string `toml:"directory"`
		Local       string `toml:"local-registry"`
		Git         string `toml:"git"`
	} `toml:"source"`
	Registries map[string]struct {
		Index string `toml:"index"`
	} `toml:"registries"`
}

// defaultSource is cargo's own name for its default.
const defaultSource = "crates-io"

// cargoConfig reads the settings file: "config" wins over "config.toml", as in
// cargo. Path is where it stands, empty where there is none.
func (l *look) cargoConfig(home string) (c cargoConfig, path string, err error) {
	for _, name := range []string{"config", "config.toml"} {
		p := filepath.Join(home, name)
		b, err := l.read(p)
		if err != nil {
			return c, "", err
		}
		if b == nil {
			continue
		}
		c, err := parseCargo(b)
		if err != nil {
			return c, "", l.failed(p, err)
		}
		return c, p, nil
	}
	return c, "", nil
}

// indexes returns the registries' index URLs with their source, and whether
// the default source is replaced.
func (c cargoConfig) indexes(path string) (out map[string]string, replaced bool) {
	out = map[string]string{}
	for name, r := range c.Registries {
		if r.Index != "" {
			out[r.Index] = path + " [registries." + printable(name) + "]"
		}
	}
	name := defaultSource
	for range 16 { // a ring of replacements is cargo's to report
		s, ok := c.Source[name]
		switch {
		case ok && s.ReplaceWith != "":
			name, replaced = s.ReplaceWith, true
			continue
		case ok && s.Registry != "":
			out[s.Registry] = path + " [source." + printable(name) + "]"
			return out, true
		case ok && (s.Directory != "" || s.Local != ""):
			return out, true
		case ok && s.Git != "":
			out[s.Git] = path + " [source." + printable(name) + "]"
			return out, true
		}
		// A name of [registries] stands for its index, which is in already.
		_, known := c.Registries[name]
		return out, replaced && (known && name != defaultSource)
	}
	return out, true
}

// cargoVars adds the registries that variables name.
func (l *look) cargoVars(indexes map[string]string) {
	for k, v := range l.vars {
		if strings.HasPrefix(k, "CARGO_REGISTRIES_") && strings.HasSuffix(k, "_INDEX") && v != "" {
			indexes[v] = variable(k)
		}
	}
}

// parseCargo reads the settings; its errors never quote the file.
func parseCargo(b []byte) (cargoConfig, error) {
	var c cargoConfig
	if err := toml.Unmarshal(b, &c); err != nil {
		return cargoConfig{}, tomlError(err)
	}
	return c, nil
}

// cargoDownloads adds the download hosts that the index caches below dir know
// and returns the indexes without an answer. A cache's name is the index's
// host, a dash and a digest. Told is the source to name for a throw-away
// cache, which is then no input either; empty for the person's own.
func (l *look) cargoDownloads(dir string, indexes []string, told string) (missing []string) {
	if told == "" {
		l.saw(dir)
	}
	for _, raw := range indexes {
		u, err := url.Parse(strings.TrimPrefix(raw, "sparse+"))
		if err != nil || u.Hostname() == "" {
			continue
		}
		files, _ := filepath.Glob(filepath.Join(dir, globQuote(u.Hostname())+"-*", "config.json"))
		known := false
		for _, f := range files {
			if told == "" {
				l.saw(f)
			}
			b, err := os.ReadFile(f)
			if dl := parseIndexConfig(b); err == nil && dl != "" {
				l.addURL(dl, cmp.Or(told, f))
				known = true
			}
		}
		if !known {
			missing = append(missing, raw)
		}
	}
	return missing
}

// parseIndexConfig returns the download URL of an index, without its markers.
func parseIndexConfig(b []byte) string {
	var c struct {
		Dl string `json:"dl"`
	}
	if json.Unmarshal(b, &c) != nil {
		return ""
	}
	dl, _, _ := strings.Cut(c.Dl, "{")
	return dl
}

// globQuote keeps a foreign host name from being a pattern.
func globQuote(s string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(s)
}

// copyCargo gives a throw-away cargo home the person's settings.
func copyCargo(home, config string) error {
	if config == "" {
		return nil
	}
	b, err := os.ReadFile(config)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(home, "config.toml"), b, 0o600)
}
