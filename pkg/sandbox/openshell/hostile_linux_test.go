package openshell_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// A command's stream can go wrong in every way, and each has a word.
func TestBrokenStreams(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) { brokenStreams(t, generation) })
	}
}

func brokenStreams(t *testing.T, generation string) {
	var hung atomic.Int32
	faults := map[string]gatewaytest.ExecFault{
		"noexit": {NoExit: true}, "halfway": {NoExit: true, After: 5}, "flood": {Flood: true}, "hang": {Hang: true}, "break": {Break: true},
	}
	g, c := connected(t, gatewaytest.Options{Generation: generation, Faults: gatewaytest.Faults{Exec: func(argv []string) gatewaytest.ExecFault {
		word := argv[len(argv)-1]
		if word == "hang once" && hung.Add(1) == 1 {
			return gatewaytest.ExecFault{Hang: true}
		}
		return faults[word]
	}}})
	w := world{client: c, image: gatewaytest.Image(t), uid: ordinary(), node: newNode()}
	s := w.up(t, w.request(t))
	run := func(word string, within time.Duration) (openshell.Result, error) {
		return c.Run(bounded(t), s.Ref, openshell.Short{Argv: []string{"echo", "some words", word}, Within: within})
	}
	if res, err := run("hang once", 3*time.Second); err != nil || string(res.Stdout) != "some words hang once\n" || hung.Load() < 2 {
		t.Errorf("B06 the first command hangs: %v %v, %d attempts", res, err, hung.Load())
	}
	if _, err := run("hang", 200*time.Millisecond); !errors.Is(err, openshell.Hung) {
		t.Errorf("every command hangs: %v", err)
	}
	if _, err := run("flood", 5*time.Second); !errors.Is(err, openshell.TooLarge) && !errors.Is(err, openshell.Hung) {
		t.Errorf("output without end: %v", err)
	}
	for _, word := range []string{"noexit", "halfway"} {
		for _, stdin := range []io.Reader{nil, strings.NewReader("")} {
			var out bytes.Buffer
			code, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"echo", "some words", word}, Stdin: stdin, Stdout: &out})
			if !errors.Is(err, openshell.NoExit) || code != 0 || !strings.HasPrefix(out.String(), "some words") {
				t.Errorf("%s: code %d, %v, %q", word, code, err, out.String())
			}
		}
	}
	if _, err := execute(t, w, s.Ref, openshell.Command{Argv: []string{"echo", "some words", "break"}}); !errors.Is(err, openshell.Unreachable) && !errors.Is(err, openshell.NoExit) {
		t.Errorf("the connection breaks: %v", err)
	}
	g.Restart("")
	if _, err := c.Ready(bounded(t), s.Ref, nil); err != nil {
		t.Fatal(err)
	}
	if res, err := run("well", 0); err != nil || res.Code != 0 {
		t.Errorf("afterwards: %+v %v", res, err)
	}
}

// The gateway's end during a command is told at once. When it is back, one of
// 0.0.x has started the sandbox anew, and one of 0.1.x has kept it.
func TestGatewayEndsDuringCommand(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) { gatewayEnds(t, generation) })
	}
}

func gatewayEnds(t *testing.T, generation string) {
	g, c := connected(t, gatewaytest.Options{Generation: generation})
	w := world{client: c, image: gatewaytest.Image(t), uid: ordinary(), node: newNode()}
	s := w.up(t, w.request(t))
	x, err := c.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"sleep", "1000"}, Stdin: strings.NewReader("")})
	if err != nil {
		t.Fatal(err)
	}
	w.sh(t, s.Ref, "true")
	g.Stop()
	_, err = x.Wait(bounded(t))
	wants(t, err, openshell.Unreachable, "systemctl")
	g.Restart("")
	r, err := c.Ready(bounded(t), s.Ref, nil)
	if err != nil {
		t.Fatal(err)
	}
	if anew := r.Instance != s.Instance; anew != (generation == gatewaytest.V00) {
		t.Errorf("started anew: %v", anew)
	}
	if got := w.sh(t, s.Ref, "echo still here"); got != "still here" {
		t.Errorf("%q", got)
	}
}

// B58: a container that is removed behind everybody's back.
func TestContainerRemoved(t *testing.T) {
	kerneltest.Long(t)
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) {
			docker := gatewaytest.Docker(t)
			_, c := connected(t, gatewaytest.Options{Generation: generation})
			w := world{client: c, image: gatewaytest.Image(t), uid: ordinary(), node: newNode()}
			s := w.up(t, w.request(t))
			x, err := c.Exec(bounded(t), s.Ref, openshell.Command{Argv: []string{"sleep", "1000"}, Stdin: strings.NewReader("")})
			if err != nil {
				t.Fatal(err)
			}
			w.sh(t, s.Ref, "true")
			units, err := docker.ContainerList(t.Context(), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", openshell.LabelNode+"="+w.node))})
			if err != nil || len(units) != 1 {
				t.Fatalf("%d containers bear our label, %v", len(units), err)
			}
			if err := docker.ContainerRemove(t.Context(), units[0].ID, container.RemoveOptions{Force: true}); err != nil {
				t.Fatal(err)
			}
			if code, err := x.Wait(bounded(t)); err == nil && code == 0 || err != nil && !errors.Is(err, openshell.Lost) && !errors.Is(err, openshell.NotReady) {
				t.Errorf("the command: %d, %v", code, err)
			}
			for ctx := bounded(t); ; {
				r, err := c.Get(ctx, s.Name)
				if err != nil {
					t.Fatal(err)
				}
				if r.Phase == openshell.Failed {
					t.Logf("%+v", r)
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			_, err = execute(t, w, s.Ref, openshell.Command{Argv: []string{"true"}})
			wants(t, err, openshell.Lost, "")
		})
	}
}

// A gateway whose process is stopped answers no ping; whoever waits is told.
func TestSilentConnection(t *testing.T) {
	kerneltest.Long(t)
	freeze := make(chan struct{})
	defer close(freeze)
	g, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(ctx context.Context, m string) error {
		if m == "ExecSandbox" {
			select {
			case <-freeze:
			case <-ctx.Done():
			}
		}
		return nil
	}}})
	through := gatewaytest.NewValve(t, g)
	valved, err := openshell.Connect(bounded(t), at(t, through.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	defer valved.Close()
	x, err := valved.Exec(bounded(t), openshell.Ref{ID: "i", Name: "n"}, openshell.Command{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	through.Shut()
	started := time.Now()
	_, err = x.Wait(bounded(t))
	wants(t, err, openshell.Unreachable, "")
	if took := time.Since(started); took > 40*time.Second {
		t.Errorf("it took %s", took)
	}
	if _, err := c.List(bounded(t), nil); err != nil {
		t.Errorf("the gateway itself: %v", err)
	}
}
