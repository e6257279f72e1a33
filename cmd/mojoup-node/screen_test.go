package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/creack/pty"
	"github.com/rogpeppe/go-internal/testscript"
)

// seeWithin is how long a text may take to be shown: on a machine that does much
// else, as long as it likes.
const seeWithin = 2 * time.Minute

// screen runs a command on a terminal of 100 by 30 and acts the person:
//
//	screen code 'see:$ ' 'type:ls\n' 'size:90x20' 'see:file' -- command args…
//
// Each act waits for what is before it: see waits for a text that comes after
// what was seen before, type types (\n is the return key, ^C, ^Z and ^] are keys with Ctrl, ^[ is Escape), size
// changes the window. At the end the exit code must be code. What was shown is
// in the file screen.
func screen(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 3 {
		ts.Fatalf("usage: screen code acts… -- command args…")
	}
	var acts []string
	rest := args[1:]
	for len(rest) > 0 && rest[0] != "--" {
		acts, rest = append(acts, rest[0]), rest[1:]
	}
	if len(rest) < 2 {
		ts.Fatalf("screen: no command")
	}
	cmd := exec.Command(rest[1], rest[2:]...)
	cmd.Dir = ts.MkAbs(".")
	cmd.Env = environ(ts)
	file, err := startOnTerminal(cmd)
	ts.Check(err)
	defer file.Close()
	shown := &shownText{more: make(chan struct{}, 1), over: make(chan struct{})}
	var reader sync.WaitGroup
	reader.Go(func() {
		_, _ = io.Copy(shown, file)
		close(shown.over)
	})
	timeout := time.AfterFunc(2*seeWithin, func() { _ = cmd.Process.Kill() })
	defer timeout.Stop()
	for _, act := range acts {
		if err := shown.act(file, act); err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			ts.Fatalf("screen: %v; shown: %q", err, shown.text())
		}
	}
	_ = cmd.Wait()
	reader.Wait()
	ts.Check(os.WriteFile(ts.MkAbs("screen"), []byte(strings.ReplaceAll(shown.text(), "\r\n", "\n")), 0o600))
	if got := fmt.Sprint(cmd.ProcessState.ExitCode()); got != args[0] {
		ts.Fatalf("screen: exit code %s, want %s; shown: %q", got, args[0], shown.text())
	}
}

// startOnTerminal starts a command on a terminal of its own.
func startOnTerminal(cmd *exec.Cmd) (*os.File, error) {
	file, tty, err := pty.Open()
	if err != nil {
		return nil, err
	}
	defer tty.Close()
	if err = keepOutput(tty); err == nil {
		err = pty.Setsize(file, &pty.Winsize{Cols: 100, Rows: 30})
	}
	if err == nil {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, tty, tty
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		err = cmd.Start()
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

// environ is what the script's environment is for programs.
func environ(ts *testscript.TestScript) []string {
	out := []string{"TERM=" + ts.Getenv("TERM")}
	for _, name := range []string{
		"PATH", "HOME", "WORK", "TMPDIR", "MOJOUP_CONFIG", "MOJOUP_STATE_DIR", "MOJOUP_RUNTIME_DIR",
		"NO_COLOR", "LANG", "GIT_CONFIG_NOSYSTEM", "MOJOUP_NODE_SANDBOX_ENGINE",
	} {
		if v := ts.Getenv(name); v != "" {
			out = append(out, name+"="+v)
		}
	}
	return out
}

type shownText struct {
	mu   sync.Mutex // guards what follows
	buf  bytes.Buffer
	seen int
	more chan struct{}
	over chan struct{} // closed when nothing more can come
}

func (s *shownText) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buf.Write(p)
	select {
	case s.more <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (s *shownText) text() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.buf.String()
}

func (s *shownText) act(file *os.File, act string) error {
	verb, what, _ := strings.Cut(act, ":")
	switch verb {
	case "see":
		return s.see(what)
	case "type":
		_, err := io.WriteString(file, strings.NewReplacer(`\n`, "\r", "^C", "\x03", "^Z", "\x1a", "^]", "\x1d", "^[", "\x1b").Replace(what))
		return err
	case "size":
		var size pty.Winsize
		if _, err := fmt.Sscanf(what, "%dx%d", &size.Cols, &size.Rows); err != nil {
			return err
		}
		return pty.Setsize(file, &size)
	}
	return fmt.Errorf("unknown act %q", act)
}

func (s *shownText) see(what string) error {
	late := time.After(seeWithin)
	for ended := false; ; {
		s.mu.Lock()
		at := bytes.Index(s.buf.Bytes()[s.seen:], []byte(what))
		if at >= 0 {
			s.seen += at + len(what)
		}
		s.mu.Unlock()
		if at >= 0 {
			return nil
		}
		if ended {
			return fmt.Errorf("it ended without %q", what)
		}
		select {
		case <-s.more:
		case <-s.over:
			ended = true
		case <-late:
			return fmt.Errorf("no %q", what)
		}
	}
}
