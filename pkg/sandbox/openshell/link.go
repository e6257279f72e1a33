package openshell

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/url"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire"
	"github.com/mojoup/mojoup-node/pkg/sandbox/openshell/wire/v00"
)

// Bounds of one conversation.
const (
	dialWithin   = 5 * time.Second
	healthWithin = 5 * time.Second
	// A gateway that does not answer a ping for this long is gone, and with it
	// every stream: the process may be stopped, or the machine asleep.
	pingEvery  = 10 * time.Second
	pingWithin = 10 * time.Second
	// mostMessage is what is taken in one message. The gateway takes 1 MiB.
	mostMessage = 4 << 20
	mostHeaders = 64 << 10
)

// A link is one connection to a gateway whose version is known. It never
// connects again by itself: behind another connection may be another gateway,
// which must be asked who it is before anything else is.
type link struct {
	cc      *grpc.ClientConn
	health  Health
	dialled atomic.Bool
	dead    atomic.Bool
	why     atomic.Pointer[error] // of the connection that could not be made
}

var errSpent = errors.New("this connection has ended")

// open connects and asks for the version.
func open(ctx context.Context, reg Registration) (*link, error) {
	l := &link{}
	at, err := url.Parse(reg.Endpoint)
	if err != nil {
		return nil, &Error{Code: BadFiles, Sentence: "the address of " + reg.title() + " is not valid", Err: err}
	}
	var secure credentials.TransportCredentials = insecure.NewCredentials()
	if at.Scheme == "https" {
		config, err := reg.tls(at.Hostname())
		if err != nil {
			return nil, err
		}
		secure = noting{credentials.NewTLS(config), l}
	}
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		if l.dialled.Swap(true) {
			return nil, errSpent
		}
		conn, err := (&net.Dialer{Timeout: dialWithin}).DialContext(ctx, "tcp", address)
		if err == nil && at.Scheme == "http" {
			err = ours(conn, reg)
		}
		if err != nil {
			l.why.Store(&err)
			if conn != nil {
				conn.Close()
			}
			return nil, err
		}
		return conn, nil
	}
	// NewClient does not connect yet. Proxy variables are not for the machine
	// itself, and no file of a resolver decides where credentials are sent.
	l.cc, err = grpc.NewClient("passthrough:///"+hostPort(at), grpc.WithTransportCredentials(secure), grpc.WithContextDialer(dial),
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(), grpc.WithMaxHeaderListSize(mostHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Hour, MaxDelay: time.Hour}, MinConnectTimeout: dialWithin}),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: pingEvery, Timeout: pingWithin}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(mostMessage)))
	if err != nil {
		return nil, &Error{Code: BadFiles, Sentence: "the address of " + reg.title() + " is not valid", Err: err}
	}
	if l.health, err = l.ask(ctx, reg); err != nil {
		l.cc.Close()
		return nil, err
	}
	return l, nil
}

// ask asks for the version. These messages are the same in both generations,
// so that it may be asked before the generation is known.
func (l *link) ask(ctx context.Context, reg Registration) (Health, error) {
	ctx, cancel := context.WithTimeout(ctx, healthWithin)
	defer cancel()
	answer := &v00.HealthResponse{}
	var head, tail metadata.MD
	if err := l.cc.Invoke(ctx, wire.Path(wire.Health), &v00.HealthRequest{}, answer, grpc.Header(&head), grpc.Trailer(&tail)); err != nil {
		return Health{}, l.failed(ctx, reg, err, len(head)+len(tail) > 0)
	}
	states := map[v00.ServiceStatus]string{
		v00.ServiceStatus_SERVICE_STATUS_HEALTHY: "healthy", v00.ServiceStatus_SERVICE_STATUS_DEGRADED: "degraded",
		v00.ServiceStatus_SERVICE_STATUS_UNHEALTHY: "unhealthy",
	}
	h := Health{Version: word(answer.GetVersion()), Status: states[answer.GetStatus()]}
	if h.Status == "" {
		h.Status = "unknown"
	}
	return h, nil
}

// alive reports whether the connection can still carry a call.
func (l *link) alive() bool {
	return !l.dead.Load() && l.cc.GetState() == connectivity.Ready
}

// bearing adds what says who we are.
func bearing(ctx context.Context, reg Registration) (context.Context, error) {
	if reg.Auth != AuthOIDC {
		return ctx, nil
	}
	token, err := reg.token()
	if err != nil {
		return nil, err
	}
	return metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token), nil
}

// invoke makes one call on this connection, bounded by within.
func (l *link) invoke(ctx context.Context, reg Registration, within time.Duration, method string, in, out proto.Message) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	bearer, err := bearing(ctx, reg)
	if err != nil {
		return err
	}
	var head, tail metadata.MD
	if err := l.cc.Invoke(bearer, wire.Path(method), in, out, grpc.Header(&head), grpc.Trailer(&tail)); err != nil {
		return l.failed(ctx, reg, err, len(head)+len(tail) > 0)
	}
	return nil
}

// noting keeps why a handshake failed: grpc passes on its text only.
type noting struct {
	credentials.TransportCredentials
	l *link
}

func (n noting) ClientHandshake(ctx context.Context, authority string, conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secured, info, err := n.TransportCredentials.ClientHandshake(ctx, authority, conn)
	if err != nil {
		n.l.why.Store(&err)
	}
	return secured, info, err
}

func (n noting) Clone() credentials.TransportCredentials {
	return noting{n.TransportCredentials.Clone(), n.l}
}

// tls trusts the registration's own authority only.
func (r Registration) tls(host string) (*tls.Config, error) {
	m, err := r.material()
	if err != nil {
		return nil, err
	}
	return &tls.Config{RootCAs: m.roots, Certificates: m.certificates, ServerName: host, MinVersion: tls.VersionTLS12}, nil
}

// hostPort is where to connect, with the port that the scheme implies.
func hostPort(at *url.URL) string {
	port := at.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[at.Scheme]
	}
	return net.JoinHostPort(at.Hostname(), port)
}
