package sandbox

import "context"

// A Keeper is an Engine that can make in advance what its sandboxes have in
// common. A spare is never more than a sandbox that has been begun: it is made
// by the same acts as any other, becomes part of one sandbox, of the person it
// was made for, and goes with it.
type Keeper interface {
	// Keep keeps spares until ctx ends, then takes those away that nobody has
	// used and returns. What they are like follows from the last Spec that was
	// prepared: before the first there is none.
	Keep(ctx context.Context, k Keeping)
}

// Keeping says how spares are kept, and is told what becomes of them.
type Keeping struct {
	// Spares is how many there are at most. Zero means none.
	Spares int
	// Note writes down what undoes a spare, before it is made. An error means
	// that it is not made.
	Note func(ctx context.Context, spare string, undo []Undo) error
	// Claimed says that a spare is part of a sandbox from now on.
	Claimed func(spare, sandbox string)
	// Settled says that nothing is left of a spare.
	Settled func(spare string)
	// May is asked before each spare whether the machine has room for one.
	// Nil means yes.
	May func() bool
}
