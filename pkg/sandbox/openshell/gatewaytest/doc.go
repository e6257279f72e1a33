// Package gatewaytest promises a gateway for tests that does what a real one
// does: it speaks either generation over real gRPC, and what it makes are real
// Docker containers with real mounts, identities, commands and ends, whose only
// way out is the one rule of their policy.
//
// It is a double and not a mock: it answers what it did. Where a real gateway
// of 0.0.111 was seen to behave oddly, it behaves as oddly. What it is kept
// honest by: the public Python SDK of 0.1.5 as a client, and the suite of
// package openshell, which runs against a real gateway too.
//
// It can misbehave where a test asks for it: see [Faults].
package gatewaytest
