package registries

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/internal/searchpath"
	"github.com/mojoup/mojoup-node/pkg/program"
)

const (
	askTimeout = 5 * time.Second
	maxAnswer  = 1 << 20 // bytes
)

// neutralDir is where clients run. Most of them read settings of their
// working directory and of every directory above it. Above a temporary
// directory other people may write; the root directory is the machine's own.
const neutralDir = "/"

// sharedVars are handed to every client: where its own files and the version
// managers that start it lie.
var sharedVars = []string{
	"XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_HOME", "XDG_CACHE_HOME",
	"PYENV_ROOT", "PYENV_VERSION", "NVM_DIR", "VOLTA_HOME", "FNM_DIR", "N_PREFIX",
	"ASDF_DIR", "ASDF_DATA_DIR", "MISE_DATA_DIR", "MISE_CONFIG_DIR", "SDKMAN_DIR",
	"RUSTUP_HOME", "RUSTUP_TOOLCHAIN", "GOROOT", "GOPATH", "JAVA_HOME", "APT_CONFIG",
}

// settingPrefixes are the variables, by registry and without regard to case,
// in which a client reads its settings.
var settingPrefixes = map[string][]string{
	"npm":    {"npm_config_"},
	"pypi":   {"pip_"},
	"go":     {"goproxy", "gosumdb", "gonosumdb", "gonoproxy", "goprivate", "goenv"},
	"crates": {"cargo_home", "cargo_registries_", "cargo_registry_default", "cargo_http_", "cargo_net_", "cargo_source_"},
	"maven":  {"maven_home", "m2_home"},
}

// clientEnv is the environment of the clients, sorted.
func (l *look) clientEnv() []string {
	out := []string{"HOME=" + l.env.Home, "LANG=C.UTF-8", "PATH=" + strings.Join(l.pathDirs(), ":")}
	for k, v := range l.vars {
		setting := slices.ContainsFunc(settingPrefixes[l.registry], func(p string) bool {
			return strings.HasPrefix(strings.ToLower(k), p)
		})
		if setting || slices.Contains(sharedVars, k) {
			out = append(out, k+"="+v)
		}
	}
	slices.Sort(out)
	return out
}

// pathDirs is the person's PATH without relative directories, those of
// repositories, and those to avoid.
func (l *look) pathDirs() []string {
	return filepath.SplitList(searchpath.Outside(l.vars["PATH"], l.env.Home, l.env.Avoid...))
}

func (l *look) avoided(path string) bool {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		real = path
	}
	return slices.ContainsFunc(l.env.Avoid, func(a string) bool {
		for _, p := range []string{path, real} {
			if rel, err := filepath.Rel(a, p); err == nil && filepath.IsLocal(rel) {
				return true
			}
		}
		return false
	})
}

// program finds the first of names on the path.
func (l *look) program(names ...string) (string, bool) {
	for _, name := range names {
		for _, dir := range l.pathDirs() {
			p := filepath.Join(dir, name)
			l.saw(p)
			st, err := os.Stat(p)
			if err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 && !l.avoided(p) {
				return p, true
			}
		}
	}
	return "", false
}

// An ask is one question to a client.
type ask struct {
	args []string // args[0] is the program's path
	// env is beside the client's usual environment, and wins over it.
	env []string
	// without names variables to leave out, in any case.
	without []string
}

var (
	errTooSlow = errors.New("no answer in time")
	errTooMuch = fmt.Errorf("an answer of more than %d bytes", maxAnswer)
)

// run asks and returns what the client printed. What it says on stderr is
// dropped: it may hold credentials.
func (l *look) run(ctx context.Context, a ask) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, cmp.Or(l.env.limit, askTimeout), errTooSlow)
	defer cancel()
	cmd := program.Command(ctx, a.args...)
	cmd.Dir = neutralDir
	cmd.Env = slices.DeleteFunc(slices.Clone(l.pass), func(kv string) bool {
		k, _, _ := strings.Cut(kv, "=")
		return slices.ContainsFunc(a.without, func(w string) bool { return strings.EqualFold(w, k) })
	})
	cmd.Env = append(cmd.Env, a.env...)
	out := &capped{}
	cmd.Stdout = out
	err := program.Ended(ctx, cmd.Run())
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case out.over:
		return nil, errTooMuch
	}
	return out.kept.Bytes(), err
}

// capped keeps maxAnswer bytes and reports whether there were more. The buffer
// is no embedded field: its ReadFrom would pass the limit by.
type capped struct {
	kept bytes.Buffer
	over bool
}

func (c *capped) Write(p []byte) (int, error) {
	room := maxAnswer - c.kept.Len()
	c.over = c.over || len(p) > room
	c.kept.Write(p[:min(len(p), room)])
	return len(p), nil
}
