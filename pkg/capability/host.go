package capability

import (
	"context"
	"io/fs"
	"strings"
	"time"
)

// Host is a machine as the probes see it. [ThisHost] is the real one; tests
// fill in answers. A probe that is nil counts as "could not find out".
type Host struct {
	// OS is the operating system, named as runtime.GOOS names it.
	OS string
	// Files is the machine's file system, from its root.
	Files fs.FS
	// Getenv reads the node's environment.
	Getenv func(string) string
	// LookPath finds a program in PATH.
	LookPath func(string) (string, error)
	// UID is the effective user id of the node.
	UID int
	// Groups names the supplementary groups of the node.
	Groups func() ([]string, error)

	// Helper reports, by an error, why this build has no helper for the native
	// engine. Without it Listener and Namespaces are not asked.
	Helper func() error
	// Landlock asks the kernel about Landlock.
	Landlock Landlock
	// Listener installs a seccomp user notification listener in a child, which
	// ends. It fails with a [*child.StageError] where the kernel says no.
	Listener func(context.Context) error
	// Namespaces builds in a child what a session needs: every namespace, the
	// identity maps, /proc, the loopback device. It fails with a
	// [*child.StageError] where the kernel says no.
	Namespaces func(context.Context) error
	// OpenTUN opens and closes the device for network tunnels.
	OpenTUN func() error
	// Writable reports, by an error, why an absolute path cannot be written.
	Writable func(path string) error
	// Docker asks the daemon. It obeys its context.
	Docker func(context.Context) DockerAnswer

	// Registered says which OpenShell gateway is this person's. Its error is a
	// sentence, as those of the four below.
	Registered func() (found string, err error)
	// CLIVersion asks the OpenShell command line at a path for its version.
	CLIVersion func(ctx context.Context, path string) (string, error)
	// Gateway asks the person's OpenShell gateway who it is. Errors of these
	// four are sentences; one with a method Hint says how to mend it.
	Gateway func(context.Context) (GatewayAnswer, error)
	// Image looks into the image of sandboxes.
	Image func(context.Context) (found string, err error)
	// Binds asks the gateway for a mount of this machine, and takes it back.
	Binds func(context.Context) error
	// Reach runs a container that looks at a file of this node and connects to
	// it. It takes long, so it is nil where nobody asked for it: each session's
	// own check tries the same.
	Reach func(context.Context) error

	// Served says that a system node serves this person: their sessions run in
	// control groups that it makes, and not in any of this process's.
	Served bool

	// Limit bounds each probe; zero means three seconds.
	Limit time.Duration
}

// Landlock is how the kernel answers about Landlock. Errors are system call
// numbers (syscall.Errno), possibly wrapped.
type Landlock struct {
	// Version is what landlock_create_ruleset answers to the question for the
	// version of its ABI.
	Version func() (int, error)
	// Create makes a ruleset that handles every right of an ABI, and closes it.
	Create func(abi int) error
}

// Options of [ThisHost]. The zero value is complete.
type Options struct {
	// DockerWait bounds the wait for Docker; zero means two seconds.
	DockerWait time.Duration
	// Served says that a system node serves this person: their sessions run in
	// control groups that it makes, and not in any of this process's.
	Served bool

	// Limit bounds each probe; zero means three seconds.
	Limit time.Duration
}

// read is the trimmed text of a file below the root.
func (h *Host) read(path string) (string, error) {
	if h.Files == nil {
		return "", fs.ErrNotExist
	}
	text, err := fs.ReadFile(h.Files, strings.TrimPrefix(path, "/"))
	return strings.TrimSpace(string(text)), err
}

// text is read for facts whose absence says nothing: "" where unreadable.
func (h *Host) text(path string) string {
	s, _ := h.read(path)
	return s
}

func (h *Host) exists(path string) bool {
	if h.Files == nil {
		return false
	}
	_, err := fs.Stat(h.Files, strings.TrimPrefix(path, "/"))
	return err == nil
}

func (h *Host) env(name string) string {
	if h.Getenv == nil {
		return ""
	}
	return h.Getenv(name)
}
