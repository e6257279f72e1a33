package inlet

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var loopbackAddr = netip.MustParseAddr("127.0.0.1")

func listen(t *testing.T, o Options) (*Listener, <-chan Refusal) {
	t.Helper()
	said := make(chan Refusal, 64)
	o.Address, o.Refused = loopbackAddr, func(r Refusal) { said <- r }
	l, err := Listen(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l, said
}

func dial(t *testing.T, l *Listener) net.Conn {
	t.Helper()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(2 * time.Minute))
	return c
}

func send(t *testing.T, c net.Conn, p Preamble, rest string) {
	t.Helper()
	raw := p.Encode()
	if _, err := c.Write(append(raw[:], rest...)); err != nil {
		t.Fatal(err)
	}
}

func TestH11_TheTokenLetsIn(t *testing.T) {
	l, said := listen(t, Options{})
	l.Admit(loopbackAddr)
	c := dial(t, l)
	send(t, c, Preamble{Token: l.Token(), PID: 7, Program: "curl"}, "GET /")
	got, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if _, ok := got.(*net.TCPConn); !ok {
		t.Errorf("%T: bytes cannot be carried by the kernel", got)
	}
	first := make([]byte, 5)
	if _, err := io.ReadFull(got, first); err != nil || string(first) != "GET /" {
		t.Errorf("after the preamble: %q, %v", first, err)
	}
	if pid, name, ok := l.WhoAsked(got.RemoteAddr()); pid != 7 || name != "curl" || !ok {
		t.Errorf("asked by %d %q %v", pid, name, ok)
	}
	if _, _, ok := l.WhoAsked(got.RemoteAddr()); ok {
		t.Error("who asked is remembered for ever")
	}
	select {
	case r := <-said:
		t.Errorf("refused: %+v", r)
	default:
	}
}

// TestH11_WithoutTheTokenNothingIsSaid tries what somebody may send, and wants
// the same short answer for all of it.
func TestH11_WithoutTheTokenNothingIsSaid(t *testing.T) {
	for name, say := range map[string]func(l *Listener) string{
		"another token": func(l *Listener) string { raw := (Preamble{}).Encode(); return string(raw[:]) },
		"almost": func(l *Listener) string {
			token := l.Token()
			token[TokenSize-1] ^= 1
			raw := (Preamble{Token: token}).Encode()
			return string(raw[:])
		},
		"http": func(*Listener) string {
			return "CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n" + strings.Repeat("x", PreambleSize)
		},
		"other version": func(l *Listener) string {
			raw := (Preamble{Token: l.Token()}).Encode()
			return "mojoup9\n" + string(raw[8:])
		},
		"long name": func(l *Listener) string {
			raw := (Preamble{Token: l.Token()}).Encode()
			raw[8+TokenSize+4] = 200
			return string(raw[:])
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, said := listen(t, Options{})
			l.Admit(loopbackAddr)
			c := dial(t, l)
			if _, err := io.WriteString(c, say(l)); err != nil {
				t.Fatal(err)
			}
			answer, _ := io.ReadAll(c)
			if want := "HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"; string(answer) != want {
				t.Errorf("answered %q", answer)
			}
			if r := <-said; r.Peer != loopbackAddr || r.Reason == "" || r.Closed {
				t.Errorf("recorded as %+v", r)
			}
		})
	}
}

func TestH12_ThreeFailuresCloseThePeer(t *testing.T) {
	l, said := listen(t, Options{})
	l.Admit(loopbackAddr)
	for i := range failures {
		c := dial(t, l)
		send(t, c, Preamble{}, "")
		_, _ = io.ReadAll(c)
		if r := <-said; r.Closed != (i == failures-1) {
			t.Errorf("failure %d: %+v", i+1, r)
		}
	}
	c := dial(t, l)
	send(t, c, Preamble{Token: l.Token()}, "")
	if answer, _ := io.ReadAll(c); len(answer) != 0 {
		t.Errorf("answered again: %q", answer)
	}
	if r := <-said; r.Reason != "it was wrong too often" {
		t.Errorf("recorded as %+v", r)
	}
	if runtime.GOOS != "linux" {
		return
	}
	// Behind a loopback address another user is another peer.
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.wrong[peer{loopbackAddr, os.Geteuid()}] != failures || len(l.wrong) != 1 {
		t.Errorf("counted %v", l.wrong)
	}
}

func TestH12_StrangersAreNotEvenAsked(t *testing.T) {
	l, said := listen(t, Options{})
	for _, admitted := range [][]netip.Addr{nil, {netip.MustParseAddr("192.0.2.1")}} {
		l.Admit(admitted...)
		c := dial(t, l)
		send(t, c, Preamble{Token: l.Token()}, "")
		if answer, _ := io.ReadAll(c); len(answer) != 0 {
			t.Errorf("answered %q", answer)
		}
		if r := <-said; r.Reason != "it is not the session's sandbox" || r.Closed {
			t.Errorf("recorded as %+v", r)
		}
	}
}

func TestSilenceIsAFailure(t *testing.T) {
	l, said := listen(t, Options{Within: 10 * time.Millisecond})
	l.Admit(loopbackAddr)
	c := dial(t, l)
	_, _ = io.ReadAll(c)
	if r := <-said; r.Reason != "it did not say who it is" {
		t.Errorf("recorded as %+v", r)
	}
}

// TestClosedIsDead wants that Close ends connections that nobody accepted, and
// leaves no goroutine.
func TestClosedIsDead(t *testing.T) {
	before := runtime.NumGoroutine()
	l, _ := listen(t, Options{})
	l.Admit(loopbackAddr)
	silent, good := dial(t, l), dial(t, l)
	send(t, good, Preamble{Token: l.Token()}, "")
	for { // until both are held
		l.mu.Lock()
		n := len(l.pending)
		l.mu.Unlock()
		if n == 2 {
			break
		}
		runtime.Gosched()
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
	for _, c := range []net.Conn{silent, good} {
		if _, err := io.ReadAll(c); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error("a connection lives on")
		}
	}
	if _, err := l.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("Accept: %v", err)
	}
	if _, err := net.Dial("tcp", l.Addr().String()); err == nil {
		t.Error("it still listens")
	}
	// Who has said that it is done still needs a moment to end.
	due := time.Now().Add(2 * time.Minute)
	for runtime.NumGoroutine() > before && time.Now().Before(due) {
		runtime.Gosched()
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines before, %d after", before, n)
	}
}

func TestEveryAddressIsRefused(t *testing.T) {
	for _, a := range []netip.Addr{{}, netip.IPv4Unspecified(), netip.IPv6Unspecified()} {
		if l, err := Listen(Options{Address: a}); err == nil {
			_ = l.Close()
			t.Errorf("listens on %v", a)
		}
	}
}

func TestTokensAreNotShown(t *testing.T) {
	token := Token{1, 2, 3}
	if s := token.String() + token.GoString(); strings.Contains(s, "1") || strings.Contains(s, token.Hex()) {
		t.Errorf("shown as %q", s)
	}
}

func TestConfigRoundTrips(t *testing.T) {
	want := Config{Proxy: "http://10.200.0.1:3128", Target: "host.example:4711", Token: Token{9}, Listen: "127.0.0.1:3128",
		Direct: []Direct{{"127.0.1.1:5432", "db.example:5432"}, {"[::1]:22", "[2001:db8::1]:22"}}}
	got, err := ParseConfig(string(want.Encode()))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b Token) bool { return a == b })); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	good := string(want.Encode())
	for name, bad := range map[string]string{
		"empty": "", "twice": good + "proxy http://a:1\n", "unknown": good + "exec /bin/sh\n", "blank line": good + "\n",
		"no token":      strings.Replace(good, "token ", "tokens ", 1),
		"short token":   strings.Replace(good, want.Token.Hex(), "00", 1),
		"https":         strings.Replace(good, "http://", "https://", 1),
		"proxy path":    strings.Replace(good, ":3128\n", ":3128/x\n", 1),
		"not loopback":  strings.Replace(good, "127.0.0.1:3128", "0.0.0.0:3128", 1),
		"no port":       strings.Replace(good, "host.example:4711", "host.example", 1),
		"direct nobody": good + "direct 127.0.1.2:80\n",
		"direct wide":   good + "direct 192.0.2.1:80 a:1\n",
	} {
		if c, err := ParseConfig(bad); err == nil {
			t.Errorf("%s: accepted as %+v", name, c)
		}
	}
}

func FuzzDecode(f *testing.F) {
	raw := (Preamble{Token: Token{1}, PID: 5, Program: "node"}).Encode()
	f.Add(raw[:])
	f.Fuzz(func(t *testing.T, b []byte) {
		var raw [PreambleSize]byte
		copy(raw[:], b)
		p, err := Decode(raw)
		if err != nil {
			if p != (Preamble{}) && p.Program != "" {
				t.Errorf("an error and %+v", p)
			}
			return
		}
		again, err := Decode(p.Encode())
		if err != nil || again != p {
			t.Errorf("%+v became %+v, %v", p, again, err)
		}
	})
}

func FuzzParseConfig(f *testing.F) {
	f.Add(string(Config{Proxy: "http://a:1", Target: "b:2", Listen: "127.0.0.1:3", Direct: []Direct{{"127.0.1.1:4", "c:5"}}}.Encode()))
	f.Fuzz(func(t *testing.T, text string) {
		c, err := ParseConfig(text)
		if err != nil {
			return
		}
		again, err := ParseConfig(string(c.Encode()))
		if err != nil || !cmp.Equal(c, again, cmp.Comparer(func(a, b Token) bool { return a == b })) {
			t.Errorf("%+v became %+v, %v", c, again, err)
		}
	})
}
