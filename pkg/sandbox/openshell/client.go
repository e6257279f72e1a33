package openshell

import (
	"context"
	"io"
	"time"
)

// A Client speaks to one gateway. Its methods may be called concurrently.
// Every context may be without a deadline: each call is bounded besides.
type Client interface {
	// Gateway is what was connected to, with the version that it named.
	Gateway() Gateway

	// Health asks for the version again, without credentials. A gateway that
	// has become another generation since is [VersionChanged]: this client
	// refuses every call from then on.
	Health(ctx context.Context) (Health, error)

	// Info asks for the compute drivers. Many people may not: [Forbidden].
	Info(ctx context.Context) (Info, error)

	// Create asks for a sandbox and returns as soon as the gateway has taken
	// the request: see Ready. Where the answer was lost, it looks whether the
	// sandbox is there before it says that it is not, so that after an error
	// with a code other than [Uncertain] there is nothing to delete.
	Create(ctx context.Context, r Request) (Record, error)

	// Get looks a sandbox up by its name; [NotFound] where there is none.
	Get(ctx context.Context, name string) (Record, error)

	// List finds the sandboxes that bear all these labels; none is every one.
	List(ctx context.Context, labels map[string]string) ([]Record, error)

	// Ready waits until the sandbox takes commands, and remembers which run of
	// it that was: see [Lost]. It tells progress about
	// each change, image pulls too where the gateway reports them; progress
	// may be nil. A sandbox that cannot become ready any more is an error with
	// the reason that the gateway gave; it is not deleted.
	Ready(ctx context.Context, ref Ref, progress func(Progress)) (Record, error)

	// Delete asks for the sandbox with this very id to be deleted, and returns
	// before it is gone: see Gone. One that is not there any more, or whose
	// name now belongs to another, is deleted.
	Delete(ctx context.Context, ref Ref) error

	// Gone waits until the sandbox with this id is gone.
	Gone(ctx context.Context, ref Ref) error

	// Exec starts a command in a ready sandbox. The command ends with its
	// context, as far as the gateway can end it: a process inside may live on
	// until the sandbox is deleted.
	Exec(ctx context.Context, ref Ref, c Command) (Session, error)

	// Run is Exec for a short command that may be run twice: each attempt is
	// bounded by r.Within, one that hangs is given up and tried again, and its
	// output is collected up to r.Most bytes each.
	Run(ctx context.Context, ref Ref, r Short) (Result, error)

	// Close ends the connection, and with it every Session.
	Close() error
}

// Generation is one of the two ways of speaking that share names, but not
// bytes.
type Generation string

// The generations that this package speaks.
const (
	V00 Generation = "0.0.x"
	V01 Generation = "0.1.x"
)

// Gateway is a gateway that was reached.
type Gateway struct {
	Name       string // as registered; empty for one known by its address only
	Endpoint   string // URL
	Workspace  string // in which sandboxes are made
	Version    string // as it said
	Generation Generation
	Auth       string // "mtls", "oidc" or "plaintext"
}

// Health is a gateway's own word about itself.
type Health struct {
	Version string
	Status  string // "healthy", "degraded", "unhealthy" or "unknown"
}

// Info is what a gateway runs sandboxes on.
type Info struct {
	Version string
	Drivers []Driver
}

// Driver is one compute driver of a gateway.
type Driver struct {
	Name    string // "docker", "podman", "kubernetes", …
	Version string // the driver's, as it says: of Docker the engine's, or the gateway's
}

// Request is a sandbox to be made. The zero value of a field asks for nothing.
type Request struct {
	// Name is 1 to 19 of a-z, 0-9 and '-', as [Name] makes it of a session's id.
	Name string
	// Labels are borne by the record at the gateway and by the container.
	Labels map[string]string
	Image  string
	// Command is the main process. When it ends the sandbox ends, so it should
	// not: sessions come by Exec.
	Command []string
	// Env is the environment of everything inside. Whoever may inspect the
	// container reads it: nothing secret belongs here.
	Env map[string]string
	// UID and GID own every process inside. A gateway refuses 0.
	UID, GID int
	Mounts   []Mount
	// ReadOnly and ReadWrite are what Landlock allows: every path must exist
	// inside, or the sandbox does not start. Mount targets must be among them.
	ReadOnly, ReadWrite []string
	// Workspace makes the image's working directory writable too.
	Workspace bool
	// Ways are all that may be reached from inside. Without one nothing may.
	Ways []Way
	// CPUs and Memory limit the container; zero leaves it to the gateway.
	CPUs   float64
	Memory int64 // bytes
}

// Mount binds a directory or file of the host, or with Memory puts an empty
// directory of memory there, which is gone with the sandbox and from which no
// program starts.
type Mount struct {
	Source, Target string
	ReadOnly       bool
	Memory         int64  // bytes at most
	Mode           uint32 // of the directory of memory
}

// Way allows one program inside to open connections to one host and port, whose
// bytes the gateway does not read.
type Way struct {
	Host    string
	Port    int
	Program string // real path inside; its descendants may too
}

// Ref is one sandbox. Generations differ in which of the two they go by, so
// both are needed.
type Ref struct{ ID, Name string }

// Record is what a gateway says about a sandbox.
type Record struct {
	Ref
	Workspace string
	Labels    map[string]string
	Phase     Phase
	// Reason and Message say why the phase is what it is: the one is a word of
	// the gateway, the other may be anything. Both are bounded and printable.
	Reason, Message string
	Created         time.Time
	// Instance names the run of the main process. Another one means that the
	// sandbox was started anew, and that every process in it is new.
	Instance string
	Exited   bool // the main process has ended, with ExitCode
	ExitCode int
}

// Phase is where a sandbox is in its life.
type Phase string

// The phases of both generations.
const (
	Unclear      Phase = "unclear" // the gateway does not know, or says something that we do not
	Provisioning Phase = "provisioning"
	ReadyPhase   Phase = "ready"
	Failed       Phase = "failed"
	Deleting     Phase = "deleting"
	Stopping     Phase = "stopping"
	Stopped      Phase = "stopped"
	Starting     Phase = "starting"
	Completed    Phase = "completed"
)

// Progress is one step on the way to ready.
type Progress struct {
	Phase   Phase
	Reason  string // as in [Record], or of an event
	Message string
	// Pull says that Message is about the image being pulled.
	Pull bool
}

// Command is one command to run in a sandbox.
type Command struct {
	Argv []string
	Dir  string            // empty means the sandbox's workspace
	Env  map[string]string // appears on a command line inside: nothing secret
	TTY  *Size             // a terminal of this size, or none
	// Input is the whole input of a command without Stdin and terminal: it
	// reads this, at most [MostInput] bytes, and then the end of file.
	Input []byte
	// Stdin is passed on as it comes, until the command has ended. Its end is
	// NOT passed on: a gateway of 0.0.x would end the whole command at once and
	// lose its output. Where a command must see the end of such an input, what
	// runs inside has to be told within the stream: see package frame. A Read
	// that blocks when the command has ended is not waited for.
	Stdin io.Reader
	// Stdout and Stderr get what was written, in order; with a terminal all is
	// on Stdout. Nil throws it away. A slow writer slows the command down.
	Stdout, Stderr io.Writer
}

// MostInput is the longest Command.Input.
const MostInput = 768 << 10

// Size is a terminal's.
type Size struct{ Columns, Rows uint16 }

// A Session is one running command.
type Session interface {
	// Wait returns when the command has ended and all of its output was
	// written. An [Error] says that how it ended is not known: [NoExit] when
	// the stream ended without the event that tells, [Lost] when the sandbox
	// is gone or was started anew, [Unreachable] when the gateway went away.
	// A command that a signal has killed has some code other than 0: which
	// signal it was, a gateway of 0.0.x does not tell.
	Wait(ctx context.Context) (code int, err error)
	// Resize tells the command's terminal its new size.
	Resize(Size) error
	// Done is closed when Wait would return at once.
	Done() <-chan struct{}
	// Abandon ends the stream. What it ran may live on inside.
	Abandon()
}

// Short is a command for Run.
type Short struct {
	Argv   []string
	Dir    string
	Env    map[string]string
	Input  []byte
	Within time.Duration // of one attempt; zero means 10 s
	Most   int           // bytes of each output; zero means 64 KiB; more is [TooLarge]
}

// Result is how a short command ended.
type Result struct {
	Code           int
	Stdout, Stderr []byte
}
