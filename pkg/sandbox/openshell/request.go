package openshell

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// What both generations take, so that a request that neither would is not
// sent.
const (
	mostEnv      = 128
	mostEnvValue = 8192
	mostArgs     = 256
	mostArg      = 32 << 10
	mostPaths    = 256
	mostPath     = 4096
)

var (
	nameShape  = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]*[a-z0-9])?$`)
	envShape   = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	labelShape = regexp.MustCompile(`^([A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)?$`)
)

// check refuses what a gateway would refuse, or would take and not do.
func (r Request) check() error {
	bad := func(format string, args ...any) error {
		return &Error{Code: BadRequest, Sentence: "the request for a sandbox is not valid: " + fmt.Sprintf(format, args...)}
	}
	if len(r.Name) > MostName || !nameShape.MatchString(r.Name) || strings.Contains(r.Name, "--") {
		return bad("a gateway takes no name like %q", r.Name)
	}
	if r.UID <= 0 || r.GID <= 0 {
		return &Error{Code: RootRefused, Sentence: fmt.Sprintf("OpenShell runs nothing as user or group 0, and this session would be %d:%d", r.UID, r.GID),
			Advice: "sessions of root need the native engine: node.sandbox.engine native"}
	}
	if r.Image == "" || len(r.Command) == 0 || len(r.Command) > mostArgs {
		return bad("it needs an image and a command of 1 to %d words", mostArgs)
	}
	for _, arg := range r.Command {
		if len(arg) > mostArg || strings.ContainsRune(arg, 0) {
			return bad("a word of the command is too long or contains NUL")
		}
	}
	for key, value := range r.Labels {
		if !labelShape.MatchString(key) || key == "" || !labelShape.MatchString(value) {
			return bad("the label %s=%s", word(key), word(value))
		}
	}
	if err := checkEnv(r.Env); err != "" {
		return bad("%s", err)
	}
	if len(r.ReadOnly)+len(r.ReadWrite) > mostPaths {
		return bad("%d paths, %d is the most that a policy takes", len(r.ReadOnly)+len(r.ReadWrite), mostPaths)
	}
	for _, p := range append(append([]string{}, r.ReadOnly...), r.ReadWrite...) {
		if !absolute(p) {
			return bad("the path %q", word(p))
		}
	}
	for _, way := range r.Ways {
		if way.Host == "" || way.Port <= 0 || way.Port > 65535 || !absolute(way.Program) {
			return bad("the way out to %q port %d for %q", word(way.Host), way.Port, word(way.Program))
		}
	}
	return r.checkMounts(bad)
}

func (r Request) checkMounts(bad func(string, ...any) error) error {
	targets := map[string]bool{}
	for _, m := range r.Mounts {
		if m.Memory > 0 && m.Source == "" {
			m.Source = m.Target
		}
		if !absolute(m.Source) || !absolute(m.Target) || m.Target == "/" || strings.ContainsRune(m.Source, ':') || strings.ContainsRune(m.Target, ':') {
			return bad("the mount of %q at %q: a gateway takes no relative path and none with a colon", word(m.Source), word(m.Target))
		}
		if targets[m.Target] {
			return bad("two mounts at %s", plain(m.Target))
		}
		targets[m.Target] = true
		for _, reserved := range product.Reserved {
			if within(m.Target, reserved) || within(reserved, m.Target) {
				return &Error{Code: TargetReserved, Sentence: fmt.Sprintf("OpenShell keeps %s for itself, so nothing can be mounted at %s", reserved, plain(m.Target)),
					Advice: "move the repository elsewhere"}
			}
		}
	}
	return nil
}

// checkEnv says what is wrong with an environment, or "".
func checkEnv(env map[string]string) string {
	if len(env) > mostEnv {
		return fmt.Sprintf("%d variables, %d is the most", len(env), mostEnv)
	}
	for key, value := range env {
		if !envShape.MatchString(key) || strings.HasPrefix(key, product.EnvPrefix) {
			return fmt.Sprintf("a gateway takes no variable called %q", word(key))
		}
		if len(value) > mostEnvValue || strings.ContainsAny(value, "\x00\n\r") {
			return fmt.Sprintf("the value of %s has more than %d bytes or several lines", key, mostEnvValue)
		}
	}
	return ""
}

func absolute(p string) bool {
	return path.IsAbs(p) && path.Clean(p) == p && len(p) <= mostPath && !strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f })
}

// within reports whether p is root or lies below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }
