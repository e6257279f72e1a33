// Package residue promises to name everything on this machine that bears a
// node's mark and has no living owner.
//
// It looks in two ways. Engines say what bears their mark wherever it is; and
// of every node that the register knows, alive or dead, the journal says what
// each session may have left and where. An owner lives where a node answers
// that it carries the session, where a process descends from a node's, and
// where somebody holds a placeholder's lock.
//
// Nothing is changed and nothing is locked, and what belongs to a living node
// is not looked into: [Look] may be called beside any number of them.
package residue

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/mojoup/mojoup-node/internal/config"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// Kinds of things beside those of [sandbox.Trace].
const (
	KindSession = "session" // called live by a node that does not live
	KindUndo    = "undo"    // in the journal of a dead node, and not known to be done
	KindSocket  = "socket"
	KindFile    = "file" // in a dead node's runtime directory
	KindMount   = "mount"
)

// A Thing is one leftover. Its JSON is what cleanup --verify --json lists.
type Thing struct {
	Kind    string `json:"kind"`
	Session string `json:"session,omitempty"`
	Path    string `json:"path,omitempty"`
	PID     int    `json:"pid,omitempty"`
	State   string `json:"state,omitempty"` // directory of the node that knew of it
	Says    string `json:"sentence"`
}

// A Node is one that is or was.
type Node struct {
	State   string `json:"state,omitempty"` // unknown of a node that was found by its socket
	Runtime string `json:"runtime"`
	Alive   bool   `json:"alive"`
	PID     int    `json:"pid,omitempty"`
}

// A Report is what a look has found. Its lists are never nil.
type Report struct {
	Left    []Thing  `json:"left"`
	Nodes   []Node   `json:"nodes"`
	Unknown []string `json:"unknown"` // sentences: what could not be found out
}

// Options of Look.
type Options struct {
	// Paths are those of the own node, with the register of the others.
	Paths config.Paths
	// Engines by name. One that is no [sandbox.Witness] is asked nothing.
	Engines map[string]sandbox.Engine
	// OwnOnly looks for what the node of these paths has left, alone.
	OwnOnly bool
	// Settle is how long what may be on its way out is waited for; zero means
	// three seconds.
	Settle time.Duration
}

const (
	settle = 3 * time.Second
	again  = 20 * time.Millisecond // at first, later less often
	seldom = 320 * time.Millisecond
	least  = 2 // how often what is found is looked at again in any case
)

// Look names what is left. What is just ending, such as the processes of a node
// that died a moment ago, is looked at again until it has gone or counts as
// left; everything in the answer was found each time, and more than once.
func Look(ctx context.Context, o Options) (Report, error) {
	due := time.Now().Add(cmp.Or(o.Settle, settle))
	r := o.look(ctx)
	pause := again
	for i := 0; len(r.Left) > 0 && (i < least || fleeting(r.Left) && time.Now().Before(due)); i++ {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return r, fmt.Errorf("looking for what is left: %w", context.Cause(ctx))
		}
		pause = min(2*pause, seldom)
		before := r.Left
		r = o.look(ctx)
		r.Left = both(before, r.Left)
	}
	return r, nil
}

// fleeting reports whether anything in the list may go by itself.
func fleeting(list []Thing) bool {
	passing := []string{sandbox.TraceProcess, sandbox.TraceGroup, sandbox.TraceContainer, sandbox.TraceRecord}
	return slices.ContainsFunc(list, func(t Thing) bool { return slices.Contains(passing, t.Kind) })
}

// both are the things of now that were there before.
func both(before, now []Thing) []Thing {
	out := []Thing{}
	for _, t := range now {
		if slices.Contains(before, t) {
			out = append(out, t)
		}
	}
	return out
}
