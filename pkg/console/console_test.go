package console

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// only runs sessions; a test that asks it anything else is wrong and panics.
type only struct {
	Node
	run func(context.Context, Caller, api.RunRequest, Stream) api.Ended
}

func (o only) Run(ctx context.Context, c Caller, r api.RunRequest, s Stream) api.Ended {
	return o.run(ctx, c, r, s)
}
func (o only) Status(_ context.Context, c Caller) (api.Status, error) {
	return api.Status{Node: api.Node{Running: true, PID: c.UID}}, nil
}

// serve serves on a socket, and on a TCP port, which no node does.
func serve(t *testing.T, n Node, network string) (srv *Server, dial func() net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		dir, err := os.MkdirTemp("", "mj")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(dir) })
		address = filepath.Join(dir, "s")
	}
	ln, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	srv = NewServer(Options{Node: n})
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		srv.Shutdown(over)
		if err := <-done; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	return srv, func() net.Conn {
		conn, err := net.Dial(network, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
}

// TestOnlyOurClients: what a browser could have been made to send, a peer that
// the kernel does not name and unknown requests are refused, each with a
// problem in JSON and nothing that a page could use (T8).
func TestOnlyOurClients(t *testing.T) {
	const fine = "GET /v1/status HTTP/1.1\r\nHost: mojoup-node\r\n"
	for name, c := range map[string]struct {
		network, head string
		status        int
		code          string
	}{
		"ours":           {"unix", fine, 200, ""},
		"another host":   {"unix", "GET /v1/status HTTP/1.1\r\nHost: localhost\r\n", 403, "not-a-client"},
		"no host":        {"unix", "GET /v1/status HTTP/1.1\r\nHost:\r\n", 403, "not-a-client"},
		"an origin":      {"unix", fine + "Origin: http://evil.x.example\r\n", 403, "not-a-client"},
		"a null origin":  {"unix", fine + "Origin: null\r\n", 403, "not-a-client"},
		"a referer":      {"unix", fine + "Referer: http://mojoup-node/\r\n", 403, "not-a-client"},
		"over TCP":       {"tcp", fine, 403, "caller-unknown"},
		"unknown path":   {"unix", "GET /v2/status HTTP/1.1\r\nHost: mojoup-node\r\n", 404, "unknown-request"},
		"wrong method":   {"unix", "DELETE /v1/status HTTP/1.1\r\nHost: mojoup-node\r\n", 404, "unknown-request"},
		"other protocol": {"unix", "POST /v1/run HTTP/1.1\r\nHost: mojoup-node\r\nUpgrade: mojoup-session/9\r\nConnection: Upgrade\r\n", 400, "protocol"},
	} {
		t.Run(name, func(t *testing.T) {
			_, dial := serve(t, only{}, c.network)
			conn := dial()
			if _, err := io.WriteString(conn, c.head+"\r\n"); err != nil {
				t.Fatal(err)
			}
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatal(err)
			}
			body, _ := io.ReadAll(resp.Body)
			var p api.Problem
			if err := json.Unmarshal(body, &p); err != nil || resp.StatusCode != c.status || p.Code != c.code {
				t.Errorf("%d %s %v", resp.StatusCode, body, err)
			}
			if resp.Header.Get("X-Content-Type-Options") != "nosniff" || resp.Header.Get("Content-Security-Policy") != "default-src 'none'" {
				t.Errorf("headers %v", resp.Header)
			}
		})
	}
}

// upgrade begins a session by hand.
func upgrade(t *testing.T, conn net.Conn, first []byte) *bufio.Reader {
	t.Helper()
	_, err := io.WriteString(conn, "POST /v1/run HTTP/1.1\r\nHost: mojoup-node\r\nConnection: Upgrade\r\nUpgrade: "+api.Protocol+"\r\n\r\n")
	if err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	resp, err := http.ReadResponse(in, nil)
	if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("%v %v", resp, err)
	}
	if _, err := conn.Write(first); err != nil {
		t.Fatal(err)
	}
	return in
}

func frame(kind api.FrameKind, payload string) []byte {
	var b bytes.Buffer
	_ = api.WriteFrame(&b, kind, []byte(payload))
	return b.Bytes()
}

// A first frame that is no request is answered, and the node never hears of it.
func TestBadRequests(t *testing.T) {
	_, dial := serve(t, only{}, "unix")
	for _, first := range [][]byte{frame(api.FrameStdin, "x"), frame(api.FrameRun, "{"), frame(api.FrameRun, `{"command": 3}`), {'r', 255, 255, 255, 255}} {
		in := upgrade(t, dial(), first)
		var buf []byte
		kind, payload, err := api.ReadFrame(in, &buf)
		if err != nil || kind != api.FrameEnded || !strings.Contains(string(payload), `"bad-request"`) {
			t.Errorf("%q: %q %s %v", first, kind, payload, err)
		}
	}
}

// A client that sends more than its window, or an unknown frame, has gone.
func TestBrokenProtocolEndsTheSession(t *testing.T) {
	for name, frames := range map[string][]byte{
		"too much": bytes.Repeat(frame(api.FrameStdin, strings.Repeat("x", 64<<10)), 5),
		"unknown":  frame('?', ""),
		"too long": {'0', 255, 255, 255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			ended := make(chan struct{})
			_, dial := serve(t, only{run: func(ctx context.Context, _ Caller, _ api.RunRequest, _ Stream) api.Ended {
				<-ctx.Done()
				close(ended)
				return api.Ended{}
			}}, "unix")
			conn := dial()
			upgrade(t, conn, frame(api.FrameRun, "{}"))
			_, _ = conn.Write(frames)
			select {
			case <-ended:
			case <-time.After(2 * time.Minute):
				t.Error("the session does not end")
			}
		})
	}
}

// Shutdown waits until each session's client has been told its end; one that
// takes nothing is given up.
func TestShutdownTellsTheEnd(t *testing.T) {
	release := make(chan struct{})
	srv, dial := serve(t, only{run: func(_ context.Context, _ Caller, _ api.RunRequest, s Stream) api.Ended {
		<-release
		s.Hurry(2 * time.Second)
		_, _ = s.Stdout().Write(make([]byte, 8<<20))
		return api.Ended{Code: 7}
	}}, "unix")
	quick := upgrade(t, dial(), frame(api.FrameRun, "{}"))
	upgrade(t, dial(), frame(api.FrameRun, "{}")) // takes nothing
	told := make(chan string, 1)
	go func() {
		var buf []byte
		for {
			kind, payload, err := api.ReadFrame(quick, &buf)
			if err != nil || kind == api.FrameEnded {
				told <- string(payload)
				return
			}
		}
	}()
	close(release)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	begun := time.Now()
	srv.Shutdown(ctx)
	if took := time.Since(begun); took > time.Minute {
		t.Errorf("took %s", took)
	}
	if got := <-told; got != `{"code":7}` {
		t.Errorf("the client that listens was told %q", got)
	}
}

// TestAnswersAreNotEscaped: an answer is exact JSON and no longer than it must
// be. Of a thousand requests with & in them it would else be beyond what a
// client takes.
func TestAnswersAreNotEscaped(t *testing.T) {
	const text = "<&>\"\u2028\n"
	body, err := encode(api.Problem{Sentence: text})
	if err != nil {
		t.Fatal(err)
	}
	var back api.Problem
	if err := json.Unmarshal(body, &back); err != nil || back.Sentence != text {
		t.Errorf("%s comes back as %q, %v", body, back.Sentence, err)
	}
	if !bytes.Contains(body, []byte("<&>")) || bytes.Count(body, []byte("\n")) != 1 || !bytes.HasSuffix(body, []byte("\n")) {
		t.Errorf("%q", body)
	}
	if _, err := encode(func() {}); err == nil {
		t.Error("a function is encoded")
	}
}
