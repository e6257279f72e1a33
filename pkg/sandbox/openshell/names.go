package openshell

import (
	"crypto/sha256"
	"encoding/hex"
)

// MostName is the longest name that a gateway takes: names made of it must fit
// into a host name.
const MostName = 19

// Labels by which a node finds its own sandboxes, at the gateway and in Docker.
const (
	LabelNode    = "mojoup.node"
	LabelSession = "mojoup.session"
	// LabelUser is the user that the node runs as: of several people's sandboxes
	// on one machine, each is shown their own.
	LabelUser = "mojoup.user"
	// LabelAttempt tells one request from any other of the same name. The
	// client sets it.
	LabelAttempt = "mojoup.attempt"
)

// Name is what the sandbox of a session is called: the same at every call, so
// that a request whose answer was lost can be looked up. It is made of both
// ids, since two nodes may share a gateway.
func Name(node, session string) string {
	sum := sha256.Sum256([]byte(node + "\x00" + session))
	return "mj-" + hex.EncodeToString(sum[:8])
}
