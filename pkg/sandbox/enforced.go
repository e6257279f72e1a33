package sandbox

import (
	"time"
)

// Strength is how well a protection holds.
type Strength string

// How well a protection can hold.
const (
	Held   Strength = "enforced"
	Weaker Strength = "weaker" // there, but less than one might think: Detail says why
	Absent Strength = "absent" // not asked for, or not to be had here
)

// A Fact is one line of what was really enforced.
type Fact struct {
	Name     string   // "filesystem", "network", "system calls", "memory limit", …
	Strength Strength // never better than what was seen
	Detail   string   // for people: by what, or why not
}

// FactHostSockets is the name of the fact about path sockets of the host's
// programs in mounted directories.
const FactHostSockets = "host sockets"

// FactDirect is the name of the fact about hosts that need no proxy's language.
const FactDirect = "direct hosts"

// Enforced is what was really enforced, as seen from inside.
type Enforced []Fact

// A Refusal is a system call that one program made inside and that was refused.
type Refusal struct {
	// Program is the name that the process goes by, which is its own choice.
	// Empty where nobody knows, or too many had their calls refused.
	Program string
	PID     int       // inside, of the first; zero where nobody knows
	Call    string    // as in "unshare"
	Tried   string    // in words: "make a user namespace"
	Answer  string    // the errno: "EPERM"
	Count   int64     // how often
	First   time.Time // and when
	Last    time.Time
}
