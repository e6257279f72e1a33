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
	authority, err := leafcert.New("s", time.Now())
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
