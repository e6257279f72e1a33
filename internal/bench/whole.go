package bench

import (
	"context"
	"os/exec"
	"time"
)

// A Command is a whole program that is measured from its start to its end.
type Command struct {
	Name, Peer string
	Argv       []string
	Dir        string
	Env        []string // nil means this process's
}

// Commands measures whole commands in turn. Those whose program is not
// installed are left out and named by missing.
func Commands(ctx context.Context, runs int, cs []Command) (rows []Row, missing []string, err error) {
	var ms []measure
	for _, c := range cs {
		if _, err := exec.LookPath(c.Argv[0]); err != nil {
			missing = append(missing, c.Argv[0])
			continue
		}
		ms = append(ms, measure{c.Name, c.Peer, func(ctx context.Context) (time.Duration, error) {
			cmd := exec.CommandContext(ctx, c.Argv[0], c.Argv[1:]...)
			cmd.Dir, cmd.Env = c.Dir, c.Env
			begun := time.Now()
			err := cmd.Run()
			return time.Since(begun), err
		}})
	}
	rows, err = inTurn(ctx, runs, ms)
	return rows, missing, err
}
