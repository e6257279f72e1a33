// Package escape promises a table of attempts to get out of a sandbox, each
// harmless where it succeeds.
//
// An attempt is carried out by the attack program (folder attack, built
// without cgo) on an [Arena]: things of the host that must be out of reach.
// [Stage] makes the arena, [Try] runs the program by whatever starts it:
// inside, through an engine, and outside, as the same user, to show that an
// attempt is worth something. The suite of package sandboxtest does both; it
// imports no testing, so that a doctor can do the same on any machine.
package escape

import (
	"fmt"
	"slices"
	"strings"
)

// An Attempt is one row of the table.
type Attempt struct {
	// Name is unique: lower case words with hyphens.
	Name string
	// Tries says what is attempted, for people.
	Tries string
	// Call is the system call that an engine which tells of those that it
	// refuses has told of afterwards. Empty means none, or that nobody need be.
	Call string
	// Want are the outcomes inside that mean that the sandbox holds.
	Want []string
	// Outside says why the attempt is not shown to work outside. Empty means
	// that it is, and must: an attempt that fails anywhere proves nothing. What
	// only the root of a host may do is shown to the root of namespaces of its
	// own, see [Attempt.Elsewhere].
	Outside string
	// Lacking are outcomes outside by which this machine refuses everybody:
	// a kernel without the feature, or a setting of its administrator. With
	// NoArena among them the machine may lack what is to be attacked.
	Lacking []string
	// In is the layout of the repository that the attempt needs.
	In Layout
	// Known says why it works inside as well and is no surprise. Such a row
	// stands here so that nobody counts on the opposite.
	Known string

	do func(*Arena) error
}

// Layout is how the repository lies.
type Layout uint8

const (
	Any      Layout = iota // no matter how
	MainTree               // .git is a directory of the repository
	Worktree               // .git is a file that points to another repository
)

// Outcomes beside the names of errno (errno(3)) and of signals.
const (
	Works   = "works"    // the attempt reached what it was after
	Hangs   = "hangs"    // it was still going on after a minute
	NoArena = "no-arena" // the arena lacks what it needs: nothing was tried
)

// A Result is what came of one attempt.
type Result struct {
	Name    string `json:"name"`
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}

// Attempts is the whole table. It is empty on other systems than Linux.
func Attempts() []Attempt {
	return slices.Concat(fileAttempts(), repositoryAttempts(), networkAttempts(), processAttempts(), privilegeAttempts(), kernelAttempts())
}

// For picks what can be tried on one layout.
func For(in Layout) []Attempt {
	return slices.DeleteFunc(Attempts(), func(a Attempt) bool { return a.In != Any && a.In != in })
}

// Held reports whether an outcome inside means that the sandbox holds.
func (a Attempt) Held(outcome string) bool { return slices.Contains(a.Want, outcome) }

// elsewhere is the reason of what works for the root of a host, whom nobody
// should be for it.
const elsewhere = "needs root there too: shown to the root of namespaces of its own, with a first process of its own"

// Elsewhere reports whether the attempt is shown to work, and must, by
// "attack run-own" in place of "attack run".
func (a Attempt) Elsewhere() bool { return a.Outside == elsewhere }

// Inside says in words what is wrong with an outcome inside, or "".
func (a Attempt) Inside(r Result) string {
	switch {
	case a.Held(r.Outcome), a.Known != "" && r.Outcome == Works:
		return ""
	case r.Outcome == NoArena && slices.Contains(a.Lacking, NoArena):
		return ""
	}
	return fmt.Sprintf("%s (%s): %s %s, want %s", a.Name, a.Tries, r.Outcome, r.Detail, strings.Join(a.Want, " or "))
}

// Shown says in words what is wrong with an outcome outside, or "".
func (a Attempt) Shown(r Result) string {
	if r.Outcome == Works || slices.Contains(a.Lacking, r.Outcome) {
		return ""
	}
	return fmt.Sprintf("%s (%s) proves nothing: outside it gives %s %s", a.Name, a.Tries, r.Outcome, r.Detail)
}

// An Arena is what the attempts aim at. All of it is on the host and none of
// it is to be reached from inside, but for Repo, which is mounted writable.
type Arena struct {
	Repo   string `json:"repo"`
	GitDir string `json:"git_dir"` // of this work tree
	Common string `json:"common"`  // shared with other work trees, else GitDir

	Secret    string `json:"secret"`      // a file that every user may read and write
	TmpSecret string `json:"tmp_secret"`  // the same, directly in the host's /tmp
	ShmSecret string `json:"shm_secret"`  // the same, in the host's /dev/shm
	Socket    string `json:"socket"`      // a listening path socket
	InRepo    string `json:"in_repo"`     // a listening path socket in Repo
	Abstract  string `json:"abstract"`    // a listening abstract socket, without the zero byte
	Datagram  string `json:"datagram"`    // an abstract datagram socket
	TCP4      int    `json:"tcp4"`        // a listening port of 127.0.0.1
	TCP6      int    `json:"tcp6"`        // a listening port of ::1, 0 without IPv6
	UDP4      int    `json:"udp4"`        // an open datagram port of 127.0.0.1
	Proxy     string `json:"proxy"`       // where the sandbox has its way out
	Victim    int    `json:"victim"`      // a process of the same user
	ShmID     int    `json:"shm_id"`      // a SysV segment of that process
	Key       string `json:"key"`         // a key in the keyring of that user
	Terminal  string `json:"terminal"`    // a terminal of the same user
	Inherited int    `json:"inherited"`   // a descriptor of Secret, not close-on-exec
	Setuid    string `json:"setuid"`      // a setuid-root copy of the attack program, or ""
	Processes int    `json:"processes"`   // the sandbox's limit, 0 without
	Held      string `json:"placeholder"` // a directory that holds a missing path, or ""
}
