package bench

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress"
	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// Tunnels measures connections and round trips through the way out, policy and
// record included, beside a tunnel that does nothing but CONNECT.
func Tunnels(ctx context.Context, runs int) ([]Row, error) {
	echo, err := listen(echoes)
	if err != nil {
		return nil, err
	}
	defer echo.close()
	least, err := listen(leastTunnel)
	if err != nil {
		return nil, err
	}
	defer least.close()
	ours, err := ourTunnel(ctx, echo.ln.Addr())
	if err != nil {
		return nil, err
	}
	defer ours.close()
	target := echo.ln.Addr().String()
	newOf := func(t *server) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) { return newConnection(ctx, t, target) }
	}
	keptOf := func(t *server) func(context.Context) (time.Duration, error) {
		return func(ctx context.Context) (time.Duration, error) { return keptRoundTrips(ctx, t, target) }
	}
	return inTurn(ctx, runs, []measure{
		{"least tunnel, new connection", "", newOf(least)},
		{"our tunnel, new connection", "least tunnel, new connection", newOf(ours)},
		{"least tunnel, 100 round trips", "", keptOf(least)},
		{"our tunnel, 100 round trips", "least tunnel, 100 round trips", keptOf(ours)},
	})
}

// server is a loopback listener whose connections are waited for at its end.
type server struct {
	ln    net.Listener
	end   func()
	conns sync.WaitGroup
}

func (s *server) close() {
	_ = s.ln.Close()
	s.end()
	s.conns.Wait()
}

func listen(serve func(net.Conn)) (*server, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on loopback: %w", err)
	}
	s := &server{ln: ln, end: func() {}}
	s.conns.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			s.conns.Go(func() {
				defer conn.Close()
				serve(conn)
			})
		}
	})
	return s, nil
}

func echoes(conn net.Conn) { _, _ = io.Copy(conn, conn) }

// leastTunnel is as little as a CONNECT proxy can be.
func leastTunnel(conn net.Conn) {
	in := bufio.NewReader(conn)
	req, err := http.ReadRequest(in)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", req.Host)
	if err != nil {
		return
	}
	defer up.Close()
	if _, err := io.WriteString(conn, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(up, in)
		_ = up.Close()
	}()
	_, _ = io.Copy(conn, up)
}

// open allows everything as a rule for a database would: any bytes.
type open struct{ ranges []netip.Prefix }

func (o open) Decide(policy.Request) policy.Decision {
	return policy.Decision{Allowed: true, Raw: true, Addresses: o.ranges, Rule: "bench", Reason: "measured"}
}

func ourTunnel(ctx context.Context, target net.Addr) (*server, error) {
	loopback := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	proxy, err := egress.New(egress.Options{Private: loopback})
	if err != nil {
		return nil, err
	}
	ca, err := leafcert.New("bench")
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening on loopback: %w", err)
	}
	ctx, end := context.WithCancel(ctx)
	s := &server{ln: ln, end: end}
	s.conns.Go(func() {
		_ = proxy.Serve(ctx, ln, egress.Session{
			ID: "bench", CA: ca, Judge: func() egress.Judge { return open{loopback} }, Record: func(egress.Verdict) {},
		})
	})
	return s, nil
}

// connect opens a tunnel and sends one message through it.
func connect(ctx context.Context, t *server, target string) (net.Conn, *bufio.Reader, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", t.ln.Addr().String())
	if err != nil {
		return nil, nil, err
	}
	in := bufio.NewReader(conn)
	_, err = io.WriteString(conn, "CONNECT "+target+" HTTP/1.1\r\nHost: "+target+"\r\n\r\n")
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(in, &http.Request{Method: http.MethodConnect})
	}
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New("the tunnel answered " + resp.Status)
	}
	if err == nil {
		err = roundTrip(conn, in)
	}
	if err != nil {
		_ = conn.Close()
		return nil, nil, err
	}
	return conn, in, nil
}

func roundTrip(conn net.Conn, in io.Reader) error {
	var message, back [64]byte
	if _, err := conn.Write(message[:]); err != nil {
		return err
	}
	_, err := io.ReadFull(in, back[:])
	return err
}

func newConnection(ctx context.Context, t *server, target string) (time.Duration, error) {
	begun := time.Now()
	conn, _, err := connect(ctx, t, target)
	if err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took, conn.Close()
}

func keptRoundTrips(ctx context.Context, t *server, target string) (time.Duration, error) {
	conn, in, err := connect(ctx, t, target)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	begun := time.Now()
	for range 100 {
		if err := roundTrip(conn, in); err != nil {
			return 0, err
		}
	}
	return time.Since(begun), nil
}
