package registries

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// pipScript makes pip say what stands in no settings file: its default index,
// the host of that index's files, and the settings files that it would read.
// Its names have been pip's since version 10 (2018) or are asked for with care.
const pipScript = `
import json, sys
try:
    from pip._internal.models.index import PyPI
except ImportError:
    sys.exit(9) # noPip
files = []
try:
    from pip._internal.configuration import get_configuration_files
    for kind, paths in get_configuration_files().items():
        for path in paths:
            files.append([str(kind), path])
except Exception:
    pass
print(json.dumps({"simple": PyPI.simple_url, "files": PyPI.file_storage_domain, "settings": files}))
`

// noPip is how pipScript ends where this Python has no pip.
const noPip = 9

// A pipAnswer is what pipScript prints.
type pipAnswer struct {
	Simple   string      `json:"simple"`
	Files    string      `json:"files"`
	Settings [][2]string `json:"settings"`
}

// pipCommands are the commands that read packages; each may have a section.
var pipCommands = []string{"install", "download", "wheel"}

func findPypi(ctx context.Context, l *look) error {
	answer, askErr := l.askPip(ctx)
	if askErr != nil && ctx.Err() != nil {
		return askErr
	}
	files, err := l.pipFiles(answer)
	if err != nil {
		return err
	}
	needDefault := false
	for _, command := range pipCommands {
		needDefault = l.addPip(command, files) || needDefault
	}
	if needDefault {
		if askErr != nil {
			return askErr
		}
		l.addURL(answer.Simple, "pip's own code (default index)")
	}
	// The default index names files on a host of its own, also where a
	// setting names that index once more.
	if answer.Files != "" && l.hasHost(answer.Simple) {
		l.addHost(answer.Files, "443", true, "pip's own code (files of the default index)")
	}
	return nil
}

func (l *look) askPip(ctx context.Context) (pipAnswer, error) {
	python, ok := l.program("python3", "python")
	if !ok {
		return pipAnswer{}, &MissingError{Registry: l.registry, Client: "pip"}
	}
	asked := filepath.Base(python) + " -c (pip's own constants)"
	out, err := l.run(ctx, ask{args: []string{python, "-c", pipScript}, env: []string{"PYTHONDONTWRITEBYTECODE=1"}})
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == noPip {
		return pipAnswer{}, &MissingError{Registry: l.registry, Client: "pip"}
	}
	if err != nil {
		return pipAnswer{}, l.failed(asked, err)
	}
	var a pipAnswer
	if json.Unmarshal(out, &a) != nil || a.Simple == "" {
		return pipAnswer{}, l.failed(asked, errNoRegistry)
	}
	return a, nil
}

// A pipFile is one settings file with its lines.
type pipFile struct {
	path  string
	lines []setting
}

// pipFiles reads the settings files, the strongest last. Without an answer of
// pip the places that its manual names are taken.
func (l *look) pipFiles(a pipAnswer) ([]pipFile, error) {
	byKind := map[string][]string{}
	for _, s := range a.Settings {
		byKind[s[0]] = append(byKind[s[0]], s[1])
	}
	if len(a.Settings) == 0 {
		byKind["global"] = []string{"/etc/pip.conf"}
		byKind["user"] = []string{filepath.Join(l.env.Home, ".pip/pip.conf"), filepath.Join(l.env.Home, ".config/pip/pip.conf")}
	}
	own := l.vars["PIP_CONFIG_FILE"]
	if own == os.DevNull {
		return nil, nil // pip's way to say: no settings file at all
	}
	if filepath.IsAbs(own) {
		byKind["env"] = []string{own}
		if stat(own).Size >= 0 {
			delete(byKind, "user")
		}
	}
	var out []pipFile
	for _, kind := range []string{"global", "user", "site", "env"} {
		for _, p := range byKind[kind] {
			if !filepath.IsAbs(p) {
				continue
			}
			b, err := l.read(p)
			if err != nil {
				return nil, err
			}
			out = append(out, pipFile{p, parsePipConf(b)})
		}
	}
	return out, nil
}

// addPip adds what one command reads from and reports whether it would use
// the default index.
func (l *look) addPip(command string, files []pipFile) (needDefault bool) {
	for _, key := range []string{"extra-index-url", "find-links"} {
		value, source := l.pipValue(command, key, files)
		for _, u := range strings.Fields(value) {
			if strings.Contains(u, "://") {
				l.addURL(u, source)
			}
		}
	}
	if v, _ := l.pipValue(command, "no-index", files); truth(v) {
		return false
	}
	value, source := l.pipValue(command, "index-url", files)
	if value == "" {
		value, source = l.pipValue(command, "pypi-url", files)
	}
	if value == "" {
		return true
	}
	l.addURL(value, source)
	return false
}

// pipValue is the one that pip would take: a variable, then the command's
// section, then [global]; in each the strongest file.
func (l *look) pipValue(command, key string, files []pipFile) (value, source string) {
	for _, section := range []string{"global", command} {
		for _, f := range files {
			for _, s := range f.lines {
				if s.section == section && s.key == key {
					value, source = s.value, at(f.path, s.line)
				}
			}
		}
	}
	name := "PIP_" + strings.ToUpper(strings.ReplaceAll(key, "-", "_"))
	if v := l.vars[name]; v != "" {
		value, source = v, variable(name)
	}
	return value, source
}

// truth reads a switch as pip does.
func truth(s string) bool {
	switch strings.ToLower(s) {
	case "y", "yes", "t", "true", "on", "1":
		return true
	}
	return false
}
