// Package policy promises that a policy document means the same everywhere:
// it parses, layers, decides, explains and lints, from values alone.
//
// [Parse] reads a document, [Compile] puts layers together, and
// [Effective.Decide] answers a [Request] whose host and path have gone through
// [NormalHost] and [NormalPath]. Everybody who judges a request, and everybody
// who tells a person how it would be judged, asks the same code.
//
// # Hosts
//
//	x.example      the name itself
//	*.x.example    exactly one label before it: a.x.example
//	**.x.example   one or more: a.x.example, a.b.x.example
//	10.1.2.3       the address, and no name that resolves to it
//
// A star is the whole first label or nothing. An address as a host is matched
// by a rule that names it and by nothing else, not even the preset "public".
//
// # Ports
//
// A rule without ports means 443 and 80. An entry of "deny" without ports
// means every port.
//
// # Paths
//
// A star stands for any characters within one segment that is not empty, and
// never for an encoded slash; ** stands alone between two slashes for any
// number of segments, at the end for at least an empty one.
//
//	              /v1   /v1/   /v1/a   /v1/a/b   /v1/a/info   /v1/a%2Fb
//	/v1/*          -     -      yes      -          -            -
//	/v1/**         -     yes    yes      yes        yes          yes
//	/v1/*/info     -     -      -        -          yes          -
//	/v1/a*         -     -      yes      -          -            -
//
// Entries of "deny" are also held against what a server would read that
// decodes every escape and drops path parameters.
//
// # Pushes
//
// "push" limits a rule's pushes by git to references, in full; stars mean what
// they do in paths. Allowed are references that are not there yet, and those
// outside refs/tags/ that move forward, which somebody else has to prove. Of the
// hosts and ports that a rule with "push" names, no other rule of its layer
// allows pushes.
//
// # Layers
//
// A request is allowed if and only if every layer with a "network" key allows
// it and none denies it. Methods are compared exactly. What cannot be seen
// (the method within a tunnel, the path of raw bytes) cannot be allowed by a
// rule that depends on it, and is denied by an entry of "deny" that does.
package policy
