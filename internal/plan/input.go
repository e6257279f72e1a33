package plan

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/mojoup/mojoup-node/internal/repo"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Input is everything that a plan depends on.
type Input struct {
	// ID names the sandbox, see sandbox.Spec.
	ID         string
	Repository repo.Repository
	User       User
	Host       Host
	// Env is what the caller sent, KEY=VALUE: the variables that [CallerEnv]
	// lets through, then what was asked for by name. The last of a name wins.
	Env []string
	// Tool is what the agent tool wants, the zero value for any other command.
	Tool Tool
	// Author is who commits inside, empty where git on the host has none.
	Author Author
	// Logins are what git may sign in with, the preferred first.
	Logins []Login
	// Direct are the hosts that rules of the kind tcp name in full, sorted.
	Direct []policy.HostPort
	// SessionCA is the session's certificate authority, PEM.
	SessionCA []byte
	// Limits are those of the effective policy and the settings.
	Limits sandbox.Limits
	// Private are the node's own directories, which nothing inside may see.
	Private []string
	// WorkDir is the directory of the node over which engines mount.
	WorkDir string
	// Image says that the root is an image's and not this machine's: its
	// programs, libraries and settings are there already.
	Image bool
}

// Tool is what an agent tool wants of its session.
type Tool struct {
	// Env are variables, KEY=VALUE; those of Input.Env win over them.
	Env []string
	// Files are the session's own: the tool may change and replace them.
	Files []OwnFile
}

// An OwnFile is one of a session's own.
type OwnFile struct {
	Path string // below the home
	Text []byte
}

// User is the person on whose behalf the session runs.
type User struct {
	Name, Group string // of passwd and group; empty where there is none
	UID, GID    int
	Groups      []int
	Home        string // as passwd spells it
	Shell       string
}

// A Login is a password for git, which is a stand-in, and where it may go.
type Login struct {
	// Host is a pattern as in a policy, with a port where that is not 443.
	Host     string
	Password string
}

// Author is git's user.name and user.email.
type Author struct{ Name, Email string }

// complete gives a person without a passwd entry what programs expect.
func (u User) complete() User {
	if u.Name == "" {
		u.Name = "user"
		if u.UID == 0 {
			u.Name = "root"
		}
	}
	if u.Group == "" {
		u.Group = u.Name
	}
	if u.Shell == "" {
		u.Shell = "/bin/sh"
	}
	switch u.Home {
	case "", "/", "/nonexistent", "/dev/null", "/var/empty":
		u.Home = "/home/" + u.Name
	}
	u.Home = filepath.Clean(u.Home)
	return u
}

func (in Input) check() error {
	for what, value := range map[string]string{"user name": in.User.Name, "group name": in.User.Group, "home directory": in.User.Home, "shell": in.User.Shell} {
		if strings.ContainsAny(value, ":\n\x00") {
			return &Error{What: fmt.Sprintf("the %s %q cannot stand in a passwd file", what, value), Advice: "correct the user's entry"}
		}
	}
	if !filepath.IsAbs(in.User.Home) {
		return &Error{What: fmt.Sprintf("the home directory %q is not an absolute path", in.User.Home), Advice: "correct the user's entry"}
	}
	for _, kv := range in.Env {
		if name, _, ok := strings.Cut(kv, "="); !ok || name == "" || strings.ContainsRune(kv, 0) {
			return &Error{What: fmt.Sprintf("the variable %q is not of the form KEY=VALUE", name), Advice: "correct --env"}
		}
	}
	if in.Repository.Top == "" || in.Repository.Tree.Top != in.Repository.Top {
		return &Error{What: "BUG: a plan without a repository"}
	}
	return nil
}
