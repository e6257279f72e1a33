package node

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/plan"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
)

// TestD23_SessionsComeAndGoInOneTree: whatever of one session's placeholders
// another finds, made, half made or just being taken away, none is refused for
// it, none is told that the host took a protection away, and nothing is left.
func TestD23_SessionsComeAndGoInOneTree(t *testing.T) {
	w := newWorld(t)
	w.serve(t, w.options(t, nativeEngine(t)))
	before := tree(t, w.repo)
	each := 8
	if !kerneltest.ShortOfLong() {
		each = 40
	}
	var mu sync.Mutex // guards said
	var said []string
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for range each {
				lines := &notices{}
				end, err := client.New(w.paths.Socket()).Run(t.Context(), api.RunRequest{
					Directory: w.repo, Env: plan.CallerEnv(os.Environ()), Command: []string{"true"},
				}, client.Streams{Stdout: lines, Stderr: lines, Notice: lines.add})
				mu.Lock()
				if err != nil || end.Code != 0 || end.Problem != nil {
					said = append(said, fmt.Sprintf("it ended with %d, %v, %v", end.Code, end.Problem, err))
				}
				said = append(said, slices.Concat(end.Notices, lines.lines)...)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	together := 0
	said = slices.DeleteFunc(said, func(line string) bool {
		if strings.HasPrefix(line, "also at work in this working tree") {
			together++
			return true
		}
		return strings.HasPrefix(line, "nothing is reachable")
	})
	if together == 0 {
		t.Error("nobody was told that another session is at work in the tree")
	}
	if len(said) > 0 {
		t.Errorf("%d sessions said:\n%s", 4*each, strings.Join(said, "\n"))
	}
	if d := cmp.Diff(before, tree(t, w.repo)); d != "" {
		t.Errorf("left in the repository (-before +after):\n%s", d)
	}
}

type notices struct{ lines []string }

func (n *notices) add(line string)             { n.lines = append(n.lines, line) }
func (n *notices) Write(p []byte) (int, error) { n.add(string(p)); return len(p), nil }
