package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mojoup/mojoup-node/internal/bench"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/node"
	"github.com/mojoup/mojoup-node/pkg/console/api"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func newBench(p Process) *cobra.Command {
	var runs, wholeRuns int
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "measure starts, ends and connections beside bare floors",
		Long: `Measure, in turn and on this machine: from asking for a sandbox to the first
instruction in it, its end, the whole "run -- true" with a node that lingers,
status and doctor, the memory of that node with idle sessions, and connections
through the way out. Beside them run a plain process, bubblewrap and srt where
they are installed, and a least CONNECT tunnel.
Ratios stay when a machine is busy, milliseconds do not.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := outside(p); err != nil {
				return err
			}
			if runs < 1 || wholeRuns < 1 {
				return fault.Usage("--runs and --whole-runs need a number above 0")
			}
			rows, memory, missing, err := measureAll(cmd.Context(), p, runs, wholeRuns)
			if err != nil {
				return err
			}
			if wantsJSON(cmd) {
				return printJSON(p.Stdout, map[string]any{"cpus": runtime.NumCPU(), "rows": rows, "memory": orEmpty(memory), "missing": orEmpty(missing)})
			}
			printRows(newPen(p), rows)
			for _, f := range memory {
				talk{w: p.Stdout}.line("%s", amount(f))
			}
			for _, r := range rows {
				if r.Note != "" {
					talk{w: p.Stdout}.line("%s: %s", r.Name, r.Note)
				}
			}
			for _, m := range missing {
				talk{w: p.Stderr}.line("not measured: %s is not installed", m)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&runs, "runs", 200, "how often each start and connection is measured")
	cmd.Flags().IntVar(&wholeRuns, "whole-runs", 30, "how often each whole command is measured")
	addJSON(cmd)
	return cmd
}

func amount(f bench.Figure) string {
	text := fmt.Sprintf("%s: %d KiB", f.Name, f.KiB)
	if f.AtMost > 0 {
		text += fmt.Sprintf(" (aimed at: at most %d)", f.AtMost)
	}
	return text
}

func printRows(pen pen, rows []bench.Row) {
	var lines [][]string
	for _, r := range rows {
		ratio := "-"
		if r.Peer != "" && r.Ratio > 0 {
			ratio = fmt.Sprintf("%.2f (p95 %.2f) × %s", r.Ratio, r.Ratio95, r.Peer)
		}
		lines = append(lines, []string{r.Name, fmt.Sprint(r.Runs), fmt.Sprintf("%.2f", r.P50), fmt.Sprintf("%.2f", r.P95), ratio})
	}
	pen.rows([]string{"WHAT", "RUNS", "P50 ms", "P95 ms", "RATIO"}, lines)
}

// many is how many sandboxes are started at once.
const many = 100

func measureAll(ctx context.Context, p Process, runs, wholeRuns int) (rows []bench.Row, memory []bench.Figure, missing []string, err error) {
	dir, err := os.MkdirTemp("", "mojoup-bench")
	if err != nil {
		return nil, nil, nil, fault.Unknown("making a directory to measure in: %w", err)
	}
	defer os.RemoveAll(dir)
	h, err := look(p)
	if err != nil {
		return nil, nil, nil, err
	}
	es, err := engines(h, nil)
	if err != nil {
		return nil, nil, nil, err
	}
	places := bench.NewPlaces(dir)
	repository, err := places.Next(ctx)
	if err != nil {
		return nil, nil, nil, fault.As(err)
	}
	collectLess(p) // the engine runs in this process
	specs := node.BenchSpecs(h.paths, p.Environ())
	spec := func(id string) (sandbox.Spec, error) { return specs(ctx, repository, id) }
	rows, err = bench.Starts(ctx, runs, es["native"], func(id string) (sandbox.Spec, error) {
		place, err := places.Next(ctx)
		if err != nil {
			return sandbox.Spec{}, err
		}
		return specs(ctx, place, id)
	})
	if err != nil {
		return rows, nil, nil, err
	}
	crowd, memory, err := bench.Crowd(ctx, many, es["native"], spec)
	rows = append(rows, crowd)
	if err != nil {
		return rows, memory, nil, err
	}
	whole, missing, err := measureWhole(ctx, p, wholeRuns, dir, repository)
	rows = append(rows, whole...)
	if err != nil {
		return rows, memory, missing, err
	}
	node, err := measureMemory(ctx, p, dir, repository)
	if memory = append(memory, node...); err != nil {
		return rows, memory, missing, err
	}
	tunnels, err := bench.Tunnels(ctx, runs)
	return append(rows, tunnels...), memory, missing, err
}

// idlers is how many sessions idle in a node whose memory is measured.
const idlers = 30

// A benched node is one of bench's own, so that nobody's running node is disturbed.
type benched struct {
	self, dir string // the program, and a repository
	env       []string
}

func startBenched(ctx context.Context, p Process, dir, repository string) (*benched, error) {
	self, err := p.Executable()
	if err != nil {
		return nil, fault.Unknown("finding this program: %w", err)
	}
	b := &benched{self: self, dir: repository, env: append(p.Environ(),
		"MOJOUP_CONFIG="+filepath.Join(dir, "node.toml"), "MOJOUP_STATE_DIR="+filepath.Join(dir, "state"), "MOJOUP_RUNTIME_DIR="+filepath.Join(dir, "run"))}
	if _, err := b.output(ctx, "run", "--", "true"); err != nil {
		return nil, fault.Unknown("starting a node to measure: %w", err)
	}
	return b, nil
}

// output is what a command says that talks to the node.
func (b *benched) output(ctx context.Context, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, b.self, args...)
	cmd.Env, cmd.Dir, cmd.WaitDelay = b.env, b.dir, 10*time.Second
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("%s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return out.Bytes(), nil
}

func (b *benched) stop(ctx context.Context) {
	_, _ = b.output(context.WithoutCancel(ctx), "serve", "--stop")
}

// measureMemory measures what a node itself holds.
func measureMemory(ctx context.Context, p Process, dir, repository string) ([]bench.Figure, error) {
	b, err := startBenched(ctx, p, dir, repository)
	if err != nil {
		return nil, err
	}
	defer b.stop(ctx)
	told, err := b.output(ctx, "status", "--json")
	if err != nil {
		return nil, fault.Unknown("asking the node to measure: %w", err)
	}
	var s api.Status
	if err := json.Unmarshal(told, &s); err != nil {
		return nil, fault.Unknown("reading the answer of the node to measure: %w", err)
	}
	return bench.NodeMemory(ctx, s.Node.PID, idlers, func(ctx context.Context) error {
		_, err := b.output(ctx, "run", "--quiet", "--detach", "--", "sleep", "600")
		return err
	})
}

// measureWhole measures commands that talk to a node.
func measureWhole(ctx context.Context, p Process, runs int, dir, repository string) (rows []bench.Row, missing []string, err error) {
	b, err := startBenched(ctx, p, dir, repository)
	if err != nil {
		return nil, nil, err
	}
	defer b.stop(ctx)
	self, env := b.self, b.env
	const bwrap = "bubblewrap, whole command true"
	bind := []string{"bwrap", "--unshare-all", "--die-with-parent", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", repository, repository, "true"}
	return bench.Commands(ctx, runs, []bench.Command{
		{Name: bwrap, Argv: bind},
		{Name: "mojoup-node run -- true, node lingers", Peer: bwrap, Argv: []string{self, "run", "--", "true"}, Dir: repository, Env: env},
		{Name: "srt true", Peer: "mojoup-node run -- true, node lingers", Argv: []string{"srt", "true"}, Dir: repository},
		{Name: "mojoup-node status", Argv: []string{self, "status"}, Dir: repository, Env: env},
		{Name: "mojoup-node doctor", Argv: []string{self, "doctor"}, Dir: repository, Env: env},
		{Name: "mojoup-node version", Argv: []string{self, "version"}, Dir: repository, Env: env},
	})
}
