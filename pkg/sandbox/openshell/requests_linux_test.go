package openshell_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// A name that somebody else has is not ours.
func TestNameTaken(t *testing.T) {
	_, c := connected(t, gatewaytest.Options{})
	w := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}
	if _, err := c.Create(bounded(t), w.request(t)); err != nil {
		t.Fatal(err)
	}
	_, err := c.Create(bounded(t), w.request(t))
	wants(t, err, openshell.NameTaken, "openshell sandbox delete")
}

// What is left out of a policy a gateway fills in with less: without one there is no
// sandbox, and a rule of which nothing is said only logs, and reads what it carries.
func TestEveryPolicyIsSentInFull(t *testing.T) {
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) {
			g, c := connected(t, gatewaytest.Options{Generation: generation})
			r := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}.request(t)
			r.Ways = []openshell.Way{{Host: product.HostAlias, Port: 4711, Program: "/run/mojoup/forwarder"}}
			if _, err := c.Create(bounded(t), r); err != nil {
				t.Fatal(err)
			}
			got := g.Requests()[0].Policy
			if !got.Given || got.Landlock != "hard_requirement" || got.User != "1000" || got.Group != "1000" || len(got.ReadOnly) != len(r.ReadOnly) || len(got.ReadWrite) != len(r.ReadWrite) {
				t.Errorf("sent %+v", got)
			}
			want := []gatewaytest.Rule{{Host: product.HostAlias, Port: 4711, Programs: []string{"/run/mojoup/forwarder"}, Skip: true, Enforce: true}}
			if diff := cmp.Diff(want, got.Rules); diff != "" {
				t.Errorf("rules (-want +got):\n%s", diff)
			}
		})
	}
}

// Each refusal of a gateway has its own mend.
func TestRefusals(t *testing.T) {
	w := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}
	dir := t.TempDir()
	for name, c := range map[string]struct {
		o    gatewaytest.Options
		code openshell.Code
		hint string
	}{
		"B08 binds off":           {gatewaytest.Options{NoBinds: true}, openshell.BindsOff, "enable_bind_mounts = true in [openshell.drivers.docker]"},
		"driver config off":       {gatewaytest.Options{Generation: gatewaytest.V01, NoDriverConfig: true}, openshell.DriverConfigOff, "allow_driver_config = true"},
		"admission on":            {gatewaytest.Options{Generation: gatewaytest.V01, Admission: true}, openshell.AdmissionOn, "resource_admission"},
		"B09 a /tmp of its own":   {gatewaytest.Options{Hidden: []string{"/tmp"}}, openshell.SourceMissing, "PrivateTmp"},
		"B09 elsewhere not there": {gatewaytest.Options{Generation: gatewaytest.V01, Hidden: []string{dir}}, openshell.SourceMissing, ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := connected(t, c.o)
			made, err := client.Create(bounded(t), w.request(t, openshell.Mount{Source: dir, Target: dir}))
			if err == nil {
				_, err = client.Ready(bounded(t), made.Ref, nil)
			}
			wants(t, err, c.code, c.hint)
		})
	}
}

// What is not asked for: requests that no gateway takes, or would take and not
// do.
func TestBadRequests(t *testing.T) {
	var asked calls
	_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: asked.before}})
	asked.take()
	w := world{image: "x", uid: 1000, node: "n"}
	mount := func(source, target string) func(*openshell.Request) {
		return func(r *openshell.Request) { r.Mounts = []openshell.Mount{{Source: source, Target: target}} }
	}
	many := map[string]string{}
	for i := range 200 {
		many["V"+strings.Repeat("x", i)] = ""
	}
	for name, change := range map[string]func(*openshell.Request){
		"no name": func(r *openshell.Request) { r.Name = "" }, "long name": func(r *openshell.Request) { r.Name = strings.Repeat("a", 20) },
		"capitals": func(r *openshell.Request) { r.Name = "Mj-1" }, "two hyphens": func(r *openshell.Request) { r.Name = "a--b" }, "hyphen last": func(r *openshell.Request) { r.Name = "a-" },
		"no image": func(r *openshell.Request) { r.Image = "" }, "no command": func(r *openshell.Request) { r.Command = nil },
		"NUL": func(r *openshell.Request) { r.Command = []string{"a\x00b"} }, "label": func(r *openshell.Request) { r.Labels = map[string]string{"a": "b c"} },
		"reserved variable": func(r *openshell.Request) { r.Env = map[string]string{"OPENSHELL_X": "1"} }, "bad variable": func(r *openshell.Request) { r.Env = map[string]string{"A-B": "1"} },
		"two lines": func(r *openshell.Request) { r.Env = map[string]string{"A": "1\n2"} }, "many variables": func(r *openshell.Request) { r.Env = many },
		"relative source": mount("a", "/a"), "target root": mount("/a", "/"), "target not clean": mount("/a", "/a/../b"), "colon": mount("/a:b", "/a"),
		"relative path": func(r *openshell.Request) { r.ReadOnly = []string{"a"} }, "way without a program": func(r *openshell.Request) { r.Ways = []openshell.Way{{Host: "h", Port: 1}} },
		"no port": func(r *openshell.Request) { r.Ways = []openshell.Way{{Host: "h", Program: "/a"}} },
	} {
		r := w.request(t)
		change(&r)
		if _, err := c.Create(bounded(t), r); !errors.Is(err, openshell.BadRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
	large := w.request(t)
	large.Env = map[string]string{}
	for i := range 127 {
		large.Env["V"+strings.Repeat("x", i)] = strings.Repeat("y", 8192)
	}
	_, err := c.Create(bounded(t), large)
	wants(t, err, openshell.TooLarge, "")
	for _, cmd := range []openshell.Command{{}, {Argv: []string{strings.Repeat("x", 300_000)}}, {Argv: []string{"x"}, Env: map[string]string{"A B": ""}},
		{Argv: []string{"x"}, Input: make([]byte, openshell.MostInput+1)}, {Argv: []string{"x"}, Input: []byte("x"), TTY: &openshell.Size{}}} {
		if _, err := c.Exec(bounded(t), openshell.Ref{ID: "i", Name: "n"}, cmd); !errors.Is(err, openshell.BadRequest) {
			t.Errorf("%.60v: %v", cmd, err)
		}
	}
	if made := asked.take(); len(made) != 0 {
		t.Errorf("the gateway was asked %v", made)
	}
}
