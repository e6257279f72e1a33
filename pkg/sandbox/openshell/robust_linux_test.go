package openshell_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
	"unicode"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/google/go-cmp/cmp"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v01"
)

// calls records the methods that a double was asked for.
type calls struct {
	mu   sync.Mutex
	made []string
}

func (c *calls) before(_ context.Context, method string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.made = append(c.made, method)
	return nil
}

func (c *calls) take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	made := c.made
	c.made = nil
	return made
}

// at is the registration of an address without a name.
func at(t *testing.T, endpoint string) openshell.Registration {
	t.Helper()
	reg, err := openshell.Discover(openshell.Where{UID: os.Getuid(), Getenv: getenv([]string{"OPENSHELL_GATEWAY_ENDPOINT=" + endpoint})})
	if err != nil {
		t.Fatal(err)
	}
	return reg
}

// wants checks an error's code, that its sentence is one, and its hint.
func wants(t *testing.T, err error, code openshell.Code, hint string) {
	t.Helper()
	var e *openshell.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("wanted %q, got %v", code, err)
		return
	}
	if s := e.Error(); s == "" || len(s) > 1200 || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) && r != ' ' }) {
		t.Errorf("no sentence for people: %q", s)
	}
	if !strings.Contains(e.Hint(), hint) {
		t.Errorf("the hint of %q is %q, wanted %q in it", e, e.Hint(), hint)
	}
	t.Logf("%s: %s\n\t%s", code, e, e.Hint())
}

// Only a version that is known is spoken to, and no other is asked for more
// than its version.
func TestVersions(t *testing.T) {
	for _, c := range []struct {
		version    string
		generation openshell.Generation
		code       openshell.Code
	}{
		{"0.0.111", openshell.V00, ""}, {"0.0.116", openshell.V00, ""}, {"0.0.0", openshell.V00, ""}, {"0.0.112-dev.7+g2f7fb6559", openshell.V00, ""},
		{"0.1.0", openshell.V01, ""}, {"0.1.10", openshell.V01, ""}, {"0.1.5-rc.1", openshell.V01, ""},
		{"0.0.88", "", openshell.VersionUnsupported}, {"0.2.0", "", openshell.VersionUnsupported}, {"1.0.0", "", openshell.VersionUnsupported},
		{"0.1", "", openshell.NotAGateway}, {"banana", "", openshell.NotAGateway}, {"0.1.-5", "", openshell.NotAGateway},
		{"0.1.\x1b[31m5\n", "", openshell.NotAGateway}, {strings.Repeat("0.1.", 5000), "", openshell.NotAGateway}, {"00000000000000000000.1.5", openshell.V01, ""},
		{"0.1.99999999999999999999", "", openshell.NotAGateway},
	} {
		var asked calls
		g := gatewaytest.Start(t, gatewaytest.Options{Version: c.version, Faults: gatewaytest.Faults{Before: asked.before}})
		client, err := openshell.Connect(bounded(t), at(t, g.Endpoint()))
		switch {
		case c.code != "":
			wants(t, err, c.code, "")
		case err != nil:
			t.Errorf("%q: %v", c.version, err)
		default:
			if got := client.Gateway().Generation; got != c.generation {
				t.Errorf("%q is spoken to as %s", c.version, got)
			}
			client.Close()
		}
		if made := asked.take(); !slices.Equal(made, []string{"Health"}) {
			t.Errorf("%q was asked %v", c.version, made)
		}
		g.Stop()
	}
}

// B07: what listens there may be anything.
func TestNoGateway(t *testing.T) {
	short := func(t *testing.T) context.Context {
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		t.Cleanup(cancel)
		return ctx
	}
	listener := func(t *testing.T, do func(net.Conn)) string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { l.Close() })
		go func() {
			for {
				conn, err := l.Accept()
				if err != nil {
					return
				}
				t.Cleanup(func() { conn.Close() })
				go do(conn)
			}
		}()
		return "http://" + l.Addr().String()
	}
	t.Run("nothing", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
		_, err = openshell.Connect(bounded(t), at(t, "http://"+l.Addr().String()))
		wants(t, err, openshell.Unreachable, "systemctl --user start openshell-gateway.service")
	})
	t.Run("a web server", func(t *testing.T) {
		s := httptest.NewServer(http.NotFoundHandler())
		defer s.Close()
		_, err := openshell.Connect(bounded(t), at(t, s.URL))
		wants(t, err, openshell.NotAGateway, "")
	})
	t.Run("a web server with HTTP/2", func(t *testing.T) {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>hello")) }))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		defer s.Close()
		_, err := openshell.Connect(bounded(t), at(t, s.URL))
		wants(t, err, openshell.NotAGateway, "")
	})
	t.Run("silence", func(t *testing.T) {
		_, err := openshell.Connect(short(t), at(t, listener(t, func(net.Conn) {})))
		wants(t, err, openshell.NoAnswer, "")
	})
	t.Run("a hang-up", func(t *testing.T) {
		_, err := openshell.Connect(bounded(t), at(t, listener(t, func(c net.Conn) { c.Close() })))
		if !errors.Is(err, openshell.Unreachable) && !errors.Is(err, openshell.NotAGateway) {
			t.Errorf("%v", err)
		}
	})
	t.Run("noise", func(t *testing.T) {
		_, err := openshell.Connect(bounded(t), at(t, listener(t, func(c net.Conn) {
			for range 1000 {
				if _, err := c.Write([]byte(strings.Repeat("\x00\xff noise", 1000))); err != nil {
					return
				}
			}
		})))
		wants(t, err, openshell.NotAGateway, "")
	})
	t.Run("TLS where none is registered", func(t *testing.T) {
		g := gatewaytest.Start(t, gatewaytest.Options{TLS: true})
		_, err := openshell.Connect(bounded(t), at(t, strings.Replace(g.Endpoint(), "https", "http", 1)))
		if !errors.Is(err, openshell.Unreachable) && !errors.Is(err, openshell.NotAGateway) {
			t.Errorf("%v", err)
		}
	})
	t.Run("no TLS where some is registered", func(t *testing.T) {
		g := gatewaytest.Start(t, gatewaytest.Options{TLS: true})
		reg := registered(t, g)
		reg.Endpoint = strings.Replace(gatewaytest.Start(t, gatewaytest.Options{}).Endpoint(), "http:", "https:", 1)
		_, err := openshell.Connect(bounded(t), reg)
		wants(t, err, openshell.NotAGateway, "")
	})
	t.Run("another authority's certificate", func(t *testing.T) {
		reg := registered(t, gatewaytest.Start(t, gatewaytest.Options{TLS: true}))
		reg.Endpoint = gatewaytest.Start(t, gatewaytest.Options{TLS: true}).Endpoint()
		_, err := openshell.Connect(bounded(t), reg)
		wants(t, err, openshell.BadCredentials, "openshell gateway add")
	})
	t.Run("another name's certificate", func(t *testing.T) {
		reg := registered(t, gatewaytest.Start(t, gatewaytest.Options{TLS: true}))
		reg.Endpoint = strings.Replace(reg.Endpoint, "127.0.0.1", "gw.localhost", 1)
		_, err := openshell.Connect(bounded(t), reg)
		if !errors.Is(err, openshell.BadCredentials) && !errors.Is(err, openshell.Unreachable) { // some resolvers do not know it
			t.Errorf("%v", err)
		}
	})
}

// Who we are is asked at the first call that needs it.
func TestNotWelcome(t *testing.T) {
	g := gatewaytest.Start(t, gatewaytest.Options{TLS: true, Token: "right"})
	reg := registered(t, g)
	if err := os.WriteFile(reg.Dir+"/oidc_token.json", []byte(`{"access_token":"wrong"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := openshell.Connect(bounded(t), reg)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_, err = c.List(bounded(t), nil)
	wants(t, err, openshell.Unauthenticated, "openshell gateway login")
	// The command line renews it, and the next call has it.
	if err := os.WriteFile(reg.Dir+"/oidc_token.json", []byte(`{"access_token":"right"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err = c.List(bounded(t), nil); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(reg.Dir+"/oidc_token.json", []byte(`{"access_token":"right","expires_at":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err = c.List(bounded(t), nil)
	wants(t, err, openshell.BadCredentials, "openshell status")

	forbidden := gatewaytest.Start(t, gatewaytest.Options{Faults: gatewaytest.Faults{Before: func(_ context.Context, m string) error {
		if m == "GetGatewayInfo" {
			return status.Error(codes.PermissionDenied, "platform_admin required")
		}
		return nil
	}}})
	c2, err := openshell.Connect(bounded(t), at(t, forbidden.Endpoint()))
	if err != nil {
		t.Fatal(err)
	}
	defer c2.Close()
	_, err = c2.Info(bounded(t))
	wants(t, err, openshell.Forbidden, "")
}

// Behind a new connection may be another gateway.
func TestVersionChanges(t *testing.T) {
	var asked calls
	g, c := connected(t, gatewaytest.Options{Version: "0.0.111", Faults: gatewaytest.Faults{Before: asked.before}})
	g.Restart("")
	if _, err := c.List(bounded(t), nil); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	g.Restart("0.0.116")
	if _, err := c.List(bounded(t), nil); err != nil || c.Gateway().Version != "0.0.116" {
		t.Fatalf("after an upgrade: %v, %+v", err, c.Gateway())
	}
	asked.take()
	g.Restart("0.1.5")
	_, err := c.Get(bounded(t), "x")
	wants(t, err, openshell.VersionChanged, "")
	_, err = c.Create(bounded(t), world{image: "x", uid: 1000, node: "n"}.request(t))
	wants(t, err, openshell.VersionChanged, "")
	if made := asked.take(); !slices.Equal(made, []string{"Health"}) {
		t.Errorf("the other gateway was asked %v", made)
	}

	// One that changes its word on a living connection.
	lies := gatewaytest.Faults{}
	said := "0.0.111"
	var mu sync.Mutex
	lies.Answer = func(_ context.Context, method string, m any) any {
		mu.Lock()
		defer mu.Unlock()
		if h, ok := m.(*v00.HealthResponse); ok {
			h.Version = said
		}
		return m
	}
	_, c = connected(t, gatewaytest.Options{Faults: lies})
	if _, err := c.Health(bounded(t)); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	said = "7.0.0"
	mu.Unlock()
	_, err = c.Health(bounded(t))
	wants(t, err, openshell.VersionChanged, "")
	_, err = c.List(bounded(t), nil)
	wants(t, err, openshell.VersionChanged, "")
}

func TestGatewayGoesAway(t *testing.T) {
	g, c := connected(t, gatewaytest.Options{})
	g.Stop()
	_, err := c.List(bounded(t), nil)
	wants(t, err, openshell.Unreachable, "systemctl")
	g.Restart("")
	if _, err := c.List(bounded(t), nil); err != nil {
		t.Error(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	_, err = c.List(bounded(t), nil)
	wants(t, err, openshell.Unreachable, "")
}

// An answer that is lost leaves no sandbox that nobody knows of.
func TestLostAnswers(t *testing.T) {
	for _, generation := range generations {
		var g *gatewaytest.Gateway
		back := true
		g, c := connected(t, gatewaytest.Options{Generation: generation, Faults: gatewaytest.Faults{Answer: func(ctx context.Context, method string, m any) any {
			if method == "CreateSandbox" {
				if back {
					go g.Restart("")
				} else {
					go g.Stop()
				}
				<-ctx.Done() // the answer has nowhere to go
			}
			return m
		}}})
		w := world{image: "127.0.0.1:1/none:none", uid: 1000, node: newNode()}
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil || made.Name != w.request(t).Name {
			t.Errorf("%s: it was made, and %v was answered", generation, err)
		}
		if err := c.Delete(bounded(t), made.Ref); err != nil {
			t.Error(err)
		}
		if err := c.Gone(bounded(t), made.Ref); err != nil {
			t.Error(err)
		}
		back = false
		_, err = c.Create(bounded(t), w.request(t))
		wants(t, err, openshell.Uncertain, "")
	}
}

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
		c, late := stuck(t, "GetSandbox")
		_, err := c.Get(late, "x")
		wants(t, err, openshell.NoAnswer, "journalctl")
	})
	t.Run("create", func(t *testing.T) {
		c, late := stuck(t, "CreateSandbox")
		_, err := c.Create(late, w.request(t))
		wants(t, err, openshell.Uncertain, "")
	})
	t.Run("given up", func(t *testing.T) {
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
		_, c := connected(t, gatewaytest.Options{Faults: gatewaytest.Faults{Silent: true}})
		made, err := c.Create(bounded(t), w.request(t))
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Ready(bounded(t), made.Ref, nil) // by asking
		wants(t, err, openshell.ImageMissing, "")
	})
	t.Run("a watch that cannot be had", func(t *testing.T) {
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
