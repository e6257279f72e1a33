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
	idleUpstream    = 90 * time.Second
	idlePerHost     = 16
	handshakeOut    = 15 * time.Second
	continueTimeout = 2 * time.Second
	maxResponseHead = 1 << 20
	sessionTickets  = 64
)

// transport returns the connections to servers for one kind of request.
// They are kept apart by the ranges that the rule opens, so that a connection
// to a private address is never used for a request whose rule does not open
// it, and by protocol: HTTP/2 goes to servers only for clients that speak it.
// No two sessions share one.
func (s *serving) transport(opened []netip.Prefix, h2 bool) *http.Transport {
	key := transportKey(opened, h2)
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.transports[key]
	if t == nil {
		t = s.newTransport(opened, h2)
		s.transports[key] = t
	}
	return t
}

func transportKey(opened []netip.Prefix, h2 bool) string {
	if len(opened) == 0 && h2 {
		return "h2"
	}
	if len(opened) == 0 {
		return ""
	}
	var b strings.Builder
	if h2 {
		b.WriteString("h2")
	}
	for _, p := range opened {
		b.WriteByte(' ')
		b.WriteString(p.String())
	}
	return b.String()
}

func (s *serving) newTransport(opened []netip.Prefix, h2 bool) *http.Transport {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(h2)
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
		TLSClientConfig: &tls.Config{
			RootCAs:                     s.proxy.roots,
			MinVersion:                  tls.VersionTLS12,
			ClientSessionCache:          tls.NewLRUClientSessionCache(sessionTickets),
			DynamicRecordSizingDisabled: true,
		},
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
