package openshell

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"
)

// Bounds of a short command.
const (
	runAttempts = 3
	runWithin   = 10 * time.Second
	runMost     = 64 << 10
)

// Run gives up an attempt that hangs, as the first command after a start may,
// and makes another.
func (c *client) Run(ctx context.Context, ref Ref, r Short) (Result, error) {
	if r.Within <= 0 {
		r.Within = runWithin
	}
	if r.Most <= 0 {
		r.Most = runMost
	}
	for attempt := 1; ; attempt++ {
		res, err := c.runOnce(ctx, ref, r)
		again := errors.Is(err, Hung) || errors.Is(err, NotReady) || errors.Is(err, NoExit) || unsent(err)
		if !again || attempt == runAttempts || ctx.Err() != nil {
			return res, err
		}
		select {
		case <-time.After(time.Duration(attempt) * 100 * time.Millisecond):
		case <-ctx.Done():
			return Result{}, c.ended(ctx)
		}
	}
}

func (c *client) runOnce(ctx context.Context, ref Ref, r Short) (Result, error) {
	within, cancel := context.WithTimeoutCause(ctx, r.Within, &Error{Code: Hung,
		Sentence: fmt.Sprintf("a command in the sandbox %s did not end within %s", ref.Name, r.Within)})
	defer cancel()
	full := make(chan struct{}, 2)
	out, errs := &bounded{most: r.Most, full: full}, &bounded{most: r.Most, full: full}
	s, err := c.Exec(within, ref, Command{Argv: r.Argv, Dir: r.Dir, Env: r.Env, Input: r.Input, Stdout: out, Stderr: errs})
	if err != nil {
		return Result{}, err
	}
	over := false
	select {
	case <-s.Done(): // with its context at the latest
	case <-full:
		over = true
		s.Abandon()
		<-s.Done()
	}
	if over || len(full) > 0 {
		return Result{}, &Error{Code: TooLarge, Sentence: fmt.Sprintf("a command in the sandbox %s wrote more than %d bytes", ref.Name, r.Most)}
	}
	code, err := s.Wait(ctx)
	if err != nil {
		return Result{}, err
	}
	return Result{Code: code, Stdout: out.Bytes(), Stderr: errs.Bytes()}, nil
}

// bounded keeps so much and no more.
type bounded struct {
	bytes.Buffer
	most int
	full chan<- struct{}
}

func (b *bounded) Write(p []byte) (int, error) {
	if b.Len()+len(p) > b.most {
		b.full <- struct{}{} // once: nothing is written after an error
		return 0, errors.New("full")
	}
	return b.Buffer.Write(p)
}
