package cli

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/spf13/pflag"

	"github.com/mojoup/mojoup-node/internal/client"
	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/internal/terminal"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// viewOptions say how a session is shown.
type viewOptions struct {
	keys      string
	clipboard bool
}

// detachKeysFlag may be empty.
const detachKeysFlag = "detach-keys"

func (o *viewOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.keys, detachKeysFlag, "ctrl-],d", "the `keys` that leave the session running; \"\" means none")
	o.clipboardFlag(f)
}

func (o *viewOptions) clipboardFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.clipboard, "allow-clipboard", false, "let the session reach your terminal's clipboard (OSC 52)")
}

// view is a session as this process shows it.
type view struct {
	p       Process
	quiet   bool
	screen  *screen
	keys    *terminal.Keys
	leave   chan struct{}
	left    sync.Once
	modes   terminal.Modes // of the person's terminal
	filters []*terminal.Clipboard
	stdout  io.Writer
	stderr  io.Writer
}

func (o viewOptions) open(p Process, hasTerminal, quiet bool) (*view, error) {
	v := &view{p: p, quiet: quiet, leave: make(chan struct{}), stdout: p.Stdout, stderr: p.Stderr}
	var err error
	if v.keys, err = terminal.ParseKeys(o.keys); err != nil {
		return nil, fault.Usage("--detach-keys: %w", err).WithHint("for example ctrl-],d")
	}
	for _, w := range []*io.Writer{&v.stdout, &v.stderr} {
		if !isTerminal(*w) {
			continue // a file gets every byte
		}
		*w = io.MultiWriter(*w, &v.modes)
		if !o.clipboard {
			filter := terminal.NewClipboard(*w)
			v.filters, *w = append(v.filters, filter), filter
		}
	}
	v.screen, err = openScreen(p, hasTerminal)
	return v, err
}

func (v *view) streams() client.Streams {
	return client.Streams{
		Stdin: &typist{from: v.p.Stdin, view: v}, Stdout: v.stdout, Stderr: v.stderr,
		Resizes: v.screen.resizes, Signals: v.screen.signals, Leave: v.leave,
		Notice: v.notice, Started: v.started,
	}
}

// started hands the keyboard over where there is a terminal to hand it to.
func (v *view) started(s api.Started) {
	if s.Terminal {
		v.screen.raw()
	}
}

// notice is one line for the person. While the keyboard is the command's a
// line break alone does not lead back to the margin.
func (v *view) notice(line string) {
	var b bytes.Buffer
	talk{w: &b}.line("%s", line)
	switch {
	case v.quiet:
	case v.screen.isRaw():
		_, _ = v.p.Stderr.Write(bytes.ReplaceAll(append([]byte("\n"), b.Bytes()...), []byte("\n"), []byte("\r\n")))
	default:
		_, _ = v.p.Stderr.Write(b.Bytes())
	}
}

func (v *view) leaves() { v.left.Do(func() { close(v.leave) }) }

// close gives the terminal back: what the session had switched on, then what
// was changed for it.
func (v *view) close() {
	for _, filter := range v.filters {
		_ = filter.Flush()
	}
	if v.screen.isRaw() {
		_, _ = v.p.Stdout.Write(v.modes.Restore())
	}
	v.filters, v.modes = nil, terminal.Modes{}
	v.screen.close()
}

// finish says how a session ended, or that it goes on. The view is closed.
func (v *view) finish(ended api.Ended, err error, id string) error {
	if f, ok := errors.AsType[*fault.Fault](err); ok {
		return f.WithExit(fault.ExitCannotRun)
	}
	if err != nil {
		return fault.CannotRun("%w", err)
	}
	for _, line := range ended.Notices {
		v.notice(line)
	}
	switch {
	case ended.Detached:
		if v.screen.wasRaw() && !v.quiet {
			_, _ = io.WriteString(v.p.Stderr, "\n") // the cursor is anywhere
		}
		v.notice("session " + id + " goes on: `mojoup-node session attach " + id + "` shows it")
		return nil
	case ended.Problem != nil:
		return fault.FromProblem(ended.Problem)
	case ended.Code != 0:
		return exitCode(ended.Code)
	}
	return nil
}

// keysWithin is how much time there may be between two of the keys that leave
// a session. Without an end to it the first one would reach a program only
// with the next key.
const keysWithin = time.Second

// typist is what the person types, without the keys that leave the session.
// The read of the terminal itself cannot be ended: it stays behind, and the
// command ends soon after.
type typist struct {
	from  io.Reader
	view  *view
	typed chan []byte
	rest  []byte
	over  bool // the keys were typed
}

func (t *typist) Read(p []byte) (int, error) {
	if t.typed == nil {
		if !t.view.screen.wasRaw() {
			return t.from.Read(p) // no keyboard: every byte is meant
		}
		t.typed = make(chan []byte)
		go t.read()
	}
	for len(t.rest) == 0 {
		if t.over { // and what was typed before has been sent
			t.view.leaves()
			return 0, io.EOF
		}
		var late <-chan time.Time
		if t.view.keys.Holding() {
			late = time.After(keysWithin)
		}
		select {
		case b, ok := <-t.typed:
			if !ok {
				return 0, io.EOF
			}
			t.rest, t.over = t.view.keys.Feed(b)
		case <-late:
			t.rest = t.view.keys.Release()
		}
	}
	n := copy(p, t.rest)
	t.rest = t.rest[n:]
	return n, nil
}

func (t *typist) read() {
	defer close(t.typed)
	for {
		buf := make([]byte, 4<<10)
		n, err := t.from.Read(buf)
		if n > 0 {
			t.typed <- buf[:n]
		}
		if err != nil {
			return
		}
	}
}
