// Package openshell promises sandboxes made by the person's own OpenShell
// gateway, whichever of its two wire generations it speaks.
//
// A [Client] is one gateway, once its version is known and before anything is
// asked of it that changes something. Requests and answers are values of this
// package: what stands on the wire, and how it differs between 0.0.x and
// 0.1.x, stays below. Every failure is an [Error]: one sentence, a code to
// decide on, and a hint where there is something to do.
//
// A gateway is not trusted further than it must be: what it says is bounded in
// size and time, and an answer about another sandbox than the one asked for is
// an error, not an answer.
package openshell
