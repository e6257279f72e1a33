// Package source promises a key from where its person keeps it: a variable, a
// file of their own, a command, the desktop's keyring. It says in one sentence
// what is wrong where there is none, and never repeats what it has read.
//
// Everything happens as the user of this process: in a person's own node as
// that person.
package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// A Kind is where a key is kept.
type Kind string

// The kinds. A key of kind Store is in the node's own store and not read here.
const (
	Store   Kind = "store"
	Env     Kind = "env"
	File    Kind = "file"
	Command Kind = "command"
	Keyring Kind = "keyring"
)

// A Reference says where one key is kept.
type Reference struct {
	Kind Kind `json:"kind"`
	// At is the variable, the absolute path, the command line for /bin/sh, or
	// the item's attributes as "service=x,account=y".
	At string `json:"at,omitempty"`
}

// String is the reference as people read it.
func (r Reference) String() string {
	switch r.Kind {
	case Store:
		return "the node's store"
	case Env:
		return "variable " + r.At
	}
	return string(r.Kind) + " " + r.At
}

// An Error says why there is no key. It holds no byte of what was read.
type Error struct {
	reason, hint string
	none, gone   bool
	exposed      bool
}

// None reports whether it was a command that ran to its own end, by an exit status or
// without a word, and had no key to give. One that was killed, took too long or could
// not be run at all has not said that.
func (e *Error) None() bool { return e.none }

func (e *Error) Error() string { return e.reason }

// Hint is the next step for people.
func (e *Error) Hint() string { return e.hint }

// Gone reports whether an error of [Reader.Read] says that there is no such file
// or item, and not only that it cannot be read.
func Gone(err error) bool {
	if _, absent := errors.AsType[*missing](err); absent {
		return true
	}
	e, ok := errors.AsType[*Error](err)
	return ok && e.gone
}

// Exposed reports whether an error of [Reader.Read] says that the file is not its
// person's alone: such a key is not given, and not kept where it was.
func Exposed(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.exposed
}

func exposed(hint, format string, a ...any) *Error {
	e := errorf(hint, format, a...)
	e.exposed = true
	return e
}

func errorf(hint, format string, a ...any) *Error {
	return &Error{reason: fmt.Sprintf(format, a...), hint: hint}
}

// givesNone is the error of a command that has none.
func givesNone(format string, a ...any) *Error {
	return &Error{reason: fmt.Sprintf(format, a...), hint: "run it yourself and see what it says", none: true}
}

// Check refuses a reference that could never lead to a key.
func (r Reference) Check() error {
	switch {
	case r.Kind == Store:
		return nil
	case r.At == "" || len(r.At) > 4096 || strings.ContainsAny(r.At, "\x00\n"):
		return errorf("", "the %s of the secret is not named", r.Kind)
	case r.Kind == Env && strings.ContainsAny(r.At, "= "):
		return errorf("", "%.40q is no name of a variable", r.At)
	case r.Kind == File && !strings.HasPrefix(r.At, "/"):
		return errorf("", "the file %q is not named by an absolute path", r.At)
	case r.Kind == Keyring:
		_, err := attributes(r.At)
		return err
	case r.Kind == Env, r.Kind == File, r.Kind == Command:
		return nil
	}
	return errorf("", "%q is no place where a key can be kept", r.Kind)
}

// A Reader reads keys. The zero value reads no variables.
type Reader struct {
	// Getenv answers variables, of whoever asked.
	Getenv func(string) string
	// Cache keeps what commands said, or is nil.
	Cache *Cache
	// Path is where commands find programs, the PATH of this process where it is
	// empty. It should hold no directory that a session can write.
	Path string
}

// within bounds a command and a keyring that answer late or never.
const within = 10 * time.Second

// Read returns the key that r leads to. The caller wipes it.
func (o Reader) Read(ctx context.Context, r Reference) (v secrets.Value, err error) {
	if err := r.Check(); err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	switch r.Kind {
	case Env:
		s := ""
		if o.Getenv != nil {
			s = o.Getenv(r.At)
		}
		if s == "" {
			return v, errorf("set it where you start the session", "the variable %s is not set", r.At)
		}
		v = Trimmed([]byte(s))
	case File:
		v, err = readFile(r.At)
	case Command:
		v, err = o.Cache.command(ctx, r.At, o.Path)
	case Keyring:
		v, err = readKeyring(ctx, r.At)
	default:
		return v, errorf("", "a key in the node's store is not read from outside")
	}
	if err != nil {
		return v, err
	}
	return v, secrets.CheckShape(v)
}

// Trimmed takes b over without the line break at its end.
func Trimmed(b []byte) secrets.Value {
	return secrets.NewValue(bytes.TrimSuffix(bytes.TrimSuffix(b, []byte("\n")), []byte("\r")))
}

// plain is the innermost error: the place is named already.
func plain(err error) string {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err.Error()
	}
	return err.Error()
}
