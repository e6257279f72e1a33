package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// memory is a listener without a network, so that a test's clock may jump.
type memory struct{ queue }

func newMemory() *memory {
	return &memory{queue{conns: make(chan net.Conn), done: make(chan struct{})}}
}

func (m *memory) dial() net.Conn {
	client, server := net.Pipe()
	m.conns <- server
	return client
}

// silentWorld serves a session on one memory listener and leads every dial to
// another, all within the bubble of the test.
func silentWorld(t *testing.T, judge Judge) (inside, outside *memory, end func()) {
	t.Helper()
	p, err := New(Options{Resolver: &resolver{answers: map[string][][]string{"api.x.example": {{publicAddr}}}}})
	if err != nil {
		t.Fatal(err)
	}
	inside, outside = newMemory(), newMemory()
	p.dial = func(context.Context, []netip.Addr, uint16, []netip.Prefix) (net.Conn, error) {
		return outside.dial(), nil
	}
	authority, err := leafcert.New("s")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- p.Serve(ctx, inside, Session{ID: "s", CA: authority, Judge: func() Judge { return judge }, Record: func(Verdict) {}})
	}()
	return inside, outside, func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestB29_EventStreamsSurviveSilence(t *testing.T) {
	for _, kind := range []string{"text/event-stream", ""} {
		synctest.Test(t, func(t *testing.T) {
			inside, outside, end := silentWorld(t, only("api.x.example", 80))
			silences := []time.Duration{150 * time.Second, 9*time.Minute + 50*time.Second, time.Hour}
			server := &http.Server{Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
				rw.Header()["Content-Type"] = nil
				if kind != "" {
					rw.Header().Set("Content-Type", kind)
				}
				for i := range len(silences) + 1 {
					fmt.Fprintf(rw, "data: event number %d .......\n\n", i)
					http.NewResponseController(rw).Flush()
					if i < len(silences) {
						<-time.After(silences[i])
					}
				}
			})}
			go server.Serve(outside)
			c := inside.dial()
			go io.WriteString(c, "GET http://api.x.example/ HTTP/1.1\r\nHost: api.x.example\r\n\r\n")
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			var due time.Duration
			for i := range len(silences) + 1 {
				buf := make([]byte, len("data: event number 0 .......\n\n"))
				if _, err := io.ReadFull(res.Body, buf); err != nil {
					t.Fatalf("event %d: %v", i, err)
				}
				if late := time.Since(start) - due; late > time.Second {
					t.Errorf("event %d came %v late", i, late)
				}
				if i < len(silences) {
					due += silences[i]
				}
			}
			c.Close()
			end()
			server.Close()
		})
	}
}

func TestB29_TunnelsSurviveSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		raw := judgeFunc(func(policy.Request) policy.Decision { return policy.Decision{Allowed: true, Raw: true} })
		inside, outside, end := silentWorld(t, raw)
		c := inside.dial()
		go io.WriteString(c, "CONNECT api.x.example:9000 HTTP/1.1\r\n\r\n")
		var up net.Conn
		go func() { up, _ = outside.Accept() }()
		if _, err := io.ReadFull(c, make([]byte, len(established))); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, silence := range []time.Duration{0, 150 * time.Second, 24 * time.Hour} {
			<-time.After(silence)
			go io.WriteString(up, "x")
			if _, err := io.ReadFull(c, make([]byte, 1)); err != nil {
				t.Fatalf("after %v: %v", silence, err)
			}
		}
		c.Close()
		end()
		up.Close()
	})
}

// duplex is a connection of two pipes, so that one direction can end alone.
type duplex struct{ in, out net.Conn }

func newDuplex() (a, b *duplex) {
	r1, w1 := net.Pipe()
	r2, w2 := net.Pipe()
	return &duplex{r1, w2}, &duplex{r2, w1}
}

func (d *duplex) Read(p []byte) (int, error)         { return d.in.Read(p) }
func (d *duplex) Write(p []byte) (int, error)        { return d.out.Write(p) }
func (d *duplex) CloseWrite() error                  { return d.out.Close() }
func (d *duplex) SetReadDeadline(t time.Time) error  { return d.in.SetReadDeadline(t) }
func (d *duplex) SetWriteDeadline(t time.Time) error { return d.out.SetWriteDeadline(t) }
func (d *duplex) SetDeadline(t time.Time) error      { return d.in.SetDeadline(t) }
func (d *duplex) LocalAddr() net.Addr                { return d.in.LocalAddr() }
func (d *duplex) RemoteAddr() net.Addr               { return d.in.RemoteAddr() }

func (d *duplex) Close() error {
	d.in.Close()
	return d.out.Close()
}

// Once one side has ended, the other may talk as long as it wants, but not be
// silent for ever.
func TestB29_HalfOpenTunnelsLiveByTalking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		program, inside := newDuplex()
		outside, host := newDuplex()
		tun := &tunnel{inside: inside, outside: outside, wait: defaultLimits().halfOpen}
		done := make(chan bool)
		go func() { tun.run(); close(done) }()
		program.CloseWrite()
		if _, err := host.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the end is not passed on: %v", err)
		}
		for range 10 {
			<-time.After(tun.wait - time.Minute)
			go io.WriteString(host, "x")
			if _, err := program.Read(make([]byte, 1)); err != nil {
				t.Fatal(err)
			}
		}
		start := time.Now()
		<-done
		if took := time.Since(start); took != tun.wait {
			t.Errorf("ended after %v of silence, want %v", took, tun.wait)
		}
	})
}

// A client that begins and does not go on is let go, without a real wait.
func TestUnfinishedHeadsAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inside, _, end := silentWorld(t, only("api.x.example", 80))
		c := inside.dial()
		start := time.Now()
		go io.WriteString(c, "GET http://api.x.example/ HT")
		if _, err := io.ReadAll(c); err != nil {
			t.Error(err)
		}
		if took := time.Since(start); took != defaultLimits().head {
			t.Errorf("let go after %v", took)
		}
		end()
	})
}
