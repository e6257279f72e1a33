// Package sandbox promises one contract for running a command confined,
// whatever engine does it.
//
// A [Spec] says, in values only, what a sandbox is to be. An [Engine] makes it
// in two steps: Prepare builds everything and runs nothing, so that the way
// out can be served before the first instruction; [Sandbox.Exec] then starts
// commands in it, the session's own and any later one, by the same path.
//
//	box, err := engine.Prepare(ctx, spec)   // nothing runs yet
//	defer box.Remove(ctx)
//	go proxy.Serve(ctx, box.Listener())     // the only way out answers
//	enforced, err := box.Check(ctx)         // attacks itself from inside
//	proc, err := box.Exec(ctx, command, stdio)
//	exit, err := proc.Wait(ctx)
//
// What a sandbox may reach is not decided here: an engine obeys a Spec, it
// does not read policy. The suite that every engine passes is package
// sandboxtest.
package sandbox

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"time"
)

// An Engine makes sandboxes of one kind.
type Engine interface {
	// Name is the engine's name in settings and listings: "native", "docker"
	// or "process".
	Name() string

	// Prepare makes the sandbox of spec with nothing running in it. The spec
	// is validated first; an invalid one makes nothing. On error everything
	// made so far is undone. Every name that Prepare leaves outside the
	// sandbox (placeholders, control groups) is in Undo(spec) beforehand.
	Prepare(ctx context.Context, spec Spec) (Sandbox, error)

	// Undo lists, from the spec alone, every act that undoes what Prepare may
	// leave on the host, in the order in which they are to be carried out.
	// The caller writes it down before Prepare; after a crash it is all that
	// is known.
	Undo(spec Spec) []Undo

	// Sweep carries out one act of an earlier Undo. What is already gone
	// counts as done. It reports in words what it found and removed, or "".
	Sweep(ctx context.Context, u Undo) (did string, err error)
}

// A Sandbox is one prepared place. Its methods may be called concurrently.
type Sandbox interface {
	// Listener accepts the connections that programs inside make to
	// Spec.Proxy. It was made inside and belongs to the caller, who closes it.
	// It is nil where the engine has no way out of its own ("process").
	Listener() net.Listener

	// Check attacks the sandbox from inside, sealed exactly as a command will
	// be, and reports what was found. An error means that the sandbox does
	// not hold and must not be used. The listener must be served meanwhile:
	// the check asks the proxy for an answer. Whether every protection stands is
	// looked at after that answer: whoever watches what the host does begins
	// before serving, and misses nothing.
	Check(ctx context.Context) (Enforced, error)

	// Exec starts a command inside. It returns once the command's program has
	// been loaded, or with an [ExecError]. Its context is of the start only:
	// cancelled later, it ends nothing.
	Exec(ctx context.Context, cmd Command, stdio Stdio) (Process, error)

	// Remove ends every process inside, waits until all are gone, and undoes
	// what Prepare left outside. It may be called more than once, and on a
	// sandbox that has already ended.
	Remove(ctx context.Context) error

	// Done is closed when the sandbox has ended, asked or not.
	Done() <-chan struct{}
}

// A Dialer is a Sandbox with a network of its own into which its node can
// connect.
type Dialer interface {
	// Dial connects to what listens inside on a port of the loopback
	// interface.
	Dial(ctx context.Context, port uint16) (net.Conn, error)
}

// An Asker is a Listener that knows which program inside opened a connection.
type Asker interface {
	// WhoAsked names it once, as far as could be found out. It is for people
	// and decides nothing: the inside may say what it likes.
	WhoAsked(remote net.Addr) (pid int, program string, ok bool)
}

// A Teller is a Sandbox that learns which system calls it refuses.
type Teller interface {
	// Refusals are those so far, one for each program and call, in the order of
	// their first, and a channel that is closed when there is one more; that
	// one of them was repeated only changes its numbers. There is a bounded
	// number of them, whatever runs inside. They stay after the end.
	//
	// Attempts of Check are not among them.
	Refusals() ([]Refusal, <-chan struct{})
}

// A Doorkeeper is a Sandbox whose way out others could try to use.
type Doorkeeper interface {
	// Strangers are those who were turned away so far, in the order of their
	// first try, and a channel that is closed when there is one more. There is a
	// bounded number of them. They stay after the end.
	Strangers() ([]Stranger, <-chan struct{})
}

// A Stranger is somebody who was turned away.
type Stranger struct {
	Who    string // in words: where from, and as which user if that is known
	Reason string // in words that go on from "it was turned away: "
	Count  int    // how often
}

// An Ender is a Sandbox that can find out why it has ended without its node's
// doing.
type Ender interface {
	// Why says it in words that go on from "the sandbox ended". It is nil where
	// the sandbox has not ended, or nobody knows.
	Why(ctx context.Context) error
}

// A Process is one command inside a sandbox.
type Process interface {
	// Wait returns when the command itself has ended, however many of its
	// children live on, and all that it wrote has been delivered. Afterwards
	// nothing is written to Stdio any more; what children still write is
	// thrown away. It may be called more than once; a cancelled context ends
	// the waiting, not the command.
	Wait(ctx context.Context) (Exit, error)
	// Signal sends to the command's process group. After the command's end it
	// is an error.
	Signal(sig os.Signal) error
	// Resize tells the command's terminal its new size. Without a terminal it
	// does nothing.
	Resize(Size) error
	// Terminal is the master side of the command's terminal, nil without
	// one. The caller closes it.
	Terminal() *os.File
}

// Spec is what a sandbox is to be: values only, complete, and the same for
// every engine. The zero value is invalid.
type Spec struct {
	// ID names the sandbox: 1 to 32 characters of a-z, 0-9 and '-'.
	ID string
	// Identity owns every process inside, and so every file they make.
	Identity Identity
	// Hostname inside. Empty means "sandbox".
	Hostname string
	// Mounts, in the order in which they are made: a later one covers an
	// earlier one. What is not named here does not exist inside.
	Mounts []Mount
	// Shared says how many of Mounts, from the first, are the same for most
	// sandboxes of this person: an engine may make them before it knows the
	// rest, and compares them then. Zero means that none is.
	Shared int
	// Protect lists what is read-only in a writable mount, ancestors before
	// descendants. See [Guards] for the table.
	Protect []Protection
	// Proxy is where programs inside find the way out: a loopback address and
	// port, for example 127.0.0.1:3128.
	Proxy string
	// Direct are hosts outside that programs inside reach by name, without a
	// proxy's language. Such a connection comes out of the Listener as a client's
	// that asked the proxy for a tunnel to that host and port. What an engine does
	// not open it says in Enforced, as [FactDirect].
	Direct []Direct
	// Env is the whole environment inside, as KEY=VALUE.
	Env []string
	// Limits; a zero field leaves it to the engine, which names in Enforced
	// what it has chosen.
	Limits Limits
	// Checks are looked at from inside before anything runs, beside those
	// that every engine makes of itself.
	Checks []Check
	// WorkDir is an existing empty directory of the node, not writable by
	// others, over which an engine may mount. One serves all sandboxes.
	WorkDir string
}

// Direct is one port of a host outside that stands inside on a loopback address.
type Direct struct {
	Host    string // a name; everywhere in a Spec it stands for the same address
	Port    uint16 // inside and outside
	Address string // of the loopback, and not the one of Proxy
}

// Identity is who a sandbox runs as: the same numbers inside and outside.
type Identity struct {
	UID, GID int
	Groups   []int // supplementary; only a node that is root can choose them
}

// Access says what a mount allows.
type Access uint8

const (
	ReadOnly  Access = iota // the zero value
	ReadWrite               // read, write, rename and link within the mount
)

// MountKind says what stands behind a mount.
type MountKind uint8

const (
	Bind    MountKind = iota // Source of the host, with all that is mounted below it
	Scratch                  // an empty directory of memory, gone with the sandbox
	Text                     // a read-only file with Content
	Link                     // a symbolic link to Source, made in a Scratch or the root
	Seed                     // a file with Content in a writable Scratch, for the session to change, replace and remove
)

// A Mount puts one thing at Target inside. Targets are absolute and clean.
type Mount struct {
	Kind   MountKind
	Source string // Bind: absolute path of the host. Link: what it points to
	Target string
	Access Access
	// Begin is what a Text begins with, before Content, where that is long and
	// the same for most sandboxes of this person: an engine may write it before
	// it knows the rest. Whoever gives it does not change it any more.
	Begin   []byte
	Content []byte      // Text and Seed
	Mode    os.FileMode // Scratch, Text and Seed; zero means 0755, 0444 and 0600
	Size    int64       // Scratch: bytes at most; zero means the engine's default
	// Optional mounts are left out where Source is missing, and a Text where
	// an image has nothing at Target, which may be a link there; any other one
	// that cannot be made fails Prepare.
	Optional bool
	// NoExec, for Scratch and Bind: no program may be started from it.
	NoExec bool
}

// Guard says how a protected path is held.
type Guard uint8

const (
	// Pin binds a directory on itself, writable, so that it cannot be renamed.
	Pin Guard = iota
	// Freeze makes a file or directory read-only.
	Freeze
	// Thaw makes a directory below a frozen one writable again. A missing one
	// is made on the host before, and removed after if it is still empty.
	Thaw
	// HoldDir holds a missing path by an empty read-only directory, which is
	// made on the host before and removed with rmdir after.
	HoldDir
	// HoldFile holds a missing path by a file with Content, made before and
	// removed after if unchanged.
	HoldFile
	// Shelter is for a file that programs of the host replace by rename, which
	// drops a mount over it. Before, the file is moved into a directory of its
	// own, [ShelterDir], and a symbolic link to it takes its name; both are
	// read-only inside. Programs that follow the link, as git does, then
	// replace the file within the directory, where its protection does not
	// hang on it. A missing file is held likewise. After, the file is moved
	// back.
	Shelter
)

// PlaceholderMark is in the mode of every directory that an engine makes on
// the host to hold a missing path, from its first moment on. An empty
// directory with it is nobody's own, whoever has locked it and whoever has
// died: nobody gives such a mode to an empty directory.
const PlaceholderMark = fs.ModeSticky

// ShelterDir is the directory into which [Shelter] moves the file at path.
func ShelterDir(path string) string { return path + ".held" }

// ShelterLink is what the symbolic link at a sheltered path holds.
func ShelterLink(path string) string {
	name := filepath.Base(path)
	return filepath.Join(ShelterDir(name), name)
}

// A Protection keeps one path of a writable mount from being changed inside.
type Protection struct {
	Path    string // absolute; no component may be a symbolic link
	Guard   Guard
	Content string // HoldFile only
	Reason  string // for people: what the host would do with it
}

// Limits bound a sandbox. What an engine cannot enforce it says in Enforced.
type Limits struct {
	CPUs      float64       // processors' worth of time
	Memory    int64         // bytes
	Processes int           // processes and threads
	Files     int           // open descriptors per process
	Disk      int64         // bytes of all Scratch mounts together
	Wall      time.Duration // carried out by the node, not the engine
}

// CheckKind says what a Check expects.
type CheckKind uint8

const (
	MustNotOpen  CheckKind = iota // opening Path for reading fails
	MustNotWrite                  // creating or changing Path fails
	MustBeSame                    // Path is the directory with Device and Inode
	MustWrite                     // Path is a directory in which files can be made and renamed
)

// A Check is one expectation about the inside.
type Check struct {
	Kind          CheckKind
	Path          string
	Device, Inode uint64 // MustBeSame
}

// Command is one program to run inside.
type Command struct {
	Argv []string // Argv[0] is looked up in PATH of the environment inside
	Dir  string   // working directory inside; empty means "/"
	Env  []string // added to Spec.Env, later ones win
	TTY  *Size    // a terminal of this size, or none
}

// Size is a terminal's.
type Size struct{ Columns, Rows uint16 }

// Stdio are the command's standard streams when it has no terminal. Nil means
// nothing: end of file, or thrown away. An *os.File is handed over as it is:
// where the session's user owns it, a command can change its mode too.
type Stdio struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
}

// Exit is how a command ended.
type Exit struct {
	Code   int // 0 to 255; 128 plus the number for a signal
	Signal int // zero where the command was not killed by one
	// OOM says that the command itself was killed for memory.
	OOM bool
	// Limit is, in words and with its value, the limit that ended the command:
	// "killed for memory: limit 256 MiB". Empty where none did.
	Limit string
	// Noted are, in words, limits that were hit meanwhile without ending the
	// command itself: a child killed for memory, processes that could not be
	// started. Scratch that is full is seen only by who writes to it.
	Noted string
	// HitMemory and HitProcesses say which limits Limit and Noted speak of.
	HitMemory, HitProcesses bool
}

// Undo is one act that removes what a sandbox may leave, as data that outlives
// the process. Kind belongs to the engine; the rest says on what.
type Undo struct {
	Kind    string `json:"kind"`
	Path    string `json:"path,omitempty"`
	Content string `json:"content,omitempty"`
	ID      string `json:"id,omitempty"`
}

// ErrGone is returned by calls on a sandbox that has ended.
var ErrGone = errors.New("sandbox has ended")

// An ExecError says that a command could not be started, as a shell would.
type ExecError struct {
	Program string
	Code    int // 126 found but not executable, 127 not found
	Err     error
}

func (e *ExecError) Error() string { return e.Program + ": " + e.Err.Error() }
func (e *ExecError) Unwrap() error { return e.Err }
