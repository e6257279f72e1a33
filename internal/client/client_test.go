package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// fake is a node of functions: what a test does not set is refused.
type fake struct {
	console.Node
	status func() (api.Status, error)
	run    func(ctx context.Context, c console.Caller, req api.RunRequest, s console.Stream) api.Ended
}

var errRefused = &api.Problem{Code: "no", Sentence: "not today", Hint: "tomorrow", Exit: 1}

func (f fake) Status(context.Context, console.Caller) (api.Status, error) {
	if f.status == nil {
		return api.Status{}, errRefused
	}
	return f.status()
}
func (f fake) Sessions(context.Context, console.Caller, bool) ([]api.Session, error) {
	return nil, errors.New("secret inner text")
}
func (f fake) Session(_ context.Context, _ console.Caller, id string) (api.Session, error) {
	return api.Session{ID: id}, nil
}
func (f fake) Stop(context.Context, console.Caller, string) error { return nil }
func (f fake) Shutdown(context.Context, console.Caller) error     { return nil }
func (f fake) Approval(_ context.Context, _ console.Caller, r api.ApprovalRequest) (api.Approval, error) {
	return api.Approval{Repository: r.Repository}, nil
}
func (f fake) Run(ctx context.Context, c console.Caller, req api.RunRequest, s console.Stream) api.Ended {
	return f.run(ctx, c, req, s)
}

// serve runs a node's socket until the test ends.
func serve(t *testing.T, n console.Node) (socket string) {
	t.Helper()
	dir, err := os.MkdirTemp("", "mj")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	socket = filepath.Join(dir, "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	srv := console.NewServer(console.Options{Node: n})
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(ln) }()
	t.Cleanup(func() {
		over, cancel := context.WithCancel(context.Background())
		cancel()
		srv.Shutdown(over)
		<-done
	})
	return socket
}

func TestQuestions(t *testing.T) {
	c := New(serve(t, fake{status: func() (api.Status, error) {
		return api.Status{Node: api.Node{Running: true, PID: 7}}, nil
	}}))
	s, err := c.Status(t.Context())
	if err != nil || s.Node.PID != 7 {
		t.Errorf("status: %+v, %v", s, err)
	}
	if got, err := c.Session(t.Context(), "../odd id"); err != nil || got.ID != "../odd id" {
		t.Errorf("an id must arrive as it is: %+v, %v", got, err)
	}
	if a, err := c.Approval(t.Context(), api.ApprovalRequest{Repository: "/r"}); err != nil || a.Repository != "/r" {
		t.Errorf("approval: %+v, %v", a, err)
	}
}

func TestRefusalsArriveAndInnerTextDoesNot(t *testing.T) {
	c := New(serve(t, fake{}))
	_, err := c.Status(t.Context())
	p, ok := errors.AsType[*api.Problem](err)
	if !ok || *p != *errRefused {
		t.Errorf("got %v, want the node's refusal", err)
	}
	_, err = c.Sessions(t.Context(), false)
	if err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("inner text reached the client: %v", err)
	}
}

// B99: whether a node runs is answered by its socket, and each way of not
// getting an answer is told apart.
func TestB99NoAnswer(t *testing.T) {
	dir := t.TempDir()
	if _, err := New(filepath.Join(dir, "absent")).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("no socket: %v", err)
	}
	dead := filepath.Join(dir, "dead")
	ln, err := net.Listen("unix", dead)
	if err != nil {
		t.Fatal(err)
	}
	ln.(*net.UnixListener).SetUnlinkOnClose(false)
	_ = ln.Close()
	if _, err := New(dead).Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("a dead node's socket: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	silent := filepath.Join(dir, "silent")
	if ln, err = net.Listen("unix", silent); err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	_, err = New(silent).Status(ctx)
	if _, ok := errors.AsType[*NoAnswerError](err); !ok || errors.Is(err, ErrNotRunning) {
		t.Errorf("a silent one: %v", err)
	}
}

// A node that root has for itself, or left a socket of, keeps nobody else from a
// node of their own: only a person's own socket that cannot be opened is an error.
func TestB99TheSystemSocketIsRootsAlone(t *testing.T) {
	closed := Over("/run/x/node.sock", func(context.Context) (net.Conn, error) {
		return nil, &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.EACCES)}
	})
	c := New(filepath.Join(t.TempDir(), "absent"))
	c.system = closed
	if _, err := c.Status(t.Context()); !errors.Is(err, ErrNotRunning) {
		t.Errorf("status: %v", err)
	}
	if _, err := c.Run(t.Context(), api.RunRequest{}, Streams{}); !errors.Is(err, ErrNotRunning) {
		t.Errorf("run: %v", err)
	}
	if err := c.Events(t.Context(), "x", false, nil); !errors.Is(err, ErrNotRunning) {
		t.Errorf("events: %v", err)
	}
	if why := c.Refused(t.Context()); !strings.Contains(why, "/run/x/node.sock") {
		t.Errorf("why is not said: %q", why)
	}
	if _, err := closed.Status(t.Context()); err == nil || errors.Is(err, ErrNotRunning) {
		t.Errorf("a socket that was asked for by name: %v", err)
	}
}

// T8: what a browser could be made to send is refused.
func TestForeignRequestsAreRefused(t *testing.T) {
	socket := serve(t, fake{status: func() (api.Status, error) { return api.Status{}, nil }})
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socket)
	}}}
	defer hc.CloseIdleConnections()
	for _, c := range []struct {
		name, host, header string
		want               int
	}{
		{"ours", console.Host, "", 200},
		{"another host", "127.0.0.1", "", 403},
		{"no host of ours", "localhost:7717", "", 403},
		{"an origin", console.Host, "Origin", 403},
		{"a referer", console.Host, "Referer", 403},
	} {
		req, err := http.NewRequestWithContext(t.Context(), "GET", "http://x/v1/status", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = c.host
		if c.header != "" {
			req.Header.Set(c.header, "http://evil.example")
		}
		resp, err := hc.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != c.want {
			t.Errorf("%s: %d, want %d", c.name, resp.StatusCode, c.want)
		}
	}
}

func TestStreamsAreCompleteAndApart(t *testing.T) {
	const size = 3 << 20
	sent := make([]byte, size)
	_, _ = rand.Read(sent)
	c := New(serve(t, fake{run: func(_ context.Context, _ console.Caller, req api.RunRequest, s console.Stream) api.Ended {
		_ = s.Started(api.Started{Session: api.Session{ID: "x", Command: req.Command}})
		s.Notice("a notice")
		got, _ := io.ReadAll(s.Stdin())
		_, _ = s.Stdout().Write(got)
		_, _ = s.Stderr().Write([]byte("err"))
		return api.Ended{Code: 9, Notices: []string{"bye"}}
	}}))
	var out, errs bytes.Buffer
	var notice, started string
	ended, err := c.Run(t.Context(), api.RunRequest{Command: []string{"c"}}, Streams{
		Stdin: bytes.NewReader(sent), Stdout: &out, Stderr: &errs,
		Notice: func(s string) { notice = s }, Started: func(s api.Started) { started = s.Session.ID },
	})
	if err != nil || ended.Code != 9 || len(ended.Notices) != 1 {
		t.Fatalf("ended %+v, %v", ended, err)
	}
	if !bytes.Equal(out.Bytes(), sent) || errs.String() != "err" || notice != "a notice" || started != "x" {
		t.Errorf("out %d bytes, err %q, notice %q, started %q", out.Len(), errs.String(), notice, started)
	}
}

// Signals, sizes and the client's going must arrive though nobody takes stdin.
func TestAsksAreNotStuckBehindInput(t *testing.T) {
	seen := make(chan any, 4)
	c := New(serve(t, fake{run: func(ctx context.Context, _ console.Caller, _ api.RunRequest, s console.Stream) api.Ended {
		_ = s.Started(api.Started{})
		seen <- <-s.Signals()
		seen <- <-s.Resizes()
		<-ctx.Done()
		seen <- "gone"
		return api.Ended{}
	}}))
	ctx, cancel := context.WithCancel(t.Context())
	signals, resizes := make(chan int, 1), make(chan api.Size, 1)
	over := make(chan error, 1)
	go func() {
		_, err := c.Run(ctx, api.RunRequest{}, Streams{
			Stdin: endless{}, Stdout: io.Discard, Stderr: io.Discard, Signals: signals, Resizes: resizes,
		})
		over <- err
	}()
	signals <- 15
	if got := <-seen; got != 15 {
		t.Errorf("signal %v", got)
	}
	resizes <- api.Size{Columns: 100, Rows: 30}
	if got := <-seen; got != (api.Size{Columns: 100, Rows: 30}) {
		t.Errorf("size %v", got)
	}
	cancel()
	if got := <-seen; got != "gone" {
		t.Errorf("after the client went: %v", got)
	}
	if err := <-over; !errors.Is(err, ErrLost) {
		t.Errorf("the client says %v", err)
	}
}

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestNodeThatDiesIsLost(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		conn, err := ln.Accept()
		if err != nil {
			return
		}
		var head [4096]byte
		_, _ = conn.Read(head[:])
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.Protocol+"\r\n\r\n")
		var buf []byte
		_, _, _ = api.ReadFrame(conn, &buf) // the request
		_ = api.WriteJSON(conn, api.FrameStarted, api.Started{})
		_ = conn.Close()
	}()
	_, err = New(socket).Run(t.Context(), api.RunRequest{}, Streams{Stdout: io.Discard, Stderr: io.Discard})
	if !errors.Is(err, ErrLost) {
		t.Errorf("got %v", err)
	}
}

// TestLookingAtASession: attach, further commands and the log reach the node
// as asked, and a node that goes meanwhile is told apart from an end.
func TestLookingAtASession(t *testing.T) {
	c := New(serve(t, looked{}))
	leave := make(chan struct{})
	var out bytes.Buffer
	ended, err := c.Attach(t.Context(), "a/b", api.AttachRequest{ReadOnly: true}, Streams{
		Stdin: strings.NewReader("typed"), Stdout: &out, Leave: leave, KeyboardOnly: true,
		Started: func(s api.Started) {
			if s.Session.ID != "a/b" {
				t.Errorf("attached to %q", s.Session.ID)
			}
			close(leave)
		},
	})
	if err != nil || !ended.Detached || out.String() != "before" {
		t.Errorf("attach: %+v, %v, saw %q", ended, err, out.String())
	}
	ended, err = c.Exec(t.Context(), "x", api.ExecRequest{Command: []string{"true"}}, Streams{})
	if err != nil || ended.Code != 4 {
		t.Errorf("exec: %+v, %v", ended, err)
	}
	var kinds []string
	if err := c.Events(t.Context(), "x", true, func(e api.Event) error { kinds = append(kinds, e.Kind); return nil }); err != nil || strings.Join(kinds, " ") != "state notice state" {
		t.Errorf("events: %v, %v", kinds, err)
	}
	var p *api.Problem
	if err := c.Events(t.Context(), "nobody", false, nil); !errors.As(err, &p) || p.Code != errRefused.Code {
		t.Errorf("events of nobody: %v", err)
	}
	var cut *NoAnswerError
	if err := c.Events(t.Context(), "cut", true, func(api.Event) error { return nil }); !errors.As(err, &cut) {
		t.Errorf("a log that is cut off: %v", err)
	}
}

// looked is a node with one session.
type looked struct{ fake }

func (looked) Attach(_ context.Context, _ console.Caller, id string, req api.AttachRequest, s console.Stream) api.Ended {
	_, _ = s.Stdout().Write([]byte("before"))
	_ = s.Started(api.Started{Session: api.Session{ID: id}})
	typed, _ := io.ReadAll(s.Stdin()) // ends when the client leaves
	<-s.Detached()
	return api.Ended{Detached: req.ReadOnly && len(typed) == 0}
}

func (looked) Exec(_ context.Context, _ console.Caller, _ string, req api.ExecRequest, s console.Stream) api.Ended {
	return api.Ended{Code: len(req.Command[0])}
}

func (looked) Events(_ context.Context, _ console.Caller, id string, follow bool, emit func([]api.Event) error) error {
	switch id {
	case "nobody":
		return errRefused
	case "cut":
		_ = emit([]api.Event{{Kind: "state"}})
		return errors.New("secret inner text")
	}
	if err := emit([]api.Event{{Kind: "state"}, {Kind: "notice"}}); err != nil {
		return err
	}
	return emit([]api.Event{{Kind: "state"}})
}
