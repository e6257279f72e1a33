package openshell_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// A gateway that lies is not believed, and not listened to for ever.
func TestLies(t *testing.T) {
	w := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}
	lie := func(t *testing.T, generation string, answer func(method string, m any)) (openshell.Client, openshell.Record) {
		var mu sync.Mutex
		on := false
		_, c := connected(t, gatewaytest.Options{Generation: generation, Faults: gatewaytest.Faults{Answer: func(_ context.Context, method string, m any) any {
			mu.Lock()
			defer mu.Unlock()
			if on {
				answer(method, m)
			}
			return m
		}}})
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil {
			t.Fatal(err)
		}
		mu.Lock()
		on = true
		mu.Unlock()
		return c, made
	}
	t.Run("another name", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V00, func(_ string, m any) {
			if r, ok := m.(*v00.SandboxResponse); ok {
				r.Sandbox.Metadata.Name = "other"
			}
		})
		_, err := c.Get(bounded(t), made.Name)
		wants(t, err, openshell.Nonsense, "")
	})
	t.Run("an id that is a path", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V01, func(_ string, m any) {
			if r, ok := m.(*v01.SandboxResponse); ok {
				r.Sandbox.Metadata.Id = "../../etc/passwd"
			}
		})
		_, err := c.Get(bounded(t), made.Name)
		wants(t, err, openshell.Nonsense, "")
		if err := c.Delete(bounded(t), made.Ref); !errors.Is(err, openshell.Nonsense) {
			t.Errorf("%v", err)
		}
	})
	t.Run("half a record", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V01, func(_ string, m any) {
			if r, ok := m.(*v01.SandboxResponse); ok {
				r.Sandbox = nil
			}
		})
		_, err := c.Get(bounded(t), made.Name)
		wants(t, err, openshell.Nonsense, "")
	})
	t.Run("another id while it is being made", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V01, func(_ string, m any) {
			if r, ok := m.(*v01.SandboxResponse); ok {
				r.Sandbox.Metadata.Id = "somebody-elses"
			}
		})
		if err := c.Delete(bounded(t), made.Ref); err != nil {
			t.Errorf("deleting it again: %v", err)
		}
		if err := c.Gone(bounded(t), made.Ref); err != nil {
			t.Errorf("it is gone: %v", err)
		}
	})
	t.Run("sandboxes without our labels", func(t *testing.T) {
		c, _ := lie(t, gatewaytest.V00, func(_ string, m any) {
			if r, ok := m.(*v00.ListSandboxesResponse); ok {
				r.Sandboxes = append(r.Sandboxes, &v00.Sandbox{Metadata: &v00.ObjectMeta{Id: "the-persons-own", Name: "precious"}},
					&v00.Sandbox{Metadata: &v00.ObjectMeta{Id: "another-nodes", Name: "precious2", Labels: map[string]string{openshell.LabelNode: "other"}}})
			}
		})
		found, err := c.List(bounded(t), map[string]string{openshell.LabelNode: w.node})
		if err != nil || len(found) != 1 {
			t.Errorf("%v %v", found, err)
		}
	})
	for _, generation := range generations {
		t.Run("pages without end "+generation, func(t *testing.T) {
			c, _ := lie(t, generation, func(_ string, m any) {
				switch r := m.(type) {
				case *v00.ListSandboxesResponse:
					for len(r.Sandboxes) < 100 {
						r.Sandboxes = append(r.Sandboxes, &v00.Sandbox{Metadata: &v00.ObjectMeta{Id: "x", Labels: map[string]string{openshell.LabelNode: w.node}}})
					}
				case *v01.ListSandboxesResponse:
					r.NextPageToken = "again"
				}
			})
			if _, err := c.List(bounded(t), map[string]string{openshell.LabelNode: w.node}); err != nil && !errors.Is(err, openshell.TooLarge) && !errors.Is(err, openshell.BadRequest) {
				t.Errorf("%v", err)
			}
		})
	}
	t.Run("too much", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V00, func(_ string, m any) {
			if r, ok := m.(*v00.SandboxResponse); ok {
				r.Sandbox.Metadata.Workspace = strings.Repeat("x", 5<<20)
			}
		})
		_, err := c.Get(bounded(t), made.Name)
		wants(t, err, openshell.TooLarge, "")
	})
	t.Run("does not say what it deletes", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V01, func(_ string, m any) {
			if r, ok := m.(*v01.DeleteSandboxResponse); ok {
				r.Outcome = 77
			}
		})
		wants(t, c.Delete(bounded(t), made.Ref), openshell.Nonsense, "")
	})
	t.Run("had no container to delete", func(t *testing.T) {
		c, made := lie(t, gatewaytest.V00, func(_ string, m any) {
			if r, ok := m.(*v00.DeleteSandboxResponse); ok {
				r.Deleted = false // as a real one says it; whether it is gone is asked
			}
		})
		if err := errors.Join(c.Delete(bounded(t), made.Ref), c.Gone(bounded(t), made.Ref)); err != nil {
			t.Error(err)
		}
	})
	t.Run("words for a terminal", func(t *testing.T) {
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(_ context.Context, m string) error {
			if m == "Health" {
				return nil
			}
			return status.Error(codes.FailedPrecondition, "\x1b]0;evil\a\x1b[2J one\ntwo\u202e "+strings.Repeat("long ", 2000))
		}}})
		_, err := c.Get(bounded(t), "x")
		wants(t, err, openshell.Refused, "")
	})
	t.Run("words longer than a head may be", func(t *testing.T) {
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(_ context.Context, m string) error {
			if m == "Health" {
				return nil
			}
			return status.Error(codes.FailedPrecondition, strings.Repeat("x", 200<<10))
		}}})
		var e *openshell.Error
		if _, err := c.Get(bounded(t), "x"); !errors.As(err, &e) {
			t.Errorf("%v", err)
		}
	})
}
