package config

import (
	"fmt"
	"strings"
)

// Exit codes, as package fault has them: a wrong word on the command line is
// wrong usage, a wrong word in a file means that nothing could be found out.
const (
	exitUsage   = 2
	exitUnknown = 3
)

// A KeyError refuses a setting that does not exist.
type KeyError struct {
	Key     string
	Nearest string // the setting that was perhaps meant, or ""
	Retired string // what became of it, for one that used to exist
	keys    string // every setting there is
}

func (e *KeyError) Error() string {
	if e.Retired != "" {
		return fmt.Sprintf("there is no setting %s any more: %s", e.Key, e.Retired)
	}
	return "there is no setting " + quoteKey(e.Key)
}

// Hint names the nearest setting and all of them.
func (e *KeyError) Hint() string {
	if e.Retired != "" {
		return ""
	}
	hint := "settings are " + e.keys
	if strings.HasPrefix(e.Key, SignInMode) {
		return "a tool of your own has its mode in its profile: default, below [signin]; " + hint
	}
	if e.Nearest != "" {
		hint = "did you mean " + e.Nearest + "? " + hint
	}
	return hint
}

// Code is for programs.
func (e *KeyError) Code() string { return "setting-unknown" }

// Exit is that of wrong usage.
func (e *KeyError) Exit() int { return exitUsage }

// A ValueError refuses a value.
type ValueError struct {
	Key   string
	Value string // as it was written
	Want  string // what it must be
	hint  string // what was perhaps meant, or how it is written
}

// Hint says what was perhaps meant, where that can be told.
func (e *ValueError) Hint() string { return e.hint }

func (e *ValueError) Error() string {
	return fmt.Sprintf("%s cannot be %s: it must be %s", e.Key, e.Value, e.Want)
}

// Code is for programs.
func (e *ValueError) Code() string { return "setting-invalid" }

// Exit is that of wrong usage.
func (e *ValueError) Exit() int { return exitUsage }

// A PlaceError says where a wrong setting stands.
type PlaceError struct {
	Place string // "file:line", or a variable
	Err   error
	More  int // other mistakes that are not named here
}

func (e *PlaceError) Error() string {
	msg := e.Place + ": " + e.Err.Error()
	if e.More > 0 {
		msg += fmt.Sprintf(" (and %d more)", e.More)
	}
	return msg
}

// Unwrap returns the mistake without its place.
func (e *PlaceError) Unwrap() error { return e.Err }

// Code is for programs.
func (e *PlaceError) Code() string { return "config-invalid" }

// Exit is that of not having found out.
func (e *PlaceError) Exit() int { return exitUnknown }

// A SyntaxError refuses a file that is no TOML.
type SyntaxError struct {
	File         string
	Line, Column int // from 1
	Reason       string
	Advice       string // what to write instead
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Reason)
}

// Code is for programs.
func (e *SyntaxError) Code() string { return "config-invalid" }

// Exit is that of not having found out.
func (e *SyntaxError) Exit() int { return exitUnknown }

// Hint says what to do.
func (e *SyntaxError) Hint() string {
	if e.Advice == "" {
		return "mend that line, or move the file away; nothing was changed"
	}
	return e.Advice
}

// A FileError says that the file of settings cannot be read or written.
type FileError struct {
	File  string
	Doing string // "reading", "writing"
	Err   error
}

func (e *FileError) Error() string {
	// The errors of package os name the path again.
	reason := strings.TrimPrefix(innermost(e.Err).Error(), e.File+": ")
	return fmt.Sprintf("%s the settings %s: %s", e.Doing, e.File, reason)
}

// Unwrap returns what is behind it.
func (e *FileError) Unwrap() error { return e.Err }

// Code is for programs.
func (e *FileError) Code() string { return "config-file" }

// Exit is that of not having found out.
func (e *FileError) Exit() int { return exitUnknown }

// Hint says what to do.
func (e *FileError) Hint() string {
	if h, ok := e.Err.(interface{ Hint() string }); ok {
		return h.Hint()
	}
	return "MOJOUP_CONFIG can name another file"
}

// A TrustError refuses a file of settings that somebody else could have
// written.
type TrustError struct {
	File   string
	Reason string
	hint   string
}

func (e *TrustError) Error() string { return e.Reason }

// Hint says what to do.
func (e *TrustError) Hint() string { return e.hint }

// innermost unwraps the errors of package os, which repeat path and call.
func innermost(err error) error {
	for {
		u, ok := err.(interface{ Unwrap() error })
		if !ok || u.Unwrap() == nil {
			return err
		}
		err = u.Unwrap()
	}
}

// firstOf returns the first of several mistakes, which says how many follow.
func firstOf(errs []error) error {
	if len(errs) == 0 {
		return nil
	}
	if p, ok := errs[0].(*PlaceError); ok {
		first := *p
		first.More = len(errs) - 1
		return &first
	}
	return errs[0]
}

// quoteKey shows a key that somebody wrote: bare where it is made of the
// characters of ours, quoted and cut otherwise.
func quoteKey(key string) string {
	const most = 80
	if len(key) <= most && strings.Trim(key, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == "" && key != "" {
		return key
	}
	return shorten(key, most)
}

// shorten quotes a text of others and cuts it.
func shorten(s string, most int) string {
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	return fmt.Sprintf("%q", s)
}
