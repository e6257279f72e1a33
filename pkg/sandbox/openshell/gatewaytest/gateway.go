//go:build linux

package gatewaytest

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Generations.
const (
	V00 = "0.0.x"
	V01 = "0.1.x"
)

// Options are what a gateway's operator and its machine decide.
type Options struct {
	Generation string // V00 or V01
	Version    string // what it says; empty means the oldest supported, or 0.1.5
	// What it does not allow, as its configuration file may have it.
	NoBinds, NoDriverConfig, Admission bool
	// Hidden are paths that its process does not see, as with PrivateTmp.
	Hidden []string
	// TLS asks for the certificates that Register writes.
	TLS bool
	// Token asks for this bearer token besides.
	Token string
	// Driver is what it runs sandboxes on; empty means docker. It is only said.
	Driver string
	// Machine gives containers this machine's own programs in the place of the
	// image's: see [Machine].
	Machine bool
	// Programs is a directory of this machine that is /usr/local/bin inside;
	// empty means none.
	Programs string
	// ReadyAfter delays each sandbox.
	ReadyAfter time.Duration
	Faults     Faults
}

// Gateway is a running double.
type Gateway struct {
	t    testing.TB
	o    Options
	name string
	tls  *authority

	mu       sync.Mutex // guards what follows
	server   *grpc.Server
	address  string
	version  string
	boxes    map[string]*box // by id
	requests []Request
	changed  chan struct{} // closed at every change of a box
	driver   *driver
	work     sync.WaitGroup
	ctx      context.Context
	cancel   context.CancelFunc
}

// Start starts a gateway on a free port of loopback. It is stopped, and all
// that it has made is removed, when the test ends.
func Start(t testing.TB, o Options) *Gateway {
	t.Helper()
	if o.Generation == "" {
		o.Generation = V00
	}
	if o.Version == "" {
		o.Version = map[string]string{V00: "0.0.111", V01: "0.1.5"}[o.Generation]
	}
	if o.Driver == "" {
		o.Driver = product.Driver
	}
	g := &Gateway{t: t, o: o, version: o.Version, boxes: map[string]*box{}, changed: make(chan struct{}), name: "double-" + randomHex(4)}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	if o.TLS {
		g.tls = newAuthority(t)
	}
	g.driver = newDriver(t, g)
	t.Cleanup(g.close)
	g.listen("127.0.0.1:0")
	if err := g.driver.join(); err != nil {
		t.Fatal(err)
	}
	return g
}

// Name is what it is registered as, and what its containers' label says.
func (g *Gateway) Name() string { return g.name }

// Endpoint is the gateway's URL.
func (g *Gateway) Endpoint() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.o.TLS {
		return "https://" + g.address
	}
	return "http://" + g.address
}

func (g *Gateway) listen(address string) {
	g.t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		g.t.Fatal(err)
	}
	options := []grpc.ServerOption{
		// A real one takes no more in one message.
		grpc.MaxRecvMsgSize(1 << 20),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: time.Second, PermitWithoutStream: true}),
		grpc.UnaryInterceptor(func(ctx context.Context, in any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
			if err := g.admit(ctx, method(info.FullMethod)); err != nil {
				return nil, err
			}
			out, err := next(ctx, in)
			if lie := g.o.Faults.Answer; lie != nil && err == nil {
				out = lie(ctx, method(info.FullMethod), out)
			}
			return out, err
		}),
		grpc.StreamInterceptor(func(srv any, s grpc.ServerStream, info *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := g.admit(s.Context(), method(info.FullMethod)); err != nil {
				return err
			}
			return next(srv, s)
		}),
	}
	if g.tls != nil {
		options = append(options, grpc.Creds(credentials.NewTLS(&tls.Config{Certificates: []tls.Certificate{g.tls.server},
			ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: g.tls.pool, MinVersion: tls.VersionTLS12})))
	}
	server := grpc.NewServer(options...)
	// By hand: two generated packages with the gateway's own names cannot live
	// in one program.
	if g.o.Generation == V01 {
		server.RegisterService(service01, &face01{g})
	} else {
		server.RegisterService(service00, &face00{g})
	}
	g.mu.Lock()
	g.server, g.address = server, l.Addr().String()
	g.mu.Unlock()
	g.work.Go(func() { server.Serve(l) })
}

// Stop makes the gateway go away at once. Its sandboxes run on.
func (g *Gateway) Stop() {
	g.mu.Lock()
	server := g.server
	g.mu.Unlock()
	server.Stop()
}

// Restart starts the gateway again at the same address, perhaps as another
// version. It remembers its sandboxes. One of 0.0.x stops and starts their
// containers, as a real one does: what ran in them is gone.
func (g *Gateway) Restart(version string) {
	g.t.Helper()
	g.Stop()
	g.mu.Lock()
	if version != "" {
		g.version = version
	}
	address := g.address
	g.mu.Unlock()
	if g.o.Generation == V00 {
		g.driver.again()
	}
	g.listen(address)
}

func (g *Gateway) close() {
	g.Stop()
	g.cancel()
	g.driver.close()
	g.work.Wait()
}

// admit asks who it is and lets a test interfere.
func (g *Gateway) admit(ctx context.Context, method string) error {
	if before := g.o.Faults.Before; before != nil {
		if err := before(ctx, method); err != nil {
			return err
		}
	}
	if g.o.Token == "" || method == "Health" {
		return nil
	}
	md, _ := metadata.FromIncomingContext(ctx)
	if got := md.Get("authorization"); len(got) != 1 || got[0] != "Bearer "+g.o.Token {
		return status.Error(codes.Unauthenticated, "missing or invalid bearer token")
	}
	return nil
}

func method(full string) string { return filepath.Base(full) }

// Register writes the registration of the gateway below config, as the command
// line does for who runs the test, and answers the variables that lead there.
func (g *Gateway) Register(config string) []string {
	g.t.Helper()
	dir := filepath.Join(config, product.ConfigDir, product.GatewaysDir, g.name)
	auth := "plaintext"
	if g.o.TLS {
		auth = "mtls"
		g.tls.write(g.t, filepath.Join(dir, product.MTLSDir))
	}
	if g.o.Token != "" {
		auth = "oidc"
		writeFile(g.t, filepath.Join(dir, product.TokenFile), `{"access_token":"`+g.o.Token+`","issuer":"http://127.0.0.1","client_id":"test"}`)
	}
	if err := Register(config, g.name, g.Endpoint(), auth); err != nil {
		g.t.Fatal(err)
	}
	return []string{"XDG_CONFIG_HOME=" + config}
}

// Register writes the registration of a gateway of that name below config, as
// the command line does: how it is spoken to is "plaintext", "mtls" or "oidc".
func Register(config, name, endpoint, auth string) error {
	text, err := json.Marshal(map[string]any{"name": name, "gateway_endpoint": endpoint, "is_remote": false, "gateway_port": 0, "auth_mode": auth})
	if err != nil {
		return err
	}
	dir := filepath.Join(config, product.ConfigDir, product.GatewaysDir, name)
	return errors.Join(
		os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, product.MetadataFile), text, 0o600),
		os.WriteFile(filepath.Join(config, product.ConfigDir, product.ActiveFile), []byte(name+"\n"), 0o600),
	)
}

func writeFile(t testing.TB, name, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Requests are what was asked to be made, for a test to look at.
func (g *Gateway) Requests() []Request {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]Request(nil), g.requests...)
}

// Faults make a gateway misbehave. They are called from many goroutines.
type Faults struct {
	// Before is called before each method is carried out. It may wait, and its
	// error is the answer.
	Before func(ctx context.Context, method string) error
	// Answer may change the message that is answered. The context ends with the
	// connection.
	Answer func(ctx context.Context, method string, message any) any
	// Exec is asked for what goes wrong with a command.
	Exec func(command []string) ExecFault
	// Network is asked for each sandbox, and its error is what Docker answers
	// who wants a network for it. Really to fill the ranges that Docker has
	// would take them from every other test at that Docker, and a Docker of a
	// test's own has none of the images.
	Network func() error
	// Silent gateways tell a watch nothing.
	Silent bool
	// Stuck sandboxes never become ready, or never go.
	Stuck bool
	// Keeps is asked, over and over, whether a sandbox that is being deleted
	// stays for now.
	Keeps func() bool
}

// ExecFault is what goes wrong with one command.
type ExecFault struct {
	Hang   bool // nothing ever comes
	After  int  // bytes of output before what follows; 0 is at the end
	NoExit bool // the stream ends without saying how the command ended
	Break  bool // the whole connection breaks
	Flood  bool // output without end
}

// authority issues the certificates of one double.
type authority struct {
	pool                   *x509.CertPool
	server                 tls.Certificate
	caPEM, certPEM, keyPEM []byte
}

func (a *authority) write(t testing.TB, dir string) {
	t.Helper()
	for name, text := range map[string][]byte{product.CAFile: a.caPEM, product.CertFile: a.certPEM, product.KeyFile: a.keyPEM} {
		writeFile(t, filepath.Join(dir, name), string(text))
	}
}
