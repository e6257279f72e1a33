// Package fault promises that whatever goes wrong reaches a person as one
// sentence and a next step, and a program as a code and an exit code.
//
// It belongs to the command line and the API. Parts return plain errors; where
// an error of theirs has more to say, it has one or more of the methods
//
//	Hint() string  // the next step, without a full stop
//	Code() string  // for programs: lower case words joined by '-'
//	Exit() int     // one of the exit codes below
//
// which [As] finds however deep the error is wrapped.
package fault

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Exit codes of the command line. 126 and 127 are a shell's; every other one
// belongs to the command that ran.
const (
	ExitDone      = 0
	ExitNegative  = 1   // a check or verdict is negative
	ExitUsage     = 2   // wrong usage
	ExitUnknown   = 3   // could not find out: broken configuration, no answer
	ExitCannotRun = 125 // the node could not run the session
)

// Codes that more than one place gives or asks for. Others stand where they
// are given.
const (
	CodeUsage     = "usage"
	CodeNegative  = "negative"
	CodeUnknown   = "unknown"
	CodeCannotRun = "cannot-run"
	CodeExec      = "exec"
	CodeCancelled = "cancelled"
	CodeTimeout   = "timeout"
	CodeInternal  = "internal" // an error that nobody wrote a sentence for
)

// A Fault is what went wrong, said to a person. It is an error.
type Fault struct {
	Code     string // for programs; never empty
	Sentence string // one sentence, without a full stop
	Hint     string // the next step, or ""
	Exit     int    // exit code of the command line; never 0
	Err      error  // what is behind it, or nil
}

func (f *Fault) Error() string { return f.Sentence }

// Unwrap returns the error behind the fault.
func (f *Fault) Unwrap() error { return f.Err }

// Usage says that the command was called wrongly.
func Usage(format string, args ...any) *Fault { return newf(CodeUsage, ExitUsage, format, args) }

// Negative says that a check or verdict is negative.
func Negative(format string, args ...any) *Fault {
	return newf(CodeNegative, ExitNegative, format, args)
}

// Unknown says that something could not be found out.
func Unknown(format string, args ...any) *Fault { return newf(CodeUnknown, ExitUnknown, format, args) }

// CannotRun says that the node could not run a session.
func CannotRun(format string, args ...any) *Fault {
	return newf(CodeCannotRun, ExitCannotRun, format, args)
}

// newf makes a fault whose sentence is formatted as by fmt.Errorf: an error
// given to %w becomes what is behind it, and its hint the fault's.
func newf(code string, exit int, format string, args []any) *Fault {
	err := fmt.Errorf(format, args...)
	f := &Fault{Code: code, Sentence: oneLine(err.Error()), Exit: exit}
	if inner := unwrapped(err); inner != nil {
		f.Err, f.Hint = err, hintOf(err)
	}
	return f
}

// WithHint returns a copy of f with another next step.
func (f *Fault) WithHint(format string, args ...any) *Fault {
	g := *f
	g.Hint = fmt.Sprintf(format, args...)
	return &g
}

// WithCode returns a copy of f with another code for programs.
func (f *Fault) WithCode(code string) *Fault {
	g := *f
	g.Code = code
	return &g
}

// WithExit returns a copy of f with another exit code. Commands that run
// sessions use it: there, whatever goes wrong before the command runs is
// [ExitCannotRun].
func (f *Fault) WithExit(exit int) *Fault {
	g := *f
	g.Exit = exit
	return &g
}

// And returns a copy of f that says what else went wrong in the same way.
func (f *Fault) And(other *Fault) *Fault {
	g := *f
	g.Sentence += "; " + other.Sentence
	return &g
}

// As turns any error into a Fault: nil stays nil, a Fault is returned with the
// sentence of whatever was wrapped around it, a Problem of the API becomes one,
// an error of a command that could not be started keeps a shell's exit code,
// and any other error gives its own text. It exits with [ExitUnknown] unless
// the error has an Exit of its own: an accident is not a negative verdict.
func As(err error) *Fault {
	if err == nil {
		return nil
	}
	if f, ok := err.(*Fault); ok {
		return f
	}
	out := &Fault{Sentence: oneLine(err.Error()), Hint: hintOf(err), Err: err}
	out.Code, out.Exit = classify(err)
	return out
}

// classify finds the code and the exit code of an error that is no Fault
// itself.
func classify(err error) (code string, exit int) {
	var (
		f    *Fault
		p    *api.Problem
		exec *sandbox.ExecError
		c    interface{ Code() string }
		e    interface{ Exit() int }
	)
	switch {
	case errors.As(err, &f):
		return f.Code, f.Exit
	case errors.As(err, &p):
		f := FromProblem(p)
		return f.Code, f.Exit
	case errors.As(err, &exec):
		return CodeExec, exec.Code
	}
	code, exit = CodeInternal, ExitUnknown
	switch {
	case errors.Is(err, context.Canceled):
		code = CodeCancelled
	case errors.Is(err, context.DeadlineExceeded):
		code = CodeTimeout
	}
	if errors.As(err, &c) && c.Code() != "" {
		code = c.Code()
	}
	if errors.As(err, &e) && e.Exit() > 0 && e.Exit() < 256 {
		exit = e.Exit()
	}
	return code, exit
}

// hintOf finds the outermost next step in err.
func hintOf(err error) string {
	var (
		f *Fault
		p *api.Problem
		h interface{ Hint() string }
	)
	switch {
	case errors.As(err, &f) && f.Hint != "":
		return f.Hint
	case errors.As(err, &p) && p.Hint != "":
		return p.Hint
	case errors.As(err, &h):
		return h.Hint()
	}
	return ""
}

// unwrapped returns what err wraps, whether one error or several.
func unwrapped(err error) error {
	if many, ok := err.(interface{ Unwrap() []error }); ok && len(many.Unwrap()) > 0 {
		return many.Unwrap()[0]
	}
	return errors.Unwrap(err)
}

// oneLine keeps a sentence on one line and free of control characters, which
// a terminal would obey: texts of files and servers are part of it.
func oneLine(s string) string {
	clean := func(r rune) rune {
		switch {
		case r == '\n' || r == '\r' || r == '\t':
			return ' '
		case r < ' ' || r >= 0x7f && r < 0xa0:
			return '\uFFFD'
		}
		return r
	}
	return strings.TrimSpace(strings.Map(clean, strings.ToValidUTF8(s, "\uFFFD")))
}
