package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"sync"

	"github.com/mojoup/mojoup-node/pkg/sandbox"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native"
	"github.com/mojoup/mojoup-node/pkg/sandbox/native/child"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/daemon"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/product"
)

// Options configure an [Engine]. All but Log and Network are required.
type Options struct {
	// Log is told what was refused, ended and undone. Nil discards it.
	Log *slog.Logger
	// Node names this node. It stands in labels, so that sandboxes of others
	// on the same gateway are left alone.
	Node string
	// Staging is a directory of the node alone, in which each sandbox gets one.
	// Docker and the gateway must see it.
	Staging string
	// Image is the root of every sandbox.
	Image string
	// Fetch has Docker fetch an image that it does not have, when a session needs
	// it. One that was made here can be had nowhere.
	Fetch bool
	// Connect reaches the gateway. It is called when one is first needed, and
	// again after it went away.
	Connect func(context.Context) (openshell.Client, error)
	// Docker is the daemon that the gateway uses.
	Docker *daemon.Daemon
	// Native drives what stands inside.
	Native *native.Engine
	// Network is the bridge of the gateway's containers; empty means the usual.
	Network string
}

// An Engine makes sandboxes at an OpenShell gateway.
type Engine struct {
	o         Options
	log       *slog.Logger
	helper    []byte
	forwarder []byte

	tidied sync.Once

	mu     sync.Mutex // guards what follows
	client openshell.Client
	seen   *sight // what bears a node's labels, when that was last looked at
	// leaving are boxes whose Remove has begun and not come to its end. They hold
	// what a sweep by the journal alone would take for that of a living session.
	leaving map[string]*box
}

var _ sandbox.Engine = (*Engine)(nil)

// New makes the engine. It asks nobody: whether sandboxes can be made is
// package capability's to find out.
func New(o Options) (*Engine, error) {
	switch {
	case o.Node == "", o.Image == "", o.Connect == nil, o.Docker == nil, o.Native == nil:
		return nil, errors.New("BUG: an OpenShell engine without node, image, gateway, Docker or helper")
	case !filepath.IsAbs(o.Staging):
		return nil, fmt.Errorf("BUG: the staging directory %q is not absolute", o.Staging)
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Network == "" {
		o.Network = product.Network
	}
	e := &Engine{o: o, log: o.Log, leaving: map[string]*box{}}
	var err error
	if e.helper, err = child.Program(runtime.GOARCH); err != nil {
		return nil, err
	}
	if e.forwarder, err = openshell.Forwarder(runtime.GOARCH); err != nil {
		return nil, err
	}
	return e, nil
}

// Name is "docker".
func (*Engine) Name() string { return "docker" }

// Close ends the connection to the gateway. Sandboxes are not touched.
func (e *Engine) Close() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client == nil {
		return nil
	}
	c := e.client
	e.client = nil
	return c.Close()
}

// gateway is the connection, made where there is none.
func (e *Engine) gateway(ctx context.Context) (openshell.Client, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client != nil {
		return e.client, nil
	}
	c, err := e.o.Connect(ctx)
	if err != nil {
		return nil, err
	}
	e.client = c
	return c, nil
}

// lost forgets a connection that is of no use any more.
func (e *Engine) lost(c openshell.Client, err error) {
	if !errors.Is(err, openshell.VersionChanged) && !errors.Is(err, openshell.Unauthenticated) && !errors.Is(err, openshell.BadCredentials) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.client == c {
		e.client = nil
		_ = c.Close()
	}
}

// An IdentityError says that nobody can run a session as this user here.
type IdentityError struct{ Problem string }

func (e *IdentityError) Error() string { return e.Problem }

// Hint says what to do.
func (e *IdentityError) Hint() string {
	return "use an ordinary user's node, or: mojoup-node config set node.sandbox.engine native"
}

// identity wants a user that a gateway takes, and that this node may act for.
func identity(id sandbox.Identity) error {
	if id.UID == 0 || id.GID == 0 {
		return &IdentityError{"OpenShell runs no sandbox as user or group 0"}
	}
	if os.Geteuid() != 0 && id.UID != os.Geteuid() {
		return &IdentityError{fmt.Sprintf("only a node that is root can run as user %d; this one is %d", id.UID, os.Geteuid())}
	}
	return nil
}

// bridge is where the node listens for a sandbox, as its generation needs it.
func (e *Engine) bridge(ctx context.Context, g openshell.Gateway) (netip.Addr, error) {
	if g.Generation == openshell.V01 {
		return netip.AddrFrom4([4]byte{127, 0, 0, 1}), nil
	}
	at, err := e.o.Docker.Bridge(ctx, e.o.Network)
	if errors.Is(err, daemon.ErrNotFound) {
		err = openshell.WithoutNetwork(e.o.Network, err)
	}
	return at, err
}
