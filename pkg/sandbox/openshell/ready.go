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
	heard := make(chan watched)
	go c.watch(ctx, ref, heard)
	var (
		last  Progress
		idle  = time.NewTimer(idleWithin)
		tick  = time.NewTicker(pollEvery)
		away  time.Time
		steps int
	)
	defer idle.Stop()
	defer tick.Stop()
	tell := func(p Progress) {
		if p == last {
			return
		}
		last = p
		idle.Reset(idleWithin)
		if progress != nil {
			progress(p)
		}
	}
	for {
		var got watched
		select {
		case got = <-heard:
			if steps++; steps > mostWatched {
				return Record{}, &Error{Code: TooLarge, Sentence: c.reg.title() + " reports without end about the sandbox " + ref.Name}
			}
		case <-tick.C:
			r, err := c.Get(ctx, ref.Name)
			if err := c.patience(ctx, &away, err); err != nil {
				return Record{}, err
			}
			if err == nil {
				got.record = &r
			} else if errors.Is(err, NotFound) {
				return Record{}, c.lost(ref, "it was deleted while it was being made")
			}
		case <-idle.C:
			return Record{}, &Error{Code: NoAnswer, Sentence: fmt.Sprintf("nothing was heard of the sandbox %s for %s: it is still %s", ref.Name, idleWithin, last.Phase), Advice: adviceLogs}
		case <-ctx.Done():
			return Record{}, c.ended(ctx)
		}
		if got.step != nil {
			tell(*got.step)
		}
		if got.record != nil {
			r := *got.record
			done, err := c.judge(ref, r)
			tell(Progress{Phase: r.Phase, Reason: r.Reason, Message: r.Message})
			if done {
				c.runs.Store(r.ID, r.Instance)
			}
			if done || err != nil {
				return r, err
			}
		}
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
