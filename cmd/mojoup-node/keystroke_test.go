package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/creack/pty"
)

// BenchmarkKeystroke is how long a key takes from the person's terminal to a
// program in a session and back: the whole way, two terminals, client, node
// and sandbox. Beside it the same without a session, as the floor.
func BenchmarkKeystroke(b *testing.B) {
	echo := []string{"sh", "-c", "stty raw -echo; echo ready; exec cat"}
	b.Run("floor", func(b *testing.B) { keystrokes(b, os.Environ(), b.TempDir(), echo) })
	b.Run("session", func(b *testing.B) {
		if !canSandbox(b) {
			b.Skip("wanted a sandbox, found none")
		}
		dir := b.TempDir()
		run, err := os.MkdirTemp("", "mj")
		if err != nil {
			b.Fatal(err)
		}
		env := append(os.Environ(), "MOJOUP_CONFIG="+dir+"/node.toml", "MOJOUP_STATE_DIR="+dir+"/state", "MOJOUP_RUNTIME_DIR="+run)
		repo := filepath.Join(dir, "repo")
		if err := os.Mkdir(repo, 0o755); err != nil {
			b.Fatal(err)
		}
		defer func() {
			stop := exec.Command("mojoup-node", "serve", "--stop")
			stop.Env = env
			_ = stop.Run()
			_ = os.RemoveAll(run)
		}()
		keystrokes(b, env, repo, append([]string{"mojoup-node", "run", "--"}, echo...))
	})
}

func keystrokes(b *testing.B, env []string, dir string, argv []string) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env, cmd.Dir = env, dir
	file, err := pty.Start(cmd)
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = file.Close()
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	}()
	buf := make([]byte, 4096)
	for said := ""; !strings.Contains(said, "ready\n") && !strings.Contains(said, "ready\r\n"); {
		n, err := file.Read(buf)
		if err != nil {
			b.Fatalf("%v after %q", err, said)
		}
		said += string(buf[:n])
	}
	var took []time.Duration
	for b.Loop() {
		began := time.Now()
		if _, err := file.Write([]byte("x")); err != nil {
			b.Fatal(err)
		}
		for n := 0; n == 0 || buf[n-1] != 'x'; {
			if n, err = file.Read(buf); err != nil {
				b.Fatal(err)
			}
		}
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*95/100].Microseconds()), "p95-µs")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
}
