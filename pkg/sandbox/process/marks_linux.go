package process

import (
	"bytes"
	"context"
	"fmt"
	"os"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

var _ sandbox.Witness = (*Engine)(nil)

// Marked finds processes by [Variable] in the environment with which they were
// started. It does not find those that were given another one, those of another
// user unless this is root, and those that hide theirs.
func (*Engine) Marked(context.Context) ([]sandbox.Trace, error) {
	all, err := snapshot()
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	var out []sandbox.Trace
	for _, s := range all {
		if s.dead {
			continue
		}
		dir := fmt.Sprintf("/proc/%d", s.pid)
		environ, err := os.ReadFile(dir + "/environ")
		if err != nil {
			continue
		}
		for kv := range bytes.SplitSeq(environ, []byte{0}) {
			if id, ok := bytes.CutPrefix(kv, []byte(Variable+"=")); ok && validID(string(id)) {
				out = append(out, sandbox.Trace{Kind: sandbox.TraceProcess, Sandbox: string(id), Path: dir, PID: s.pid})
			}
		}
	}
	return out, nil
}

// Remains knows no act, since Undo names none.
func (*Engine) Remains(_ context.Context, u sandbox.Undo) ([]sandbox.Trace, error) {
	return nil, fmt.Errorf("engine process: unknown undo kind %q", u.Kind)
}
