package openshell_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// expired is a context whose time is over once the request has come, however
// long that takes.
type expired struct {
	context.Context
	came <-chan struct{}
}

func (e expired) Done() <-chan struct{} { return e.came }

func (e expired) Err() error {
	select {
	case <-e.came:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// A gateway that takes its time is waited for no longer than the caller wants.
func TestSlowness(t *testing.T) {
	t.Parallel()
	w := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}
	stuck := func(t *testing.T, method string) (openshell.Client, expired) {
		release, came := make(chan struct{}), make(chan struct{})
		var first sync.Once
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(ctx context.Context, m string) error {
			if m == method {
				first.Do(func() { close(came) })
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-release:
				}
			}
			return nil
		}}})
		t.Cleanup(func() { close(release) })
		return c, expired{t.Context(), came}
	}
	t.Run("get", func(t *testing.T) {
		t.Parallel()
		c, late := stuck(t, "GetSandbox")
		_, err := c.Get(late, "x")
		wants(t, err, openshell.NoAnswer, "journalctl")
	})
	t.Run("create", func(t *testing.T) {
		t.Parallel()
		c, late := stuck(t, "CreateSandbox")
		_, err := c.Create(late, w.request(t))
		wants(t, err, openshell.Uncertain, "")
	})
	t.Run("given up", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		c, late := stuck(t, "GetSandbox")
		context.AfterFunc(late, cancel)
		_, err := c.Get(ctx, "x")
		wants(t, err, openshell.Cancelled, "")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
	t.Run("never gone", func(t *testing.T) {
		t.Parallel()
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Stuck: true}})
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Delete(bounded(t), made.Ref); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		wants(t, c.Gone(ctx, made.Ref), openshell.NotGone, "")
	})
	t.Run("a watch that says nothing", func(t *testing.T) {
		t.Parallel()
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Silent: true}})
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Ready(bounded(t), made.Ref, nil) // by asking
		wants(t, err, openshell.ImageMissing, "")
	})
	t.Run("a watch that cannot be had", func(t *testing.T) {
		t.Parallel()
		_, c := connected(t, gatewaytest.Options{Generation: gatewaytest.V01, Faults: gatewaytest.Faults{Before: func(_ context.Context, m string) error {
			if m == "WatchSandbox" {
				return status.Error(codes.Unimplemented, "no")
			}
			return nil
		}}})
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Ready(bounded(t), made.Ref, nil)
		wants(t, err, openshell.ImageMissing, "")
	})
}
