package egress

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"
)

const (
	upstreamBuffer  = 16 << 10
	idleUpstream    = 90 * time.Second
	justUsed        = 5 * time.Millisecond // too short for a server to give up a connection
	idlePerHost     = 16
	handshakeOut    = 15 * time.Second
	continueTimeout = 2 * time.Second
	maxResponseHead = 1 << 20
	sessionTickets  = 64
)

// transport returns the connections to servers for requests that came over
// HTTP/2, for one set of ranges that a rule opens: a connection to a private
// address is never used for a request whose rule does not open it. No two
// sessions share one.
func (s *serving) transport(opened []netip.Prefix) *http.Transport {
	key := rangesKey(opened)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.transports[key]
	if t == nil {
		t = s.newTransport(opened)
		s.transports[key] = t
	}
	return t
}

func rangesKey(opened []netip.Prefix) string {
	if len(opened) == 0 {
		return ""
	}
	var b strings.Builder
	for _, p := range opened {
		b.WriteByte(' ')
		b.WriteString(p.String())
	}
	return b.String()
}

// newOutsideTLS is how we speak TLS with servers.
func (p *Proxy) newOutsideTLS() *tls.Config {
	return &tls.Config{
		RootCAs:                     p.roots,
		MinVersion:                  tls.VersionTLS12,
		ClientSessionCache:          tls.NewLRUClientSessionCache(sessionTickets),
		DynamicRecordSizingDisabled: true,
	}
}

func (s *serving) newTransport(opened []netip.Prefix) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(true)
	return &http.Transport{
		Proxy: nil, // the node's own proxy variables are not the session's
		DialContext: func(ctx context.Context, _, address string) (net.Conn, error) {
			t, why := parseAuthority(address, 0)
			if why != nil {
				return nil, why
			}
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			defer context.AfterFunc(s.life, cancel)()
			addrs, err := s.resolve(ctx, t, opened)
			if err != nil {
				return nil, err
			}
			return s.dial(ctx, addrs, t.port, opened)
		},
		TLSClientConfig:        s.proxy.newOutsideTLS(),
		Protocols:              protocols,
		TLSHandshakeTimeout:    handshakeOut,
		ExpectContinueTimeout:  continueTimeout,
		DisableCompression:     true, // what the client asked for is what it gets
		IdleConnTimeout:        idleUpstream,
		MaxIdleConnsPerHost:    idlePerHost,
		MaxResponseHeaderBytes: maxResponseHead,
		WriteBufferSize:        16 << 10,
		ReadBufferSize:         16 << 10,
	}
}

func (s *serving) closeIdle() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.transports {
		t.CloseIdleConnections()
	}
}
