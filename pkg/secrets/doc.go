// Package secrets promises that a key is seen by nobody but the server that it
// is for: values refuse to be printed, sessions hold stand-ins, and a [Ring]
// puts the key in place of its stand-in only where the key's [Binding] says.
//
//	ring := book.Open("session 1")           // book is the node's
//	standIn, err := ring.Add(secret)         // goes into the session
//	swap, misuse := ring.Look(request)       // for each request on its way out
//	body = ring.Masker().Reader(body)        // for each answer on its way in
//	ring.Rotate("NAME", value)               // the stand-in stays
//	ring.Close()                             // the stand-ins are void
//
// A stand-in has the shape of its key (see [NewStandIn]) and no mark: it is
// known by a lookup in the [Book] that gave it out. Found anywhere else than
// where it belongs, it is a [Misuse]. Where keys come from is for the packages
// below this one.
package secrets
