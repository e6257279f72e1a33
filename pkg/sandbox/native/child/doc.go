// Package child promises to carry a list of operations and commands to the
// static helper that stands between the node and a sandboxed command, and to
// bring back what happened as data.
//
// What the list holds is decided in package native, which knows what a
// sandbox is; how each operation is done is in src/, in C without a library.
// The C part is built by the Makefile here and embedded from bin/.
package child

import (
	"embed"
	"errors"
	"syscall"
)

// The helper is one file per architecture in bin; what is missing there is
// found at run time, so that a fresh clone compiles.
//
//go:embed bin
var built embed.FS

// ErrGone says that the helper, and with it everything inside, has ended.
var ErrGone = errors.New("the sandbox helper has ended")

// A StageError is a failure of the helper, as data: at which stage, with
// what, and the kernel's answer. Stage is one of the Stage constants.
type StageError struct {
	Stage   string // a gerund: "mounting"
	Operand string // a path or a name; may be empty
	Errno   syscall.Errno
}

func (e *StageError) Error() string {
	if e.Operand == "" {
		return e.Stage + ": " + e.Errno.Error()
	}
	return e.Stage + " " + e.Operand + ": " + e.Errno.Error()
}

// namespaceStages are those where only the machine's settings refuse.
var namespaceStages = map[string]bool{
	StageUserNamespace: true, StageMountNamespace: true, StagePIDNamespace: true, StageNetworkNamespace: true,
	StageIPCNamespace: true, StageUTSNamespace: true, StageCgroupNamespace: true, StageMaps: true,
	StagePrivate: true, StageProc: true, StageDevpts: true, StageLoopback: true,
}

// Unwrap returns the kernel's answer, for errors.Is.
func (e *StageError) Unwrap() error { return e.Errno }

// Hint says what to do about the refusals that have one known reason.
func (e *StageError) Hint() string {
	switch {
	case e.Errno == syscall.EMLINK && e.Stage == StageSource:
		return "the file has another hard link, through which it could be changed: copy it, or remove the other name"
	case e.Errno == syscall.ELOOP:
		return "the path is, or passes through, a symbolic link: name the real path"
	case e.Errno == syscall.ENOSPC && e.Stage == StageUserNamespace:
		return "user namespaces are used up or switched off: see /proc/sys/user/max_user_namespaces"
	case e.Errno == syscall.ETOOMANYREFS:
		return "programs of this user have too many open files under way to each other: end what holds them"
	case e.Errno == syscall.EPERM && namespaceStages[e.Stage]:
		return "this machine refuses what a sandbox is made of: mojoup-node doctor says why"
	}
	return ""
}

// A MissingError says that this build holds no helper.
type MissingError struct{ Arch string }

func (e *MissingError) Error() string {
	return "this build has no sandbox helper for " + e.Arch
}

// Hint says how to get one.
func (e *MissingError) Hint() string { return "build with make, which compiles the helper first" }

// An UnsupportedError says that this system cannot run the helper.
type UnsupportedError struct{ OS string }

func (e *UnsupportedError) Error() string { return "sandboxes need Linux, this is " + e.OS }

// Hint says what can be done instead.
func (e *UnsupportedError) Hint() string { return "run the node on a Linux machine" }

// A StartError says that the helper could not be started at all.
type StartError struct{ Err error }

func (e *StartError) Error() string { return "starting the sandbox helper: " + e.Err.Error() }

// Unwrap returns the reason.
func (e *StartError) Unwrap() error { return e.Err }

// Hint says what refuses it where that is known.
func (e *StartError) Hint() string {
	if errors.Is(e.Err, syscall.EACCES) {
		return "programs may not be run from memory here: sysctl vm.memfd_noexec must not be 2"
	}
	return ""
}
