package egress

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/dialguard"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets"
)

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

// connect answers one CONNECT, whose head was read off c already, and carries
// the tunnel to its end.
func (s *serving) connect(ctx context.Context, c *client, h head) {
	defer c.Close()
	v := s.begin(c.link)
	defer v.settle()
	t, why := connectTarget(h)
	v.about(t.host, t.port, http.MethodConnect, "")
	if why != nil {
		c.refused.Store(why)
		answerConnect(c, why.status, "", refusedText(v.deny(why.reason)))
		return
	}
	d, loaded := s.judge(policy.Request{Host: t.host, Port: t.port, TLS: true})
	if misuse := s.session.Keys.Connect(fieldsOf(h)); misuse != nil {
		v.misused(misuse)
		d = ofSecret(misuse)
	}
	v.decide(d)
	switch {
	case !loaded:
		s.denyConnect(ctx, c, t, v, http.StatusServiceUnavailable)
	case !d.Allowed && s.answered(t.host, t.port):
		v.drop() // what is asked inside is judged, each for itself
		if _, err := io.WriteString(c, established); err == nil {
			s.read(ctx, c, t, d, v)
		}
	case !d.Allowed:
		s.denyConnect(ctx, c, t, v, http.StatusForbidden)
	case d.Inspect || t.port == portHTTP && !d.Raw:
		if d.Inspect {
			v.settle()
		}
		if _, err := io.WriteString(c, established); err == nil {
			s.read(ctx, c, t, d, v)
		}
	default:
		s.tunnel(ctx, c, t, d, v, false)
	}
}

// fieldsOf are the fields of a head in which a stand-in could stand.
func fieldsOf(h head) secrets.Request {
	r := secrets.Request{Header: http.Header{}}
	for _, f := range h.fields {
		r.Names = append(r.Names, f.name)
		r.Header[f.key] = append(r.Header[f.key], f.value)
	}
	return r
}

func connectTarget(h head) (target, *refusal) {
	t, why := parseAuthority(h.target, 0)
	if why == nil && h.hosts > 0 && !agrees(h.host, t) {
		why = malformed("Host names another place than the target")
	}
	return t, why
}

// read serves the requests in a tunnel itself: TLS ends here. On port 80 they
// may come without TLS too, because some clients tunnel even plain HTTP; they
// are judged one by one like those that name their target. TLS that no rule
// wants to look into passes on port 80 as on any other.
func (s *serving) read(ctx context.Context, c *client, t target, d policy.Decision, v *pending) {
	if t.port == portHTTP {
		first, err := s.firstByte(c)
		switch {
		case err != nil:
			s.silent(ctx, c, t, err)
			return
		case first != recordHandshake:
			v.settle()
			in := newClient(c.Conn, c.link.inside(t, false))
			in.store, in.r, in.w = c.store, c.r, c.w
			s.serveFrom(ctx, in)
			return
		case !d.Inspect:
			s.tunnel(ctx, c, t, d, v, true)
			return
		}
	}
	name, err := s.readHello(c)
	if err == nil {
		err = checkName(name, t)
	}
	if err == nil {
		err = s.endTLS(ctx, c, c.link.inside(t, true))
	}
	if err != nil {
		s.silent(ctx, c, t, err)
	}
}

// silent records a tunnel that was allowed and then did not begin as it must.
// A client that connects and leaves without a byte has done nothing, and one
// that is cut off because its session ends has done nothing wrong.
func (s *serving) silent(ctx context.Context, c *client, t target, err error) {
	late := errors.Is(err, os.ErrDeadlineExceeded)
	if ctx.Err() != nil || len(c.buffered()) == 0 && !late {
		return
	}
	v := s.begin(c.link)
	v.about(t.host, t.port, http.MethodConnect, "")
	if late {
		err = fmt.Errorf("no TLS greeting came within %v; other protocols need a rule with protocol tcp", s.proxy.limits.hello)
	}
	v.deny(err.Error())
	reset(c.Conn)
}

// denyConnect answers a denied CONNECT so that whoever asked can read why.
func (s *serving) denyConnect(ctx context.Context, c *client, t target, v *pending, status int) {
	if t.port != portHTTPS {
		verdict := v.settle()
		answerConnect(c, status, denialPhrase(verdict), denialText(verdict))
		return
	}
	// The request will complete the verdict, but it must not be waited for long.
	// Whoever called settles it in any case.
	late := time.AfterFunc(s.proxy.limits.hello, func() { v.settle() })
	defer late.Stop()
	if _, err := io.WriteString(c, established); err != nil {
		return
	}
	if _, err := s.readHello(c); err != nil {
		return // nothing that could show a text is speaking
	}
	l := c.link.inside(t, true)
	l.denied, l.status = v, status
	if err := s.endTLS(ctx, c, l); err != nil {
		s.log.Debug("explaining a denial inside TLS", "host", t.host, "err", err)
	}
}

// answerConnect refuses a CONNECT. The phrase matters: npm, wget, urllib and
// Go show it, and hardly any client shows the body.
func answerConnect(w io.Writer, status int, phrase, text string) {
	if phrase == "" {
		phrase = http.StatusText(status)
	}
	fmt.Fprintf(w, "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", status, phrase, len(text), text)
}

// endTLS speaks TLS as the host itself and serves the requests inside. The
// greeting is still in the buffer of c.
func (s *serving) endTLS(ctx context.Context, c *client, l *link) error {
	conn := tls.Server(&replay{Conn: c.Conn, link: l, before: c.buffered()}, s.tls)
	shake, cancel := context.WithTimeout(ctx, s.proxy.limits.hello)
	defer cancel()
	if err := conn.HandshakeContext(shake); err != nil {
		return fmt.Errorf("the program did not go on with TLS under the session's authority: %w", err)
	}
	if conn.ConnectionState().NegotiatedProtocol == "h2" {
		s.serveHTTP2(conn, l)
	} else {
		s.serveFrom(ctx, newClient(conn, l))
	}
	return nil
}

// tunnel dials and carries bytes. With opened the client has its 200 already.
func (s *serving) tunnel(ctx context.Context, c *client, t target, d policy.Decision, v *pending, opened bool) {
	fail := func(err error) {
		why := Unreachable(t.host, err)
		s.log.Info("reaching a host", "host", t.host, "port", t.port, "err", err)
		v.fail(why)
		if !opened {
			answerConnect(c, http.StatusBadGateway, "Cannot reach the host: "+why, why+"\n")
		}
	}
	addrs, err := s.resolve(ctx, t, d.Addresses)
	if reason, blocked := blockedReason(err); blocked {
		v.blame(reason)
		if !opened {
			s.denyConnect(ctx, c, t, v, http.StatusForbidden)
		}
		return
	}
	if err != nil {
		fail(err)
		return
	}
	v.reached(addrs[0])
	up, err := s.dial(ctx, addrs, t.port, d.Addresses)
	if err != nil {
		fail(err)
		return
	}
	// A write that the other side does not read must end with the session too.
	stop := context.AfterFunc(ctx, func() { reset(up) })
	defer stop()
	// So must one to a host that a key is bound to by now: nothing of it is read.
	defer s.session.Keys.HoldUnread(t.host, t.port, func() { reset(up); reset(c.Conn) })()
	defer up.Close()
	if !opened {
		if _, err := io.WriteString(c, established); err != nil {
			return
		}
	}
	if !d.Raw {
		name, err := s.readHello(c)
		if err == nil {
			err = checkName(name, t)
		}
		if err != nil {
			s.silent(ctx, c, t, err)
			return
		}
	}
	s.relay(c, up, v)
}

func (s *serving) relay(c *client, up net.Conn, v *pending) {
	first := c.take()
	if len(first) > 0 {
		if _, err := up.Write(first); err != nil {
			reset(c.Conn)
			return
		}
	}
	tun := &tunnel{inside: c.Conn, outside: up, wait: s.proxy.limits.halfOpen}
	tun.up.Store(int64(len(first)))
	tun.run()
	if s.session.Ended == nil {
		return
	}
	ended := v.settle()
	ended.BytesUp, ended.BytesDown = tun.up.Load(), tun.down.Load()
	if a, ok := addrOf(up); ok {
		ended.Address = a
	}
	s.session.Ended(ended)
}

func addrOf(c net.Conn) (netip.Addr, bool) {
	ap, err := netip.ParseAddrPort(c.RemoteAddr().String())
	return ap.Addr().Unmap(), err == nil
}

// readHello reads a ClientHello into the buffer of c, where it stays.
func (s *serving) readHello(c *client) (string, error) {
	if err := c.SetReadDeadline(time.Now().Add(s.proxy.limits.hello)); err != nil {
		return "", err
	}
	for {
		name, need, err := parseHello(c.buffered())
		switch {
		case err != nil:
			return "", err
		case need == 0:
			return name, c.SetReadDeadline(time.Time{})
		case need > maxBuffer:
			return "", errNotTLS
		}
		for len(c.buffered()) < need {
			if err := c.fill(); err != nil {
				return "", err
			}
		}
	}
}

func (s *serving) firstByte(c *client) (byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(s.proxy.limits.hello)); err != nil {
		return 0, err
	}
	for len(c.buffered()) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	return c.buffered()[0], c.SetReadDeadline(time.Time{})
}

// checkName holds the name in a greeting to the name that was judged. Towards
// a literal address clients send none (RFC 6066 knows names only).
func checkName(name string, t target) error {
	if name == "" {
		if _, err := netip.ParseAddr(t.host); err == nil {
			return nil
		}
		return errors.New("the TLS greeting names no server")
	}
	got, err := policy.NormalHost(name)
	if err != nil {
		return errors.New("the TLS greeting names no server that exists")
	}
	if got != t.host {
		return fmt.Errorf("the TLS greeting names %s, not the host of the tunnel", got)
	}
	return nil
}

// errTooManyNames is a denial, not a failure.
var errTooManyNames = errors.New("too many names that were not asked for before, in one minute")

// resolve asks once for the name that was judged.
func (s *serving) resolve(ctx context.Context, t target, opened []netip.Prefix) ([]netip.Addr, error) {
	if _, err := netip.ParseAddr(t.host); err != nil && t.host != policy.HostService && !s.names.take(t.host, s.proxy.now()) {
		return nil, errTooManyNames
	}
	return s.proxy.Resolve(ctx, t.host, t.port, opened)
}

func (s *serving) dial(ctx context.Context, addrs []netip.Addr, port uint16, opened []netip.Prefix) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, s.proxy.limits.dial)
	defer cancel()
	return s.proxy.dial(ctx, addrs, port, opened)
}

// blockedReason tells what the guard refuses from what merely failed.
func blockedReason(err error) (string, bool) {
	var blocked *dialguard.BlockedError
	switch {
	case errors.As(err, &blocked):
		return blocked.Error(), true
	case errors.Is(err, errTooManyNames):
		return errTooManyNames.Error(), true
	}
	return "", false
}
