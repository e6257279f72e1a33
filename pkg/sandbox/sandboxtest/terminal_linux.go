package sandboxtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// A console is a command on a terminal and what it has said.
type console struct {
	sandbox.Process
	t   *testing.T
	box *box
	got bytes.Buffer
}

func (b *box) console(script string) *console {
	b.t.Helper()
	c := shell("/", script)
	c.TTY = &sandbox.Size{Columns: 101, Rows: 37}
	proc, err := b.Exec(deadline(b.t), c, sandbox.Stdio{})
	must(b.t, err)
	if proc.Terminal() == nil {
		b.t.Fatal("no terminal")
	}
	// A read of a terminal that stays silent ends when the command does.
	watchdog := time.AfterFunc(patience, func() { _ = proc.Signal(syscall.SIGKILL) })
	b.t.Cleanup(func() { watchdog.Stop(); _ = proc.Terminal().Close() })
	return &console{Process: proc, t: b.t, box: b}
}

// expect reads until text has appeared.
func (c *console) expect(text string) {
	c.t.Helper()
	buf := make([]byte, 4096)
	for !strings.Contains(c.got.String(), text) {
		n, err := c.Terminal().Read(buf)
		c.got.Write(buf[:n])
		if err != nil {
			c.t.Fatalf("terminal ended (%v) before %q; it said %q", err, text, c.got.String())
		}
	}
}

// rest reads until the terminal hangs up, which Linux reports as EIO.
func (c *console) rest() string {
	c.t.Helper()
	if _, err := io.Copy(&c.got, c.Terminal()); err != nil && !errors.Is(err, syscall.EIO) {
		c.t.Errorf("reading the terminal: %v", err)
	}
	return c.got.String()
}

func (c *console) typed(text string) {
	c.t.Helper()
	_, err := c.Terminal().WriteString(text)
	must(c.t, err)
}

func testTerminalSize(t *testing.T, s *suite) {
	_, b := s.plain(t)
	c := b.console(`trap 'echo "now $(stty size)"; exit 0' WINCH
		for fd in 0 1 2; do [ -t $fd ] || exit 1; done
		tty; : > /dev/tty || exit 2; echo "size $(stty size)"; echo go; while :; do sleep 0.01; done`)
	c.expect("size 37 101")
	c.expect("go")
	if strings.Contains(c.got.String(), "not a tty") {
		t.Error("the terminal has no name inside")
	}
	must(t, c.Resize(sandbox.Size{Columns: 20, Rows: 10}))
	c.expect("now 10 20")
	if got := b.wait(c); got.Code != 0 {
		t.Errorf("got %+v, said %q", got, c.got.String())
	}
}

func testTerminalCtrlC(t *testing.T, s *suite) {
	_, b := s.plain(t)
	// The outer one must survive it too: with the leader of its session a
	// terminal hangs up, and with that goes what the inner one says.
	c := b.console(`trap : INT; sh -c 'trap "echo caught; exit 6" INT; echo ready; while :; do sleep 0.01; done'; exit $?`)
	c.expect("ready")
	c.typed("\x03")
	c.expect("caught")
	if got := b.wait(c); got.Code != 6 {
		t.Errorf("got %+v", got)
	}
}

func testTerminalExit(t *testing.T, s *suite) {
	_, b := s.plain(t)
	c := b.console("read x; echo got $x; exit 42")
	c.typed("word\n")
	if got := b.wait(c); got.Code != 42 {
		t.Errorf("got %+v", got)
	}
	if out := c.rest(); !strings.Contains(out, "got word") {
		t.Errorf("output before the end was lost: %q", out)
	}
	// Hanging up, as a closed window does, ends what waits for input.
	c = b.console("echo ready; read x; sleep 60")
	c.expect("ready")
	must(t, c.Terminal().Close())
	if got := b.wait(c); got.Code == 0 {
		t.Errorf("after a hang-up: %+v", got)
	}
}

func testTerminalOutput(t *testing.T, s *suite) {
	p := s.newPlace(t)
	data := noise(1<<20, 4)
	p.write(t, "data", string(data))
	b := s.open(t, s.spec(t, p))
	c := b.console("stty raw -echo; cat '" + p.repo + "/data'")
	same(t, "terminal", data, c.rest())
	if got := b.wait(c); got != (sandbox.Exit{}) {
		t.Errorf("got %+v", got)
	}
	if err := c.Terminal().Close(); err != nil && !errors.Is(err, os.ErrClosed) {
		t.Error(err)
	}
}
