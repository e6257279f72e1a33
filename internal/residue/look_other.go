//go:build !linux

package residue

import "context"

func (o Options) look(context.Context) Report {
	return Report{Left: []Thing{}, Nodes: []Node{}, Unknown: []string{"sandboxes need Linux"}}
}
