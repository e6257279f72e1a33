package native

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

func monotonic() time.Duration {
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		panic("BUG: " + err.Error())
	}
	return time.Duration(now.Nano())
}

func firstInstruction(out []byte) (time.Duration, error) {
	if len(out) != 16 {
		return 0, fmt.Errorf("the command said %q", out)
	}
	seconds := binary.NativeEndian.Uint64(out)
	nanos := binary.NativeEndian.Uint64(out[8:])
	return time.Duration(seconds)*time.Second + time.Duration(nanos), nil
}

// buildFirst compiles the least command into dir.
func buildFirst(tb testing.TB, dir string) string {
	tb.Helper()
	program := filepath.Join(dir, "first")
	out, err := exec.CommandContext(tb.Context(), "cc", "-static", "-nostdlib", "-ffreestanding", "-o", program, "testdata/first.c").CombinedOutput()
	if err != nil {
		tb.Skipf("no C compiler here: %v %s", err, out)
	}
	return program
}

// serve answers as the node's proxy does.
func serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer c.Close()
			_, _ = c.Read(make([]byte, 1024))
			_, _ = io.WriteString(c, "HTTP/1.1 204 No Content\r\n\r\n")
		}()
	}
}

func startOurs(ctx context.Context, e *Engine, spec sandbox.Spec, program string) (first time.Duration, err error) {
	began := monotonic()
	b, err := e.Prepare(ctx, spec)
	if err != nil {
		return 0, err
	}
	defer b.Remove(context.WithoutCancel(ctx))
	defer b.Listener().Close()
	go serve(b.Listener())
	if _, err := b.Check(ctx); err != nil {
		return 0, err
	}
	var out bytes.Buffer
	p, err := b.Exec(ctx, sandbox.Command{Argv: []string{program}}, sandbox.Stdio{Stdout: &out})
	if err != nil {
		return 0, err
	}
	if _, err := p.Wait(ctx); err != nil {
		return 0, err
	}
	at, err := firstInstruction(out.Bytes())
	return at - began, err
}

func startBwrap(ctx context.Context, spec sandbox.Spec, program string) (time.Duration, error) {
	began := monotonic()
	cmd := exec.CommandContext(ctx, "bwrap", append(bwrapArgs(spec), program)...)
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(spec.Identity.UID), Gid: uint32(spec.Identity.GID)}}
	}
	out, err := cmd.Output()
	if err != nil {
		return 0, err
	}
	at, err := firstInstruction(out)
	return at - began, err
}

// bwrapArgs are the same mounts in bubblewrap's words.
func bwrapArgs(s sandbox.Spec) []string {
	args := []string{"--unshare-all", "--die-with-parent", "--proc", "/proc", "--dev", "/dev"}
	for _, m := range s.Mounts {
		switch {
		case m.Kind == sandbox.Scratch:
			args = append(args, "--tmpfs", m.Target)
		case m.Kind == sandbox.Link:
			args = append(args, "--symlink", m.Source, m.Target)
		case m.Kind == sandbox.Bind && m.Access == sandbox.ReadWrite:
			args = append(args, "--bind", m.Source, m.Target)
		case m.Kind == sandbox.Bind:
			args = append(args, "--ro-bind-try", m.Source, m.Target)
		}
	}
	for _, p := range s.Protect {
		if p.Guard == sandbox.Pin {
			args = append(args, "--bind", p.Path, p.Path)
		} else {
			args = append(args, "--ro-bind", p.Path, p.Path)
		}
	}
	return args
}

// BenchmarkStart measures from the call to the command's first instruction,
// ours with its self-check, without limits and with all of them, interleaved
// with bubblewrap and the same mounts.
// The ratio is what counts: milliseconds are the machine's.
func BenchmarkStart(b *testing.B) {
	if _, err := exec.LookPath("bwrap"); err != nil {
		b.Skip("bubblewrap is not installed")
	}
	for _, heap := range []int{0, 1 << 30} {
		b.Run(fmt.Sprintf("heap=%dMiB", heap>>20), func(b *testing.B) {
			ballast := make([]byte, heap)
			for i := 0; i < len(ballast); i += 4096 {
				ballast[i] = 1
			}
			e := engine(b)
			w := newWorld(b)
			spec := w.spec()
			program := buildFirst(b, w.repo)
			limited := spec
			limited.ID += "l"
			limited.Limits = sandbox.Limits{Memory: 1 << 30, Processes: 512, CPUs: 1}
			starts := []func() (time.Duration, error){
				func() (time.Duration, error) { return startOurs(b.Context(), e, spec, program) },
				func() (time.Duration, error) { return startBwrap(b.Context(), spec, program) },
				func() (time.Duration, error) { return startOurs(b.Context(), e, limited, program) },
			}
			took := make([][]time.Duration, len(starts))
			for n := 0; b.Loop(); n++ {
				// In turn: what one leaves to be cleaned up hinders the next.
				for i := range starts {
					which := (i*(1+n%2) + n) % len(starts)
					d, err := starts[which]()
					if err != nil {
						b.Fatal(err)
					}
					took[which] = append(took[which], d)
				}
			}
			ours, theirs, bounded := took[0], took[1], took[2]
			runtime.KeepAlive(ballast)
			for _, q := range []int{50, 95} {
				o, t := quantile(ours, q), quantile(theirs, q)
				b.ReportMetric(o.Seconds()*1000, fmt.Sprintf("ms-p%d", q))
				b.ReportMetric(t.Seconds()*1000, fmt.Sprintf("bwrap-ms-p%d", q))
				b.ReportMetric(float64(o)/float64(t), fmt.Sprintf("ratio-p%d", q))
				b.ReportMetric(quantile(bounded, q).Seconds()*1000, fmt.Sprintf("limited-ms-p%d", q))
				b.ReportMetric(float64(quantile(bounded, q))/float64(t), fmt.Sprintf("limited-ratio-p%d", q))
			}
		})
	}
}

func quantile(d []time.Duration, percent int) time.Duration {
	slices.Sort(d)
	return d[(len(d)-1)*percent/100]
}

// BenchmarkExec measures one more command in a sandbox that stands.
func BenchmarkExec(b *testing.B) {
	box := open(b, newWorld(b).spec())
	for b.Loop() {
		p, err := box.Exec(b.Context(), sandbox.Command{Argv: strings.Fields("/usr/bin/true")}, sandbox.Stdio{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := p.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}
