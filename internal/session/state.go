package session

import (
	"fmt"
	"slices"
)

// State is where a session is in its life. It is written down before it is
// acted on.
//
//	asked -> queued -> staging -> starting -> running -> stopping -> gone
//
// Any of them may end in failed or lost instead; see the table.
type State string

const (
	Asked    State = "asked"    // somebody who may ask did
	Queued   State = "queued"   // waits for a slot
	Staging  State = "staging"  // its undo is written, its things are being made
	Starting State = "starting" // the engine makes and checks the sandbox
	Running  State = "running"  // the command runs
	Stopping State = "stopping" // everything of it is being undone
	Gone     State = "gone"     // the command ran and nothing is left
	Failed   State = "failed"   // the node could not run it; the reason is kept
	Lost     State = "lost"     // found dead by a later start of the node
)

// moves is the table of legal moves. A state that is not a key is none; one
// without followers is an end.
//
// Queued and asked may end as gone where the asker left before anything was
// made. Staging and starting may fail without stopping: a step that fails
// undoes itself. Lost may follow everything live, because a node may die at
// any moment.
var moves = map[State][]State{
	Asked:    {Queued, Staging, Gone, Failed, Lost},
	Queued:   {Staging, Gone, Failed, Lost},
	Staging:  {Starting, Stopping, Failed, Lost},
	Starting: {Running, Stopping, Failed, Lost},
	Running:  {Stopping, Lost},
	Stopping: {Gone, Failed, Lost},
	Gone:     {},
	Failed:   {},
	Lost:     {},
}

// States lists every state, in the order of a session's life.
func States() []State {
	return []State{Asked, Queued, Staging, Starting, Running, Stopping, Gone, Failed, Lost}
}

// Live reports whether the session has not ended. No state at all is not live.
func (s State) Live() bool { return len(moves[s]) > 0 }

// Ended reports whether the session has ended and will never move again.
func (s State) Ended() bool {
	next, ok := moves[s]
	return ok && len(next) == 0
}

// Move reports whether a session may go from one state to the other: nil, or
// a [MoveError].
func Move(from, to State) error {
	if slices.Contains(moves[from], to) {
		return nil
	}
	return &MoveError{From: from, To: to}
}

// A MoveError refuses a move that the table does not have.
type MoveError struct{ From, To State }

func (e *MoveError) Error() string {
	return fmt.Sprintf("a session cannot go from %q to %q", e.From, e.To)
}
