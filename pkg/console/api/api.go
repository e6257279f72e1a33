// Package api promises the shapes that a node and its clients exchange, as
// JSON and as frames, and nothing about how they travel.
//
// Fields are added over time and never change their meaning: a reader ignores
// those that it does not know.
package api

import (
	"net/netip"
	"time"
)

// Version is the first path element of every request: "/v1/…".
const Version = "v1"

// Problem is how a node refuses: a code for programs, a sentence and a next
// step for people. It never holds wrapped internal text.
type Problem struct {
	Code     string `json:"code"`
	Sentence string `json:"sentence"`
	Hint     string `json:"hint,omitempty"`
	// Exit is the exit code that the command line answers with: 1 negative,
	// 2 wrong usage, 3 could not find out, 125 the node could not run it.
	Exit int `json:"exit"`
}

func (p *Problem) Error() string { return p.Sentence }

// Status answers GET /v1/status.
type Status struct {
	Node     Node      `json:"node"`
	Verdict  Verdict   `json:"verdict"`
	Sessions []Session `json:"sessions"` // those that start, run or end, oldest first; never null
	Queue    []Waiting `json:"queue"`    // who waits for a slot, the next first; never null
	Repaired []string  `json:"repaired"` // what this start undid of a dead one; never null
	// Leftovers are what could not be undone yet of sessions that have ended;
	// never null. The node tries again every minute and when it starts.
	Leftovers []string `json:"leftovers"`
	// Unheard are people whose part of a system node gave root no answer, with
	// the reason: sessions of theirs may be missing.
	Unheard []string `json:"unheard,omitempty"`
}

// Waiting is one who waits for a slot.
type Waiting struct {
	ID     string    `json:"id"`
	Kind   string    `json:"kind"` // of start: "session"
	User   string    `json:"user"`
	UID    int       `json:"uid"`
	Since  time.Time `json:"since"`
	Place  int       `json:"place"`  // 1 is next
	Cause  string    `json:"cause"`  // slots, memory, pressure or turn
	Reason string    `json:"reason"` // the same as a sentence
	// Estimate is how many seconds it will still wait, by what earlier ones
	// took; absent where nobody can say.
	Estimate float64 `json:"estimateSeconds,omitempty"`
}

// Node says which process answers.
type Node struct {
	Running bool      `json:"running"`
	PID     int       `json:"pid,omitempty"`
	Since   time.Time `json:"since,omitzero"`
	Version string    `json:"version,omitempty"`
	Socket  string    `json:"socket"`
	Linger  bool      `json:"linger,omitempty"` // ends by itself after its last session
	// Log says where the log of the node goes: a path where it runs in the
	// background, else words.
	Log string `json:"log,omitempty"`
	// System is true for a node that serves other people than the one who
	// started it. What it answers is about the sessions of who asks, or about
	// everybody's where that is root.
	System bool `json:"system,omitempty"`
	// Image and Gateway are what is set of engine docker, for who is to judge as
	// this node does.
	Image   string `json:"image,omitempty"`
	Gateway string `json:"gateway,omitempty"`
	// Private are the address ranges that rules may open on this node.
	Private []netip.Prefix `json:"private,omitempty"`
	// Refused is why the system node was not asked, where that is what a
	// person would have asked next.
	Refused string `json:"refused,omitempty"`
	// Page is the address of the node page, for a browser on this machine, or
	// NoPage why there is none where one was to be.
	Page   string `json:"page,omitempty"`
	NoPage string `json:"noPage,omitempty"`
}

// Verdict is the answer to "can this machine sandbox agents?".
type Verdict struct {
	// Able is true only where the configured engine passed its checks.
	Able     bool   `json:"able"`
	Sentence string `json:"sentence"`
	Reason   string `json:"reason,omitempty"`
	Engine   string `json:"engine"`           // configured: auto, native, docker, off
	Chosen   string `json:"chosen,omitempty"` // what auto takes
	Note     string `json:"note,omitempty"`   // for example "not offered: set node.roles.sandbox"
	// Pending is true while the checks of this start still run.
	Pending bool `json:"pending,omitempty"`
}

// Checks is what was found out about this machine, as the node page shows it.
type Checks struct {
	At      time.Time // zero while the checks of this start still run
	Engines []EngineLine
	Checks  []Check
}

// EngineLine says of one engine whether it can sandbox agents here.
type EngineLine struct {
	Engine string
	Able   bool
	Known  bool   // false where that could not be found out
	Reason string // of the first check that did not pass
}

// Check is one question about the machine.
type Check struct {
	Title  string
	State  string // as it counts here: ok, warn, fail, unknown, skipped
	Found  string
	Needed string
	Mend   string
	Reason string // for the verdict
}

// Session is one session, live or past.
type Session struct {
	ID         string    `json:"id"`
	State      string    `json:"state"`
	Reason     string    `json:"reason,omitempty"` // of failed and lost
	User       string    `json:"user"`
	UID        int       `json:"uid"`
	Repository string    `json:"repository"`
	Tool       string    `json:"tool,omitempty"`
	Command    []string  `json:"command"`
	Engine     string    `json:"engine"`
	Sandboxed  bool      `json:"sandboxed"`
	Since      time.Time `json:"since"`
	Ended      time.Time `json:"ended,omitzero"`
	ExitCode   *int      `json:"exitCode,omitempty"`
	Stages     []Stage   `json:"stages"`             // of the start; never null
	Enforced   []Fact    `json:"enforced,omitempty"` // what was really enforced
	Notices    []string  `json:"notices,omitempty"`  // warnings shown wherever it is listed
	Allowed    int       `json:"allowed"`
	Denied     int       `json:"denied"`
	Attached   int       `json:"attached"`           // clients that are shown it now
	Verdicts   []Outcome `json:"verdicts,omitempty"` // session show only, newest last
	Refused    []Refusal `json:"refused,omitempty"`  // session show only, in the order of their first
	// Commits and References are what became of the repository's history while
	// it lived and is more than new work; of one that has ended.
	Commits    []Commit    `json:"commits,omitempty"`
	References []Reference `json:"references,omitempty"`
	// RecordedBytes is how much is kept of what its terminal showed, where that
	// was asked for; session show only.
	RecordedBytes int64 `json:"recordedBytes,omitempty"`
}

// StageQueue is the step of a start that is waiting for a slot. Only a session
// that had to wait has it.
const StageQueue = "queue"

// Stage is one step of a start and how long it took.
type Stage struct {
	Name         string  `json:"name"`
	Milliseconds float64 `json:"ms"`
}

// Commit is a new commit that changes what somebody's machine obeys.
type Commit struct {
	ID        string   `json:"id"`
	Reference string   `json:"reference,omitempty"` // that leads to it
	Paths     []string `json:"paths"`               // what of it it changes, twenty at most; never null
}

// Reference is a branch, tag or the like that no longer leads to where it led.
type Reference struct {
	Name string `json:"name"`
	Was  string `json:"was"`          // the commit
	Is   string `json:"is,omitempty"` // where it leads now; absent where it was deleted
}

// Fact is one line of what was really enforced: "enforced", "weaker" or "absent".
type Fact struct {
	Name     string `json:"name"`
	Strength string `json:"strength"`
	Detail   string `json:"detail,omitempty"`
}

// Outcome is one recorded verdict on one request of a session.
type Outcome struct {
	ID      string    `json:"id"` // what a denied agent is shown
	Time    time.Time `json:"time"`
	Allowed bool      `json:"allowed"`
	Host    string    `json:"host"`
	Port    int       `json:"port"`
	Method  string    `json:"method,omitempty"`
	Path    string    `json:"path,omitempty"`
	Rule    string    `json:"rule,omitempty"`
	Layer   string    `json:"layer,omitempty"`
	Reason  string    `json:"reason"`
	// Failure is why what was allowed could not be done all the same, as a
	// sentence: no such name, refused, not answered in time.
	Failure string `json:"failure,omitempty"`
}

// Refusal is a system call that a program of a session made and that was
// refused, with how often.
type Refusal struct {
	// Program is the name that the process goes by, which is its own choice;
	// absent where nobody knows it.
	Program string    `json:"program,omitempty"`
	PID     int       `json:"pid,omitempty"` // inside, of the first
	Call    string    `json:"call"`          // as in "unshare"
	Tried   string    `json:"tried"`         // in words: "make a user namespace"
	Answer  string    `json:"answer"`        // the errno: "EPERM"
	Count   int64     `json:"count"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
}

// Kinds of Event. Others may be added.
const (
	EventState   = "state"   // the session's state, with the reason
	EventStage   = "stage"   // a step of its start is done
	EventHead    = "head"    // the commit at which its repository stood at the start
	EventNotice  = "notice"  // what its client was told
	EventClient  = "client"  // one more client came or left
	EventCommand = "command" // one more command was started or ended
	EventRefusal = "refusal" // a system call was refused
	EventRequest = "request" // a verdict on a request, which Request holds
)

// Event is one line of a session's log: GET /v1/sessions/{id}/events answers
// with them, one JSON object a line, in the order of their times; with ?follow
// until the session has ended. What the session's command wrote is not in it.
type Event struct {
	Time    time.Time `json:"time"`
	Kind    string    `json:"kind"`
	Text    string    `json:"text"`
	Request *Outcome  `json:"request,omitempty"`
}

// RunRequest asks for one session; it is the first frame of POST /v1/run.
// The node has neither the caller's terminal, environment nor directory, so
// all of them come along.
type RunRequest struct {
	Directory  string   `json:"directory"`  // absolute: the caller's working directory
	Repository string   `json:"repository"` // absolute; "" means the one around Directory
	Tool       string   `json:"tool,omitempty"`
	Command    []string `json:"command"`            // with Tool its arguments
	Headless   string   `json:"headless,omitempty"` // a prompt for Tool, which then asks nobody
	Engine     string   `json:"engine,omitempty"`   // "" means as configured
	Env        []string `json:"env"`                // the allow-listed environment and --env, KEY=VALUE
	// WholeEnv is the caller's whole environment, which only an ordinary
	// process gets; it is sent when the node asks for it (CodeEnvironment).
	WholeEnv []string `json:"wholeEnv,omitempty"`
	// Keys are the values of the variables in which the caller keeps keys, by
	// variable; they are sent when the node asks for them (CodeKeys).
	Keys map[string]Key `json:"keys"` // empty is not the same as none
	// ToolKeys are the values of those variables of the caller's from which the
	// profile of Tool takes keys, by variable.
	ToolKeys map[string]Key `json:"toolKeys,omitempty"`
	// SignIns says where the caller's tools keep their sign-ins.
	SignIns  SignInPlaces `json:"signIns,omitzero"`
	Terminal *Size        `json:"terminal,omitempty"`
	// Policy is the text of --policy, with its name for messages.
	PolicyName string `json:"policyName,omitempty"`
	Policy     string `json:"policy,omitempty"`
	// Detach lets go of the client once the command runs: the session goes on
	// without one. Without a terminal its input has ended then.
	Detach bool `json:"detach,omitempty"`
	// RecordTerminal keeps what the terminal shows, which nothing else does.
	RecordTerminal bool `json:"recordTerminal,omitempty"`
}

// AttachRequest asks to be shown a live session; it is the first frame of POST
// /v1/sessions/{id}/attach.
type AttachRequest struct {
	Terminal *Size `json:"terminal,omitempty"` // the client's, if it has one
	ReadOnly bool  `json:"readOnly,omitempty"` // it types nothing and has no say in the size
}

// ExecRequest asks for one more command in a live session; it is the first
// frame of POST /v1/sessions/{id}/exec.
type ExecRequest struct {
	Command   []string `json:"command"`
	Directory string   `json:"directory,omitempty"` // inside; "" means the session's own
	Env       []string `json:"env,omitempty"`       // added to the session's, KEY=VALUE
	Terminal  *Size    `json:"terminal,omitempty"`
}

// DiffRequest asks for what has changed since a session began; it is the first
// frame of POST /v1/sessions/{id}/diff. Stdout is the difference, as git writes
// it; names of files that git does not track come on stderr.
type DiffRequest struct {
	Stat bool `json:"stat,omitempty"` // a line for each file instead
}

// PortsRequest is the body of POST /v1/sessions/{id}/ports.
type PortsRequest struct {
	Open []uint16 `json:"open"` // ports inside that are to be forwarded
}

// Port is a dev server's inside a session; a list of them answers GET and POST
// of /v1/sessions/{id}/ports. They are those that the session's policy names.
type Port struct {
	Port uint16 `json:"port"`
	// Address is where this machine reaches it while the session lives; absent
	// until somebody asks for that.
	Address string `json:"address,omitempty"`
}

// Size is a terminal's, in characters.
type Size struct {
	Columns uint16 `json:"columns"`
	Rows    uint16 `json:"rows"`
}

// Started is the node's first answer to a request for a session that it took.
type Started struct {
	Session Session `json:"session"`
	// Terminal says that the session has one: the client's keyboard is its
	// from now on.
	Terminal bool `json:"terminal,omitempty"`
}

// Ended is the last frame of a session.
type Ended struct {
	Code    int      `json:"code"`
	Problem *Problem `json:"problem,omitempty"` // where the node, not the command, ended it
	Notices []string `json:"notices,omitempty"` // closing lines
	// Detached says that the client left and the session goes on. Code is 0.
	Detached bool `json:"detached,omitempty"`
}

// ApprovalRequest is the body of POST /v1/approvals: about which repository,
// and, to approve, the digest of exactly what the person was shown.
type ApprovalRequest struct {
	Directory  string `json:"directory"`
	Repository string `json:"repository,omitempty"`
	Digest     string `json:"digest,omitempty"` // "" only asks
	// Env is the allow-listed environment of the caller, as for a session:
	// what a preset stands for depends on the home in it.
	Env []string `json:"env,omitempty"`
}

// Approval is what a repository's policy asks for beyond what is free.
type Approval struct {
	Repository string   `json:"repository"`
	Asks       []string `json:"asks"`   // one line each; never null
	Digest     string   `json:"digest"` // of the expanded effective policy
	Approved   bool     `json:"approved"`
}

// CodeApproval is the Problem code of a session whose repository asks for
// what nobody has approved yet.
const CodeApproval = "approval-needed"

// CodeEnvironment is the Problem code of an ordinary process whose request
// came without the caller's whole environment.
const CodeEnvironment = "environment-needed"

// CodeNotServed is the Problem code of a system node that does not serve the
// caller.
const CodeNotServed = "not-served"

// CodeUnknownSession is the Problem code of an id that no session of the
// caller's has.
const CodeUnknownSession = "unknown-session"

// CodeAmbiguousSession is the Problem code of the beginning of more than one
// session's id.
const CodeAmbiguousSession = "ambiguous-session"

// CodeStopping is the Problem code of a node that is ending and takes no new
// session: nothing was begun.
const CodeStopping = "stopping"
