package node

import (
	"cmp"
	"context"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/fault"
	"github.com/mojoup/mojoup-node/pkg/sandbox"
)

// attend waits for the command while the client's signals and sizes reach it.
// A session that is to end early gets SIGHUP or SIGTERM and some grace; what
// is still there after that ends with the sandbox.
func (l *life) attend(ctx context.Context, box sandbox.Sandbox, proc sandbox.Process) (sandbox.Exit, error) {
	waited, letGo := l.await(ctx, proc)
	defer letGo()
	var grace <-chan time.Time
	done := ctx.Done()
	for {
		select {
		case e := <-waited:
			if ctx.Err() != nil {
				return e.exit, context.Cause(ctx)
			}
			return e.exit, e.err
		case size := <-l.client.Resizes():
			if proc.Resize(sandbox.Size{Columns: size.Columns, Rows: size.Rows}) == nil && l.kept != nil {
				l.kept.Resize(size.Columns, size.Rows)
			}
		case n := <-l.client.Signals():
			_ = proc.Signal(signalNumber(n))
		case <-done:
			done = nil
			l.stopping(context.WithoutCancel(ctx))
			_ = proc.Signal(goodbye(context.Cause(ctx)))
			grace = time.After(l.n.o.Times.HangUp)
		case <-grace:
			return sandbox.Exit{}, context.Cause(ctx)
		case <-box.Done():
			return lastExit(ctx, box, waited)
		}
	}
}

// ended is how a command ended.
type ended struct {
	exit sandbox.Exit
	err  error
}

// await waits for a command until it has ended or is let go, whatever has become
// of ctx.
func (l *life) await(ctx context.Context, proc sandbox.Process) (waited <-chan ended, letGo func()) {
	waiting, cancel := context.WithCancel(context.WithoutCancel(ctx))
	end := make(chan ended, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() {
		exit, err := bounded(waiting, l.n.o.Times.Patience, func() (sandbox.Exit, error) { return proc.Wait(waiting) }, nil)
		end <- ended{exit, err}
	})
	return end, func() {
		cancel()
		waiter.Wait()
	}
}

// lastExit is the command's exit where it came just before its sandbox ended.
func lastExit(ctx context.Context, box sandbox.Sandbox, waited <-chan ended) (sandbox.Exit, error) {
	select {
	case e := <-waited:
		return e.exit, e.err
	case <-time.After(time.Second):
		return sandbox.Exit{}, cmp.Or(endOf(ctx, box), error(fault.CannotRun("the sandbox ended before its command")))
	}
}

// whyWithin bounds the question why a sandbox has ended.
const whyWithin = 10 * time.Second

// endOf says why a sandbox has ended that nobody here ended, or nil.
func endOf(ctx context.Context, box sandbox.Sandbox) error {
	ender, ok := box.(sandbox.Ender)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), whyWithin)
	defer cancel()
	why := ender.Why(ctx)
	if why == nil {
		return nil
	}
	return fault.CannotRun("the sandbox ended before its command: %w", why)
}
