package openshell

import (
	"context"
	"errors"
	"fmt"
	"time"

	"google.golang.org/grpc"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
)

// Bounds of waiting.
const (
	// idleWithin is how long nothing may be heard of a sandbox that is being
	// made. Layers of an image that is pulled are heard of.
	idleWithin  = 5 * time.Minute
	readyWithin = 30 * time.Minute
	goneWithin  = time.Minute
	// awayWithin is how long a gateway may be away meanwhile: it may restart.
	awayWithin = 15 * time.Second
	// pollEvery is for gateways that do not tell by themselves.
	pollEvery = time.Second
	// watchTail asks for the steps that were taken before anybody watched.
	watchTail = 50
	// mostWatched bounds what a gateway can keep us busy with.
	mostWatched = 100_000
)

// Ready watches, and asks besides: a watch may end early, tells nothing of a
// deletion, and on 0.0.x never ends at a failure.
func (c *client) Ready(ctx context.Context, ref Ref, progress func(Progress)) (Record, error) {
	ctx, cancel := context.WithTimeout(ctx, readyWithin)
	defer cancel()
	w := waiting{c: c, ref: ref, progress: progress, heard: make(chan watched), idle: time.NewTimer(idleWithin), tick: time.NewTicker(pollEvery)}
	defer w.idle.Stop()
	defer w.tick.Stop()
	go c.watch(ctx, ref, w.heard)
	for {
		got, err := w.next(ctx)
		if err != nil {
			return Record{}, err
		}
		if got.step != nil {
			w.tell(*got.step)
		}
		if got.record == nil {
			continue
		}
		r := *got.record
		done, err := c.judge(ref, r)
		w.tell(Progress{Phase: r.Phase, Reason: r.Reason, Message: r.Message})
		if done {
			c.runs.Store(r.ID, r.Instance)
		}
		if done || err != nil {
			return r, err
		}
	}
}

// waiting is one call of Ready.
type waiting struct {
	c        *client
	ref      Ref
	progress func(Progress) // may be nil
	heard    chan watched
	idle     *time.Timer
	tick     *time.Ticker
	last     Progress
	away     time.Time // since when the gateway is
	steps    int
}

// next is what is heard next, or the error with which to give up.
func (w *waiting) next(ctx context.Context) (watched, error) {
	select {
	case got := <-w.heard:
		if w.steps++; w.steps > mostWatched {
			return watched{}, &Error{Code: TooLarge, Sentence: w.c.reg.title() + " reports without end about the sandbox " + w.ref.Name}
		}
		return got, nil
	case <-w.tick.C:
		r, err := w.c.Get(ctx, w.ref.Name)
		if err := w.c.patience(ctx, &w.away, err); err != nil {
			return watched{}, err
		}
		switch {
		case err == nil:
			return watched{record: &r}, nil
		case errors.Is(err, NotFound):
			return watched{}, w.c.lost(w.ref, "it was deleted while it was being made")
		}
		return watched{}, nil
	case <-w.idle.C:
		return watched{}, &Error{Code: NoAnswer, Sentence: fmt.Sprintf("nothing was heard of the sandbox %s for %s: it is still %s", w.ref.Name, idleWithin, w.last.Phase), Advice: adviceLogs}
	case <-ctx.Done():
		return watched{}, w.c.ended(ctx)
	}
}

// tell passes on what is new.
func (w *waiting) tell(p Progress) {
	if p == w.last {
		return
	}
	w.last = p
	w.idle.Reset(idleWithin)
	if w.progress != nil {
		w.progress(p)
	}
}

// judge says whether a record is the end of waiting.
func (c *client) judge(ref Ref, r Record) (done bool, err error) {
	if r.ID != ref.ID {
		return false, c.lost(ref, "its name belongs to another one now")
	}
	switch r.Phase {
	case ReadyPhase:
		return true, nil
	case Failed, Stopped, Stopping, Completed:
		return false, c.unmade(r)
	case Deleting:
		return false, c.lost(ref, "it is being deleted")
	}
	return false, nil
}

// unmade says why a sandbox came to nothing.
func (c *client) unmade(r Record) error {
	image := "of the sandbox " + r.Name
	if of, ok := c.images.Load(r.ID); ok {
		image = of.(string)
	}
	if r.Reason == "ImagePullFailed" {
		return imageMissing(image, r.Message)
	}
	if e := c.recognise(image, r.Message); e != nil {
		return e
	}
	what := r.Reason
	if r.Message != "" {
		what += ": " + r.Message
	}
	if r.Exited {
		what += fmt.Sprintf(" (its main process ended with %d)", r.ExitCode)
	}
	return &Error{Code: ContainerFailed, Sentence: fmt.Sprintf("the sandbox %s came to nothing: %s", r.Name, plain(what)),
		Advice: "the container's own log says more: docker logs, and the image check of mojoup-node doctor"}
}

// patience lets a gateway be away for a while. It answers the error with which
// to give up.
func (c *client) patience(ctx context.Context, away *time.Time, err error) error {
	switch {
	case err == nil || errors.Is(err, NotFound):
		*away = time.Time{}
	case ctx.Err() != nil:
		return c.ended(ctx)
	case !errors.Is(err, Unreachable) && !errors.Is(err, NoAnswer) && !errors.Is(err, Overloaded) && !errors.Is(err, Refused):
		return err
	case away.IsZero():
		*away = time.Now()
	case time.Since(*away) > awayWithin:
		return err
	}
	return nil
}

func (c *client) lost(ref Ref, why string) error {
	return &Error{Code: Lost, Sentence: fmt.Sprintf("the sandbox %s is lost: %s", ref.Name, why)}
}

// watch passes on what a gateway tells by itself, until it stops telling.
func (c *client) watch(ctx context.Context, ref Ref, heard chan<- watched) {
	l, err := c.now(ctx)
	if err != nil {
		return // asking will say so
	}
	in, next := c.talk.watch(ref, c.reg.Workspace)
	s, err := l.stream(ctx, c.reg, wire.WatchSandbox, &grpc.StreamDesc{ServerStreams: true})
	if err != nil || s.SendMsg(in) != nil || s.CloseSend() != nil {
		return
	}
	for {
		e := next()
		if s.RecvMsg(e.out) != nil {
			return
		}
		select {
		case heard <- e.read():
		case <-ctx.Done():
			return
		}
	}
}

// Gone asks until the sandbox is no more.
func (c *client) Gone(ctx context.Context, ref Ref) error {
	ctx, cancel := context.WithTimeout(ctx, goneWithin)
	defer cancel()
	var away time.Time
	wait := 20 * time.Millisecond
	for {
		r, err := c.Get(ctx, ref.Name)
		if errors.Is(err, NotFound) || err == nil && r.ID != ref.ID {
			return nil
		}
		if perr := c.patience(ctx, &away, err); perr != nil && ctx.Err() == nil {
			return perr
		}
		select {
		case <-time.After(wait):
			wait = min(2*wait, 500*time.Millisecond)
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return &Error{Code: NotGone, Sentence: fmt.Sprintf("%s has still not deleted the sandbox %s", c.reg.title(), ref.Name), Advice: adviceLogs}
			}
			return c.ended(ctx)
		}
	}
}

// stream opens a stream on this connection. It ends with its context.
func (l *link) stream(ctx context.Context, reg Registration, method string, desc *grpc.StreamDesc) (grpc.ClientStream, error) {
	ctx, err := bearing(ctx, reg)
	if err != nil {
		return nil, err
	}
	s, err := l.cc.NewStream(ctx, desc, wire.Path(method))
	if err != nil {
		return nil, l.failed(ctx, reg, err, false)
	}
	return s, nil
}
