package node

import (
	"fmt"
	"os"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// mayAsk lets in the node's own user only: what a session may touch is what
// that user may touch, and nobody else's files are ever opened by name.
func (n *Node) mayAsk(c console.Caller) error {
	if c.UID == n.uid {
		return nil
	}
	if n.o.Deputy != nil {
		return &api.Problem{Code: "not-allowed", Sentence: fmt.Sprintf("that is for user %s alone to do", n.user.Username), Exit: fault.ExitNegative,
			Hint: "root may list, show and stop what belongs to others"}
	}
	return &api.Problem{Code: "not-allowed", Sentence: fmt.Sprintf("this node serves user %s only", n.user.Username), Exit: fault.ExitNegative,
		Hint: "run your own node: `mojoup-node run` starts one"}
}

// mayLook lets in root as well where the node is a part of root's: to see what
// lives and what lived, and to end it. It shows or does nothing inside.
func (n *Node) mayLook(c console.Caller) error {
	if c.UID == 0 && n.o.Deputy != nil {
		return nil
	}
	return n.mayAsk(c)
}

// within is a caller as the node can make them inside: without privilege a
// user namespace has no other group than the node's own, whatever group the
// caller has taken for a while (newgrp).
func (n *Node) within(c console.Caller) console.Caller {
	if n.uid != 0 {
		c.GID = os.Getgid()
	}
	return c
}
