package bench

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
)

// Places are repositories to start in, one for every few starts. For five
// minutes ext4 remembers what was deleted, and looks at all of it in that part
// of the disk before it makes something new there: after hundreds of starts in
// one place, each of which takes away again what it has made, that would take
// longer than the start.
type Places struct {
	dir   string
	taken int
}

// each is how many starts a place has.
const each = 8

// NewPlaces makes the repositories below dir.
func NewPlaces(dir string) *Places {
	scatter(dir)
	return &Places{dir: dir}
}

// Next is where the next start is to be.
func (p *Places) Next(ctx context.Context) (repository string, err error) {
	repository = filepath.Join(p.dir, "repository"+strconv.Itoa(p.taken/each))
	if p.taken%each == 0 {
		if out, err := exec.CommandContext(ctx, "git", "init", "-q", repository).CombinedOutput(); err != nil {
			return "", fmt.Errorf("making a repository to measure in: %w: %s", err, out)
		}
	}
	p.taken++
	return repository, nil
}
