package client

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"syscall"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Streams are a client's end of a session.
type Streams struct {
	Stdin          io.Reader // nil: end of file at once
	Stdout, Stderr io.Writer
	Resizes        <-chan api.Size // nil without a terminal
	Signals        <-chan int      // nil: none are forwarded
	Notice         func(string)    // one line for the person
	Started        func(api.Started)
	// Leave, once closed, tells the node that the client leaves; nil: never.
	Leave <-chan struct{}
	// KeyboardOnly sends Stdin to a session that has a terminal only: another
	// one would not take it from a client who only looks.
	KeyboardOnly bool
}

// ErrLost says that the node went away while the session ran.
var ErrLost = errors.New("the node ended while the session ran")

// Run asks for one session and carries its streams until it has ended. The
// reader of stdin may stay blocked after the end; it is the process's own.
func (c *Client) Run(ctx context.Context, req api.RunRequest, s Streams) (api.Ended, error) {
	return c.session(ctx, "run", api.FrameRun, req, s)
}

// session asks by the first frame and carries streams until the last one.
func (c *Client) session(ctx context.Context, path string, first api.FrameKind, req any, s Streams) (api.Ended, error) {
	ended, err := c.ownSession(ctx, path, first, req, s)
	if c.notHere(err) {
		ended, err = c.system.ownSession(ctx, path, first, req, s)
		err = ofSystem(err)
	}
	return ended, err
}

func (c *Client) ownSession(ctx context.Context, path string, first api.FrameKind, req any, s Streams) (api.Ended, error) {
	conn, in, err := c.upgrade(ctx, path)
	if err != nil {
		return api.Ended{}, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l := &link{conn: conn, window: newWindow(api.StdinWindow)}
	defer l.window.close()
	if err := l.writeJSON(first, req); err != nil {
		return api.Ended{}, &NoAnswerError{Socket: c.socket, Err: err}
	}
	done := make(chan struct{})
	defer close(done)
	return l.carry(in, s, done)
}

func (c *Client) upgrade(ctx context.Context, path string) (net.Conn, *bufio.Reader, error) {
	conn, err := c.dial(ctx)
	if err != nil {
		return nil, nil, err
	}
	head := "POST /" + api.Version + "/" + path + " HTTP/1.1\r\nHost: " + console.Host + "\r\nConnection: Upgrade\r\nUpgrade: " + api.Protocol + "\r\n\r\n"
	in := bufio.NewReaderSize(conn, 64<<10)
	_, err = io.WriteString(conn, head)
	var resp *http.Response
	if err == nil {
		resp, err = http.ReadResponse(in, nil)
	}
	if err != nil {
		_ = conn.Close()
		if closed(err) {
			return nil, nil, ErrEnding
		}
		return nil, nil, &NoAnswerError{Socket: c.socket, Err: err}
	}
	if resp.StatusCode != http.StatusSwitchingProtocols {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		_ = conn.Close()
		if err := c.read(resp.StatusCode, body, nil); err != nil {
			return nil, nil, err
		}
		return nil, nil, &NoAnswerError{Socket: c.socket, Err: fmt.Errorf("it answered %s where it should have taken the connection over", resp.Status)}
	}
	return conn, in, nil
}

func closed(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// link is the connection of one session.
type link struct {
	conn   net.Conn
	window *window

	mu sync.Mutex // guards writes: frames are whole
}

func (l *link) write(kind api.FrameKind, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return api.WriteFrame(l.conn, kind, p)
}

func (l *link) writeJSON(kind api.FrameKind, v any) error {
	p, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encoding frame %q: %w", kind, err)
	}
	return l.write(kind, p)
}

// carry reads the node's frames until the last one. Stdin is sent only once the
// session runs, because before that nobody takes it. Sizes and signals are sent
// from the beginning: who waits for a slot may want to wait no longer.
func (l *link) carry(in io.Reader, s Streams, done <-chan struct{}) (api.Ended, error) {
	go l.sendAsks(s, done)
	var buf []byte
	for {
		kind, p, err := api.ReadFrame(in, &buf)
		if err != nil {
			return api.Ended{}, ErrLost
		}
		switch kind {
		case api.FrameStarted:
			var v api.Started
			if err := json.Unmarshal(p, &v); err != nil {
				return api.Ended{}, fmt.Errorf("reading the node's answer: %w", err)
			}
			if s.Started != nil {
				s.Started(v)
			}
			if v.Terminal || !s.KeyboardOnly {
				go l.sendStdin(s.Stdin)
			}
		case api.FrameNotice:
			if s.Notice != nil {
				s.Notice(string(p))
			}
		case api.FrameStdout, api.FrameStderr:
			w := s.Stdout
			if kind == api.FrameStderr {
				w = s.Stderr
			}
			if _, err := w.Write(p); err != nil {
				return api.Ended{}, fmt.Errorf("writing the command's output: %w", err)
			}
		case api.FrameCredit:
			if len(p) == 4 {
				l.window.give(int(binary.BigEndian.Uint32(p)))
			}
		case api.FrameEnded:
			var v api.Ended
			if err := json.Unmarshal(p, &v); err != nil {
				return api.Ended{}, fmt.Errorf("reading the node's answer: %w", err)
			}
			return v, nil
		}
	}
}

// sendStdin never has more under way than the node gave credit for.
func (l *link) sendStdin(r io.Reader) {
	if r == nil {
		_ = l.write(api.FrameStdin, nil)
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := r.Read(buf)
		if !l.sendAll(buf[:n]) {
			return
		}
		if err != nil {
			_ = l.write(api.FrameStdin, nil)
			return
		}
	}
}

func (l *link) sendAll(p []byte) bool {
	for len(p) > 0 {
		n := l.window.take(len(p))
		if n == 0 || l.write(api.FrameStdin, p[:n]) != nil {
			return false
		}
		p = p[n:]
	}
	return true
}

func (l *link) sendAsks(s Streams, done <-chan struct{}) {
	for {
		select {
		case size, ok := <-s.Resizes:
			if !ok || l.writeJSON(api.FrameResize, size) != nil {
				return
			}
		case n, ok := <-s.Signals:
			if !ok || l.write(api.FrameSignal, []byte{byte(n)}) != nil {
				return
			}
		case <-s.Leave:
			_ = l.write(api.FrameDetach, nil)
			return
		case <-done:
			return
		}
	}
}

// window counts the bytes of stdin that may still be sent.
type window struct {
	mu     sync.Mutex // guards what follows
	more   sync.Cond
	left   int
	closed bool
}

func newWindow(n int) *window {
	w := &window{left: n}
	w.more.L = &w.mu
	return w
}

func (w *window) give(n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left += n
	w.more.Broadcast()
}

func (w *window) close() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.closed = true
	w.more.Broadcast()
}

// take waits until something may be sent and takes at most n of it; 0 means
// that the session is over.
func (w *window) take(n int) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.left == 0 && !w.closed {
		w.more.Wait()
	}
	if w.closed {
		return 0
	}
	n = min(n, w.left)
	w.left -= n
	return n
}
