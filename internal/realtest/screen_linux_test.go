package realtest

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
	"golang.org/x/sys/unix"
)

// A screen is a program on a terminal of its own, and the person before it.
type screen struct {
	t    *testing.T
	cmd  *exec.Cmd
	file *os.File
	read sync.WaitGroup
	done chan struct{} // closed when the program has ended

	mu    sync.Mutex // guards what follows
	shown bytes.Buffer
	seen  int
	more  chan struct{}
}

// screen starts a mojoup-node of the rig's person on a terminal of this size.
func (r *rig) screen(columns, rows uint16, args ...string) *screen {
	r.t.Helper()
	node, err := binary()
	r.must(err)
	s := &screen{t: r.t, cmd: exec.Command(node, args...), more: make(chan struct{}, 1), done: make(chan struct{})}
	s.cmd.Dir = r.repo
	s.cmd.Env = append(r.environ(), "TERM=xterm-256color", "COLORTERM=truecolor")
	attr := &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if r.who.uid != os.Getuid() {
		attr.Credential = &syscall.Credential{Uid: uint32(r.who.uid), Gid: uint32(r.who.gid)}
	}
	file, err := pty.StartWithAttrs(s.cmd, &pty.Winsize{Cols: columns, Rows: rows}, attr)
	r.must(err)
	s.file, err = endable(file)
	r.must(err)
	s.read.Go(func() { _, _ = io.Copy(s, s.file) })
	var waited sync.WaitGroup
	waited.Go(func() {
		_ = s.cmd.Wait()
		close(s.done)
	})
	r.t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		waited.Wait()
		_ = s.file.Close()
		s.read.Wait()
	})
	return s
}

// endable is the same file, whose reads end when it is closed: asking for its
// number has made the other one wait for good.
func endable(file *os.File) (*os.File, error) {
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err == nil {
		err = errors.Join(unix.SetNonblock(fd, true), file.Close())
	}
	return os.NewFile(uintptr(fd), "terminal"), err
}

func (s *screen) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.shown.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *screen) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.shown.String()
}

// see waits for a text behind what was seen before.
func (s *screen) see(what string) {
	s.t.Helper()
	if !s.sees(what, within) {
		s.t.Fatalf("no %q in %q", what, s.text())
	}
}

func (s *screen) sees(what string, within time.Duration) bool {
	late := time.After(within)
	for {
		s.mu.Lock()
		at := bytes.Index(s.shown.Bytes()[s.seen:], []byte(what))
		if at >= 0 {
			s.seen += at + len(what)
		}
		s.mu.Unlock()
		if at >= 0 {
			return true
		}
		select {
		case <-s.more:
		case <-late:
			return false
		}
	}
}

// keys are what a person types for these marks.
var keys = strings.NewReplacer("<CR>", "\r", "<Esc>", "\x1b", "<C-c>", "\x03", "<C-d>", "\x04", "<C-z>", "\x1a", "<C-]>", "\x1d", "<Up>", "\x1b[A")

func (s *screen) press(what string) {
	s.t.Helper()
	if _, err := io.WriteString(s.file, keys.Replace(what)); err != nil {
		s.t.Fatal(err)
	}
}

func (s *screen) resize(columns, rows uint16) {
	s.t.Helper()
	raw, err := s.file.SyscallConn()
	if err == nil {
		err = errors.Join(raw.Control(func(fd uintptr) {
			err = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: columns, Row: rows})
		}), err)
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// hangUp is what happens to a terminal whose window is closed, or whose
// connection drops.
func (s *screen) hangUp() { _ = s.file.Close() }

// leave types the keys that leave a session running.
func (s *screen) leave() {
	s.t.Helper()
	s.press("<C-]>d")
	s.see("goes on")
	s.ends(0)
}

// ends waits for the program's end with this exit code.
func (s *screen) ends(code int) {
	s.t.Helper()
	select {
	case <-s.done:
	case <-time.After(within):
		s.t.Fatalf("it does not end; shown: %q", s.text())
	}
	if got := s.cmd.ProcessState.ExitCode(); got != code {
		s.t.Fatalf("exit code %d, want %d; shown: %q", got, code, s.text())
	}
}

// node runs a mojoup-node of the rig's person and returns what it says.
func (r *rig) node(args ...string) string {
	r.t.Helper()
	node, err := binary()
	r.must(err)
	cmd := exec.Command(node, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = r.repo, r.environ(), 5*time.Second
	if r.who.uid != os.Getuid() {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.who.uid), Gid: uint32(r.who.gid)}}
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		r.t.Fatalf("mojoup-node %s: %v\n%s%s", strings.Join(args, " "), err, out, said.String())
	}
	return string(out)
}

// living is the id of the only session that lives.
func (r *rig) living() string {
	r.t.Helper()
	lines := strings.Split(strings.TrimSpace(r.node("session", "list")), "\n")
	if len(lines) != 2 {
		r.t.Fatalf("want one session, have %q", lines)
	}
	id, _, _ := strings.Cut(lines[1], " ")
	return id
}

// eventually waits until something of the rig is so.
func (r *rig) eventually(what string, so func() bool) {
	r.t.Helper()
	late := time.Now().Add(within)
	tick := time.NewTicker(5 * time.Millisecond) // what is asked may be a whole program
	defer tick.Stop()
	for !so() {
		if time.Now().After(late) {
			r.t.Fatalf("it never came about: %s", what)
		}
		<-tick.C
	}
}

// file is the text of a file in the repository.
func (r *rig) file(name string) string {
	r.t.Helper()
	b, err := os.ReadFile(r.repo + "/" + name)
	r.must(err)
	return string(b)
}
