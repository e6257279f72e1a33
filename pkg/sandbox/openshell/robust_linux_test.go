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

	"github.com/mojoup/mojoup-node/pkg/sandbox/kerneltest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/gatewaytest"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
)

func TestMain(m *testing.M) {
	kerneltest.Together(8)
	os.Exit(m.Run())
}

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
	t.Parallel()
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
		t.Parallel()
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
	t.Parallel()
	for _, generation := range generations {
		t.Run(generation, func(t *testing.T) {
			t.Parallel()
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
				t.Errorf("it was made, and %v was answered", err)
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
		})
	}
}
