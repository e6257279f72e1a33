package source

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/program"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

// keepFor is how long what a command said is used again.
const keepFor = 5 * time.Minute

// A Cache keeps what commands said, for five minutes. The zero value is empty;
// it may be used concurrently. One that is nil keeps nothing.
type Cache struct {
	// mu guards kept. Commands run under a lock of their own each.
	mu   sync.Mutex
	kept map[string]*kept
	// Now is the clock; nil means time.Now.
	Now func() time.Time
}

type kept struct {
	mu    sync.Mutex // held while the command runs: two that ask wait for one
	value []byte
	at    time.Time
}

// Forget runs every command anew at the next question.
func (c *Cache) Forget() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.kept = nil
}

func (c *Cache) command(ctx context.Context, line, path string) (secrets.Value, error) {
	if c == nil {
		b, err := run(ctx, line, path)
		return Trimmed(b), err
	}
	now := time.Now
	if c.Now != nil {
		now = c.Now
	}
	c.mu.Lock()
	if c.kept == nil {
		c.kept = map[string]*kept{}
	}
	k := c.kept[line]
	if k == nil {
		k = &kept{}
		c.kept[line] = k
	}
	c.mu.Unlock()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.value == nil || now().Sub(k.at) >= keepFor {
		b, err := run(ctx, line, path)
		if err != nil {
			return secrets.Value{}, err
		}
		clear(k.value)
		k.value, k.at = b, now()
	}
	return Trimmed(bytes.Clone(k.value)), nil
}

// run returns what the command writes, at most a key's length. What it says on
// stderr is its person's to see when they run it, and may hold a key: it is
// dropped.
func run(ctx context.Context, line, path string) ([]byte, error) {
	cmd := program.Command(ctx, "/bin/sh", "-c", line)
	if path != "" {
		cmd.Env = append(os.Environ(), "PATH="+path) // the last one counts
	}
	out := &bounded{}
	cmd.Stdout = out
	err := cmd.Run()
	_ = program.End(cmd) // what it left running is of no use to anybody
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		clear(out.b)
		return nil, errorf("run it yourself and see what it waits for", "the command of the secret did not end within %v", within)
	case errors.As(err, &exit) && !answered(exit.ExitCode()):
		clear(out.b)
		return nil, errorf("run it yourself and see what it says", "the command of the secret failed: %s", exit.ProcessState)
	case errors.As(err, &exit):
		clear(out.b)
		return nil, givesNone("the command of the secret failed: %s", exit.ProcessState)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay):
		clear(out.b)
		return nil, errorf("", "the command of the secret could not be run: %s", plain(err))
	case out.over:
		clear(out.b)
		return nil, errorf("", "the command of the secret wrote more than a key can be")
	case len(bytes.TrimSpace(out.b)) == 0:
		return nil, givesNone("the command of the secret wrote nothing")
	}
	return out.b, nil
}

// answered reports whether a command that failed has run to its own end and so may
// have said that it has no key. One that could not be run, or was killed, has said
// nothing: of the first the shell says 126 or 127, of what it started and a signal
// ended 128 and the signal's number.
func answered(code int) bool {
	const lastSignal = 64
	return code > 0 && code != 126 && code != 127 && (code <= 128 || code > 128+lastSignal)
}

// bounded keeps as much as a key may be.
type bounded struct {
	b    []byte
	over bool
}

func (w *bounded) Write(p []byte) (int, error) {
	if len(w.b)+len(p) > secrets.MaxLength+2 {
		w.over = true
		return len(p), nil
	}
	w.b = append(w.b, p...)
	return len(p), nil
}
