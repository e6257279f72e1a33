// Package capability promises an honest answer to one question: can this
// machine sandbox agents?
//
// Each check is made by doing the thing, not by reading that it should work: a
// Landlock ruleset is created, a seccomp listener is installed, a namespace is
// built to the end. [Examine] runs the probes of a [Host] side by side, bounded
// in time, and leaves nothing behind. Every answer becomes a [Check] in plain
// words; [Decide], which is pure, turns the checks into a line per engine and
// the [Verdict].
//
//	report := capability.Examine(ctx, capability.ThisHost(capability.Options{}), capability.Auto)
//	fmt.Println(report.Verdict) // Agents run in a sandbox
//
// What was not proven counts as absent: a check that is missing, skipped or did
// not end makes no engine able. How a session is confined is left to package
// sandbox, and who may ask for one to the node.
package capability
