package egress

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/internal/egress/leafcert"
	"github.com/mojoup/mojoup-node/pkg/policy"
)

// leastProxy is the smallest CONNECT tunnel that Go allows: no policy, no
// record, no strictness. It is the floor that ours is held against.
func leastProxy(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go least(c)
		}
	}()
	return ln.Addr().String()
}

func least(c net.Conn) {
	defer c.Close()
	br := bufio.NewReader(c)
	r, err := http.ReadRequest(br)
	if err != nil {
		return
	}
	up, err := net.Dial("tcp", r.Host)
	if err != nil {
		return
	}
	defer up.Close()
	io.WriteString(c, established)
	go func() {
		io.Copy(up, br)
		up.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, up)
}

// ourProxy is the real one, with the real guard and dialer.
func ourProxy(b *testing.B) string {
	opened := []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
	p, err := New(Options{Private: opened})
	if err != nil {
		b.Fatal(err)
	}
	authority, err := leafcert.New("bench")
	if err != nil {
		b.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	judge := judgeFunc(func(policy.Request) policy.Decision {
		return policy.Decision{Allowed: true, Raw: true, Addresses: opened, Rule: "bench"}
	})
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- p.Serve(ctx, ln, Session{ID: "bench", CA: authority, Judge: func() Judge { return judge }, Record: func(Verdict) {}})
	}()
	b.Cleanup(func() {
		cancel()
		<-done
	})
	return ln.Addr().String()
}

func echoServer(b *testing.B) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				buf := make([]byte, 64)
				for {
					if _, err := io.ReadFull(c, buf); err != nil {
						return
					}
					if _, err := c.Write(buf); err != nil {
						return
					}
				}
			}()
		}
	}()
	return ln.Addr().String()
}

func open(b *testing.B, proxy, target string) net.Conn {
	c, err := net.Dial("tcp", proxy)
	if err != nil {
		b.Fatal(err)
	}
	fmt.Fprintf(c, "CONNECT %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, target)
	if _, err := io.ReadFull(c, make([]byte, len(established))); err != nil {
		b.Fatal(err)
	}
	return c
}

func ping(b *testing.B, c net.Conn, buf []byte) {
	if _, err := c.Write(buf); err != nil {
		b.Fatal(err)
	}
	if _, err := io.ReadFull(c, buf); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkTunnel compares a new connection with its first round trip, and a
// round trip on a kept one, of the real proxy and of the least one. The two
// take turns, so that a busy machine slows both, and the medians are compared:
// ours/least is the figure to look at.
func BenchmarkTunnel(b *testing.B) {
	target := echoServer(b)
	buf := make([]byte, 64)
	b.Run("new", func(b *testing.B) {
		compare(b, func(proxy string) (func(), func()) {
			return func() {
				c := open(b, proxy, target)
				ping(b, c, buf)
				c.Close()
			}, func() {}
		})
	})
	b.Run("kept", func(b *testing.B) {
		compare(b, func(proxy string) (func(), func()) {
			c := open(b, proxy, target)
			return func() { ping(b, c, buf) }, func() { c.Close() }
		})
	})
}

func compare(b *testing.B, prepare func(proxy string) (once, end func())) {
	ours, endOurs := prepare(ourProxy(b))
	defer endOurs()
	floor, endFloor := prepare(leastProxy(b))
	defer endFloor()
	var a, z []time.Duration
	timed := func(f func()) time.Duration {
		start := time.Now()
		f()
		return time.Since(start)
	}
	for b.Loop() {
		a, z = append(a, timed(ours)), append(z, timed(floor))
	}
	slices.Sort(a)
	slices.Sort(z)
	mine, least := a[len(a)/2], z[len(z)/2]
	b.ReportMetric(float64(mine.Microseconds()), "us/ours")
	b.ReportMetric(float64(least.Microseconds()), "us/least")
	b.ReportMetric(float64(mine)/float64(least), "ours/least")
}
