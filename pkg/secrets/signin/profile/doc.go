// Package profile promises that what the node knows of an agent tool is data:
// how it is started, what it reaches, which keys it takes and where they go on
// the wire, where it keeps its sign-in and what of that may be copied.
//
//	all := profile.Builtin()
//	p, err := profile.Parse("own.toml", text) // one of the person's own
//	env := p.Environment(values)              // what it needs to be set
//
// A profile is a TOML file that says all of itself: what runs a tool knows none
// by name. What [Parse] returns can be obeyed; what is wrong is
// an [*Errors] that names file, line and key. Nothing is read from disk here.
//
// What a tool reaches is asked for and not granted: a policy may refuse it.
package profile
