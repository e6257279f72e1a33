package sandboxtest

import (
	"bytes"
	"crypto/sha256"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// noise is n bytes that no text handling survives.
func noise(n int, seed byte) []byte {
	p := make([]byte, n)
	r := rand.NewChaCha8([32]byte{seed})
	_, _ = r.Read(p)
	return p
}

const tenMiB = 10 << 20

func testStreams(t *testing.T, s *suite) {
	p := s.newPlace(t)
	out, errs := noise(tenMiB, 1), noise(tenMiB, 2)
	p.write(t, "out", string(out))
	p.write(t, "err", string(errs))
	b := s.open(t, s.spec(t, p))
	r := b.run(shell(p.repo, "cat out & cat err >&2; wait"))
	same(t, "stdout", out, r.out)
	same(t, "stderr", errs, r.err)
}

func testStdin(t *testing.T, s *suite) {
	_, b := s.plain(t)
	in := noise(tenMiB, 3)
	r, err := b.try(sandbox.Command{Argv: []string{"cat"}}, bytes.NewReader(in))
	must(t, err)
	same(t, "echo", in, r.out)
	// A command that does not read all of it ends all the same.
	r, err = b.try(sandbox.Command{Argv: []string{"head", "-c", "5"}}, bytes.NewReader(in))
	must(t, err)
	same(t, "head", in[:5], r.out)
}

func same(t *testing.T, what string, want []byte, got string) {
	t.Helper()
	if sha256.Sum256(want) != sha256.Sum256([]byte(got)) {
		t.Errorf("%s: %d bytes with another content than the %d given", what, len(got), len(want))
	}
}

func testNilStreams(t *testing.T, s *suite) {
	_, b := s.plain(t)
	proc, err := b.Exec(deadline(t), shell("/", "read x && exit 1; echo a; echo b >&2; exit 9"), sandbox.Stdio{})
	must(t, err)
	if got := b.wait(proc); got.Code != 9 {
		t.Errorf("got %+v: want end of file on stdin, and output thrown away", got)
	}
	if proc.Terminal() != nil {
		t.Error("a terminal nobody asked for")
	}
	must(t, proc.Resize(sandbox.Size{Columns: 1, Rows: 1}))
}

func testFileStreams(t *testing.T, s *suite) {
	p, b := s.plain(t)
	path := filepath.Join(p.dir, "file")
	must(t, os.WriteFile(path, []byte("12345"), 0o600))
	in, err := os.Open(path)
	must(t, err)
	defer in.Close()
	out, err := os.Create(filepath.Join(p.dir, "out"))
	must(t, err)
	defer out.Close()
	proc, err := b.Exec(deadline(t), sandbox.Command{Argv: []string{"sh", "-c", "head -c 3; echo e >&2"}}, sandbox.Stdio{Stdin: in, Stdout: out, Stderr: out})
	must(t, err)
	b.wait(proc)
	if got, _ := os.ReadFile(out.Name()); string(got) != "123e\n" {
		t.Errorf("got %q", got)
	}
	// The file itself was given, not a copy of what it held.
	if at, err := in.Seek(0, io.SeekCurrent); err != nil || at != 3 {
		t.Errorf("offset %d, %v: want 3", at, err)
	}
}

func testSilentStdin(t *testing.T, s *suite) {
	_, b := s.plain(t)
	r, w := io.Pipe()
	defer w.Close()
	got, err := b.try(shell("/", "exit 4"), r)
	must(t, err)
	if got.Code != 4 {
		t.Errorf("got %+v", got.Exit)
	}
}

// watched reports writes after they were forbidden.
type watched struct {
	closed atomic.Bool
	late   atomic.Int64
}

func (w *watched) Write(p []byte) (int, error) {
	if w.closed.Load() {
		w.late.Add(1)
	}
	return len(p), nil
}

func testNothingAfterWait(t *testing.T, s *suite) {
	p, b := s.plain(t)
	must(t, syscall.Mkfifo(filepath.Join(p.repo, "go"), 0o666))
	must(t, os.Chmod(filepath.Join(p.repo, "go"), 0o666))
	var w watched
	proc, err := b.Exec(deadline(t), shell(p.repo, "(trap '' PIPE; read x < go; echo late; echo late; : > said) & exit 0"), sandbox.Stdio{Stdout: &w})
	must(t, err)
	b.wait(proc)
	w.closed.Store(true)
	b.sh(p.repo, "echo x > go; while [ ! -e said ]; do :; done")
	if n := w.late.Load(); n != 0 {
		t.Errorf("%d writes after Wait", n)
	}
}
