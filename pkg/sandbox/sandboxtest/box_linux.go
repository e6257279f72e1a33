package sandboxtest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// patience bounds everything that is waited for: far above what it takes, so
// that only a hang reaches it.
const patience = 2 * time.Minute

func deadline(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return ctx
}

// A box is a prepared sandbox whose proxy answers.
type box struct {
	sandbox.Sandbox
	t *testing.T
}

// open prepares a sandbox, serves its listener and removes it in the end.
func (s *suite) open(t *testing.T, spec sandbox.Spec) *box {
	t.Helper()
	made, err := s.newEngine(t).Prepare(deadline(t), spec)
	if err != nil {
		t.Fatalf("Prepare: %v", err)
	}
	b := &box{Sandbox: made, t: t}
	served := serve(made.Listener())
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := made.Remove(ctx); err != nil {
			t.Errorf("Remove: %v", err)
		}
		if l := made.Listener(); l != nil {
			_ = l.Close()
		}
		<-served
	})
	return b
}

// plain opens a sandbox on a bare place.
func (s *suite) plain(t *testing.T) (*place, *box) {
	t.Helper()
	p := s.newPlace(t)
	return p, s.open(t, s.spec(t, p))
}

// What the proxy of the suite says: it is well when asked for itself, as the
// node's proxy is by an engine's check, and has no policy for anything else.
const (
	healthy  = "HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
	noPolicy = "HTTP/1.1 503 No Policy\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
)

// serve answers every connection until l is closed, and returns a channel that
// is closed after that.
func serve(l net.Listener) <-chan struct{} {
	done := make(chan struct{})
	if l == nil {
		close(done)
		return done
	}
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			_ = conn.SetDeadline(time.Now().Add(patience))
			head := make([]byte, 4096)
			n, _ := conn.Read(head)
			answer := noPolicy
			if strings.Contains(string(head[:n]), "/healthz ") {
				answer = healthy
			}
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return done
}

// result is what a command left.
type result struct {
	sandbox.Exit
	out, err string
}

// run carries a command out and fails the test where it cannot.
func (b *box) run(c sandbox.Command) result {
	b.t.Helper()
	r, err := b.try(c, nil)
	if err != nil {
		b.t.Fatalf("%q: %v", c.Argv, err)
	}
	return r
}

func (b *box) try(c sandbox.Command, stdin io.Reader) (result, error) {
	ctx := deadline(b.t)
	var out, errs bytes.Buffer
	proc, err := b.Exec(ctx, c, sandbox.Stdio{Stdin: stdin, Stdout: &out, Stderr: &errs})
	if err != nil {
		return result{}, err
	}
	exit, err := proc.Wait(ctx)
	if err != nil {
		return result{}, err
	}
	return result{Exit: exit, out: out.String(), err: errs.String()}, nil
}

// sh runs a script of the shell in dir, and wants it to end with 0.
func (b *box) sh(dir, script string) string {
	b.t.Helper()
	r := b.run(shell(dir, script))
	if r.Code != 0 {
		b.t.Fatalf("sh -c %q: exit %d\n%s%s", script, r.Code, r.out, r.err)
	}
	return r.out
}

func shell(dir, script string) sandbox.Command {
	return sandbox.Command{Argv: []string{"sh", "-c", script}, Dir: dir}
}

// start begins a shell script with its output in a pipe, for tests that look
// while it runs. The returned function reads one line.
func (b *box) start(dir, script string) (sandbox.Process, func() string) {
	b.t.Helper()
	r, w := io.Pipe()
	b.t.Cleanup(func() { _ = r.Close() })
	proc, err := b.Exec(deadline(b.t), shell(dir, script), sandbox.Stdio{Stdout: w})
	if err != nil {
		b.t.Fatalf("sh -c %q: %v", script, err)
	}
	return proc, func() string {
		b.t.Helper()
		line, err := readLine(r)
		if err != nil {
			b.t.Fatalf("reading from %q: %v", script, err)
		}
		return line
	}
}

func readLine(r io.Reader) (string, error) {
	var line []byte
	one := make([]byte, 1)
	for {
		n, err := r.Read(one)
		if n == 1 && one[0] == '\n' {
			return string(line), nil
		}
		line = append(line, one[:n]...)
		if err != nil {
			return string(line), err
		}
	}
}

// wait wants the end of a process within the test's patience.
func (b *box) wait(p sandbox.Process) sandbox.Exit {
	b.t.Helper()
	exit, err := p.Wait(deadline(b.t))
	if err != nil {
		b.t.Fatalf("Wait: %v", err)
	}
	return exit
}

func isGone(err error) bool { return errors.Is(err, sandbox.ErrGone) }
