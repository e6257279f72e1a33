// Package registries promises to say where the package clients of this
// machine fetch from, asked of the clients and their settings and never from
// a list of its own, so that a company's mirror is as right as a default.
//
// A default that stands in no settings file is asked of the client itself.
// What comes out is host and port with the place that said so. User names,
// passwords, queries and paths of the URLs never come out: any of them may
// hold a token.
//
// Clients run with a small environment in the root directory, so that no
// repository's own settings decide; no client changes anything below the home.
package registries

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"
)

// A Host is one place that a package client reads from.
type Host struct {
	// Name is lower case, without a final dot, in ASCII form; or an address.
	Name string `json:"name"`
	Port uint16 `json:"port"`
	// TLS reports whether the client speaks TLS there.
	TLS bool `json:"tls"`
	// Sources say where the host came from: a file with its line, a variable,
	// or the client's command. Sorted, never empty.
	Sources []string `json:"sources"`
}

// Found is the answer for one registry.
type Found struct {
	// Registry is the name that was asked for.
	Registry string `json:"registry"`
	// Hosts is sorted by name and port. It may be empty: settings may say
	// that packages come from a directory only.
	Hosts []Host `json:"hosts"`
	// Notes say, in sentences for people, what the settings ask for and
	// Hosts cannot give.
	Notes []string `json:"notes,omitempty"`
}

// Env is on whose behalf and how the clients are asked. Home and Vars are
// required.
type Env struct {
	// Home is the absolute path of the person's home directory.
	Home string
	// Vars is the person's environment as [os.Environ] gives it. Only what
	// the clients themselves read is handed on to them.
	Vars []string
	// Avoid names directories whose programs are never run, such as the
	// repository and its worktree: a repository must not answer this question.
	Avoid []string
	// Offline forbids the one question over the network that a client may be
	// let ask: cargo's, for the place of its downloads, where its own cache
	// does not have it.
	Offline bool
	// Cache keeps answers in memory; nil keeps none. A kept answer costs a
	// few stat calls.
	Cache *Cache
	// CacheDir is a private directory (0700) that keeps answers for the next
	// process; empty keeps none.
	CacheDir string

	limit time.Duration // of one question; 0 is askTimeout
}

// finders is the table of registries; a function fills the look it is given.
func finders() map[string]func(context.Context, *look) error {
	return map[string]func(context.Context, *look) error{
		"npm":    findNpm,
		"pypi":   findPypi,
		"go":     findGo,
		"crates": findCrates,
		"debian": findDebian,
		"maven":  findMaven,
	}
}

// Names returns the registries that [Find] knows, sorted.
func Names() []string { return slices.Sorted(maps.Keys(finders())) }

// An UnknownError says that a registry of this name is not known.
type UnknownError struct{ Name string }

func (e *UnknownError) Error() string { return fmt.Sprintf("unknown package registry %q", e.Name) }

// Hint names the registries that are known.
func (e *UnknownError) Hint() string { return "known registries: " + joinWords(Names()) }

// A MissingError says that the client which would have to be asked is not
// installed, and no setting answers in its stead.
type MissingError struct {
	Registry string
	// Client is the program as one types it.
	Client string
}

func (e *MissingError) Error() string {
	return fmt.Sprintf("registry %s: no setting names its hosts, and %s, which knows the default, is not installed", e.Registry, e.Client)
}

// Hint says what to do.
func (e *MissingError) Hint() string {
	return fmt.Sprintf("install %s, or name the hosts in a rule of the policy instead of the preset %q", e.Client, e.Registry)
}

// A ClientError says that the client, or a settings file of it, gave no answer.
// Its text never holds what the client printed: that may contain credentials.
type ClientError struct {
	Registry string
	// Asked is the command line or the file.
	Asked string
	Err   error
}

func (e *ClientError) Error() string {
	return fmt.Sprintf("registry %s: asking %s: %v", e.Registry, e.Asked, e.Err)
}

// Unwrap returns the cause.
func (e *ClientError) Unwrap() error { return e.Err }

// Hint says what to do.
func (e *ClientError) Hint() string {
	return fmt.Sprintf("see what %q says outside of a repository and mend that, or name the hosts in a rule instead of the preset %q", e.Asked, e.Registry)
}

// errNoHome says that the caller named no absolute home directory.
var errNoHome = errors.New("the home directory must be an absolute path")

// Find returns the hosts that reading packages of the registry takes:
// metadata, files, and checksums where the client checks them elsewhere.
// Errors are [*UnknownError], [*MissingError], [*ClientError], or the
// context's. Each question to a client ends after five seconds.
func Find(ctx context.Context, name string, env Env) (Found, error) {
	find, ok := finders()[name]
	if !ok {
		return Found{}, &UnknownError{Name: name}
	}
	l, err := newLook(name, env)
	if err != nil {
		return Found{}, &ClientError{Registry: name, Asked: "the environment", Err: err}
	}
	if f, ok := env.recall(l.key); ok {
		return f, nil
	}
	if err := find(ctx, l); err != nil {
		if ctx.Err() != nil {
			return Found{}, fmt.Errorf("registry %s: %w", name, context.Cause(ctx))
		}
		return Found{}, err
	}
	f := l.found()
	if !l.unsettled {
		env.keep(l, f)
	}
	return f, nil
}
