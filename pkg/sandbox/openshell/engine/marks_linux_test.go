package engine

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
)

// kindsOf are the kinds of the traces of one sandbox.
func kindsOf(traces []sandbox.Trace, id string) string {
	var kinds []string
	for _, t := range traces {
		if t.Sandbox == id {
			kinds = append(kinds, t.Kind)
		}
	}
	slices.Sort(kinds)
	return strings.Join(slices.Compact(kinds), ", ")
}

// TestT9_MarkedIsAllThatASandboxLeaves: whoever looks for what nodes have left
// is shown the container, the gateway's record and the staging of a sandbox, by
// this node and by any other one of the same user; afterwards nothing.
func TestT9_MarkedIsAllThatASandboxLeaves(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "marked")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	const all = "container, gateway's sandbox, staging directory"
	other := w.new(t)
	other.o.Node = "another-node"
	for name, who := range map[string]*Engine{"its own": e, "another": other} {
		traces, err := who.Marked(bounded(t))
		if err != nil || kindsOf(traces, spec.ID) != all {
			t.Errorf("%s node sees %q, %v", name, kindsOf(traces, spec.ID), err)
		}
	}
	remains := func() (out []sandbox.Trace) {
		e.seen = nil // as a later look finds it
		for _, u := range e.Undo(spec) {
			traces, err := e.Remains(bounded(t), u)
			if err != nil {
				t.Errorf("%+v: %v", u, err)
			}
			out = append(out, traces...)
		}
		return out
	}
	if got := kindsOf(remains(), spec.ID); got != "container, gateway's sandbox, placeholder, staging directory" {
		t.Errorf("remains %q", got)
	}
	if err := b.Remove(bounded(t)); err != nil {
		t.Fatal(err)
	}
	traces, err := e.Marked(bounded(t))
	if got := kindsOf(append(traces, remains()...), spec.ID); got != "" || err != nil {
		t.Errorf("after its end: %q, %v", got, err)
	}
}

// TestT9_WhatCannotBeSeenIsSaid: with the gateway away it is not claimed that
// nothing is left there, and what Docker has is named all the same.
func TestT9_WhatCannotBeSeenIsSaid(t *testing.T) {
	kerneltest.Long(t)
	w := newWorld(t, gatewaytest.Options{})
	e, spec := w.new(t), plainSpec(t, "unseen")
	b, err := e.Prepare(bounded(t), spec)
	if err != nil {
		t.Fatal(err)
	}
	w.gateway.Stop()
	traces, err := e.Marked(bounded(t))
	if kindsOf(traces, spec.ID) != "container, staging directory" || !errors.Is(err, openshell.Unreachable) {
		t.Errorf("sees %q, %v", kindsOf(traces, spec.ID), err)
	}
	w.gateway.Restart("")
	if err := b.Remove(bounded(t)); err != nil {
		t.Error(err)
	}
	w.clean(t, e, spec)
}

// TestT9_TrialsOfTheDeadAreRemoved, and not those of the living.
func TestT9_TrialsOfTheDeadAreRemoved(t *testing.T) {
	kerneltest.Long(t)
	docker := gatewaytest.Docker(t)
	w := newWorld(t, gatewaytest.Options{})
	e := w.new(t)
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	dead := strings.Replace(daemon.Mark(), strconv.Itoa(os.Getpid())+"-", strconv.Itoa(gone.Process.Pid)+"-", 1)
	made := map[string]string{}
	for _, mark := range []string{dead, daemon.Mark()} {
		c, err := docker.ContainerCreate(t.Context(), &container.Config{Image: w.image, Cmd: []string{"none"}, Labels: map[string]string{daemon.LabelProbe: mark}}, nil, nil, nil, "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = e.o.Docker.Remove(context.Background(), c.ID) })
		made[mark] = daemon.Short(c.ID)
	}
	shown := func() (paths []string) {
		traces, err := e.Marked(bounded(t))
		if err != nil {
			t.Error(err)
		}
		for _, trace := range traces {
			paths = append(paths, trace.Path)
		}
		return paths
	}
	if got := shown(); !slices.Contains(got, made[dead]) || slices.Contains(got, made[daemon.Mark()]) {
		t.Errorf("of %v shown: %q", made, got)
	}
	did, err := e.Tidy(bounded(t))
	if err != nil || !strings.Contains(strings.Join(did, "\n"), made[dead]) || strings.Contains(strings.Join(did, "\n"), made[daemon.Mark()]) {
		t.Errorf("of %v tidied: %q, %v", made, did, err)
	}
	if got := shown(); slices.Contains(got, made[dead]) {
		t.Errorf("still there: %q", got)
	}
}

// TestT9_WithoutDockerThereIsNothingToSee: who has never had any is not told
// that something could not be found out.
func TestT9_WithoutDockerThereIsNothingToSee(t *testing.T) {
	d, err := daemon.Connect("unix://" + filepath.Join(t.TempDir(), "docker.sock"))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	e := &Engine{o: Options{Docker: d, Staging: filepath.Join(t.TempDir(), "none")}}
	if traces, err := e.Marked(t.Context()); err != nil || len(traces) > 0 {
		t.Errorf("%v, %v", traces, err)
	}
	if did, err := e.Tidy(t.Context()); err != nil || len(did) > 0 {
		t.Errorf("%v, %v", did, err)
	}
}
