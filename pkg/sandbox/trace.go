package sandbox

import "context"

// A Witness is an Engine that finds what its sandboxes leave on a machine. It
// looks and changes nothing: it takes no lock, not even for a moment, since
// whoever takes a placeholder away would be told by it that somebody still
// uses that.
type Witness interface {
	// Marked finds everything on this machine that bears the engine's mark,
	// whoever made it, as far as this process may see.
	Marked(ctx context.Context) ([]Trace, error)
	// Remains finds what one act of an earlier Undo would still have to undo.
	Remains(ctx context.Context, u Undo) ([]Trace, error)
}

// A Mortal is an Engine of which something ends with the machine's running.
type Mortal interface {
	// EndsWithBoot reports whether an act of an earlier Undo is done by a new
	// start of the machine: what it would look for bears a name that can only be
	// somebody else's by then.
	EndsWithBoot(u Undo) bool
}

// A Tidier is an Engine that makes things for a moment that belong to no
// sandbox, such as to look into what one is made of.
type Tidier interface {
	// Tidy removes what processes that have died left of such, and says in words
	// what it removed.
	Tidy(ctx context.Context) (did []string, err error)
}

// Kinds of traces.
const (
	TraceProcess     = "process"
	TraceGroup       = "control group"
	TracePlaceholder = "placeholder" // of a missing path, in a repository
	TraceShelter     = "shelter"     // of a file that was moved there
	TraceContainer   = "container"   // in Docker; Path is its id
	TraceRecord      = "gateway's sandbox"
	TraceStage       = "staging directory"
)

// A Trace is one thing that a sandbox made, or that runs in one.
type Trace struct {
	Kind    string
	Sandbox string // its ID; empty where it was of none, and whoever made it has ended
	Path    string // of the file or directory; of a process in /proc
	PID     int    // of a process
	InUse   bool   // somebody who lives has its lock
	// Spare says that Sandbox was begun in advance: the session that has used
	// it, if one has, bears another ID.
	Spare bool
	// Holds are the processes in a control group that is no sandbox's, but was
	// given to a node to make theirs in.
	Holds []int
}
