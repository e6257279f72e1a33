package engine

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// forward starts the forwarder and waits until programs inside can connect. Their
// connections wait there until it has tried the way out.
func (b *box) forward(ctx context.Context) error {
	said := &lines{got: make(chan string, 4+len(b.spec.Direct))}
	proc, err := b.inside.Own(ctx, sandbox.Command{Argv: []string{own + "/" + forwarderName}, Dir: "/"}, sandbox.Stdio{Stdout: said, Stderr: said})
	if err != nil {
		return fmt.Errorf("starting the forwarder: %w", err)
	}
	ended := make(chan sandbox.Exit, 1)
	b.owned.Go(func() {
		exit, err := proc.Wait(context.WithoutCancel(ctx))
		if err == nil {
			b.log.Debug("the forwarder ended", "code", exit.Code)
		}
		ended <- exit
	})
	if err := b.listens(ctx, said.got, ended); err != nil {
		return err
	}
	b.owned.Go(func() { b.opens(context.WithoutCancel(ctx), said.got, ended) })
	return nil
}

// listens waits until the forwarder takes connections, and notes for which hosts
// it cannot.
func (b *box) listens(ctx context.Context, said <-chan string, ended <-chan sandbox.Exit) error {
	for {
		select {
		case line := <-said:
			missing, ok := strings.CutPrefix(line, "without ")
			switch {
			case ok:
				b.missing = append(b.missing, missing)
			case line == "ready":
				return nil
			default:
				return fmt.Errorf("the forwarder does not run: %s", line)
			}
		case exit := <-ended:
			return fmt.Errorf("the forwarder ended with %d", exit.Code)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// opens waits until the forwarder has had an answer by the way out. Where it gets
// none, the session ends.
func (b *box) opens(ctx context.Context, said <-chan string, ended <-chan sandbox.Exit) {
	why := ""
	select {
	case why = <-said:
	case exit := <-ended:
		select {
		case why = <-said: // its last word
		default:
			why = fmt.Sprintf("the forwarder ended with %d", exit.Code)
		}
	}
	if why == opened {
		close(b.answers)
		b.log.Debug("the way out is open", "after", time.Since(b.times.created))
		return
	}
	// Where all of the sandbox ends, the forwarder is only the first to be seen.
	all := time.NewTimer(time.Second)
	defer all.Stop()
	select {
	case <-b.gone:
		return
	case <-b.ending:
		return
	case <-all.C:
	}
	b.shut.Store(&why)
	b.log.Warn("the way out is shut", "reason", why)
	if err := b.e.o.Docker.Kill(ctx, b.docker); err != nil {
		b.log.Warn("ending a container whose way out is shut", "err", err)
	}
}

// opened is what the forwarder says once the way out has answered.
const opened = "open"

// lines hands on the lines that are written, as many as somebody takes.
type lines struct {
	mu  sync.Mutex // guards buf
	buf bytes.Buffer
	got chan string
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.buf.Len() < 4096 {
		l.buf.Write(p)
	}
	for {
		line, rest, ok := strings.Cut(l.buf.String(), "\n")
		if !ok {
			return len(p), nil
		}
		l.buf.Reset()
		l.buf.WriteString(rest)
		select {
		case l.got <- lastWord(line):
		default:
		}
	}
}

// lastWord is the last line that says something, as a person can read it.
func lastWord(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	last := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return -1
		}
		return r
	}, lines[len(lines)-1])
	return last[:min(len(last), 300)]
}
