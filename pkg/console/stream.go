package console

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Stream is the client's end of one session: its terminal, or its three
// streams, and what it asks meanwhile.
type Stream interface {
	// Started tells that the session has a name and runs.
	Started(api.Started) error
	// Notice shows one line to the person.
	Notice(string)
	// Stdin yields what the client types; io.EOF at its end of file. Closing
	// it ends a read that waits.
	Stdin() io.ReadCloser
	Stdout() io.Writer
	Stderr() io.Writer
	// Hurry bounds how long writes may still wait for a client that takes
	// nothing, those under way included. Later ones then fail.
	Hurry(within time.Duration)
	// Resizes and Signals are what the client's terminal and its person ask.
	Resizes() <-chan api.Size
	Signals() <-chan int
	// Detached is closed when the client says that it leaves. Its stdin ends
	// after what it has typed before.
	Detached() <-chan struct{}
}

// upgraded answers a request by frames: the connection is upgraded, the first
// frame holds what is asked for, and serve's answer is the last one. The
// context of serve is that of the connection.
func upgraded[R any](h handler, first api.FrameKind, serve func(ctx context.Context, c Caller, id string, req R, s Stream) api.Ended) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		h.frames(w, r, func(ctx context.Context, c Caller, s *stream) (func() api.Ended, error) {
			req, err := firstFrame[R](s, first)
			return func() api.Ended { return serve(ctx, c, r.PathValue("id"), req, s) }, err
		})
	}
}

// frames upgrades the connection, has the request read by prepare and carries
// what that returns.
func (h handler) frames(w http.ResponseWriter, r *http.Request, prepare func(context.Context, Caller, *stream) (func() api.Ended, error)) {
	caller := r.Context().Value(callerKey{}).(Caller)
	if r.Header.Get("Upgrade") != api.Protocol {
		h.refuse(w, &api.Problem{Code: "protocol", Sentence: "this node speaks " + api.Protocol + " here", Exit: 2,
			Hint: "client and node may be of different versions"})
		return
	}
	conn, rw, err := http.NewResponseController(w).Hijack()
	if err != nil {
		h.refuse(w, err)
		return
	}
	defer conn.Close()
	if !h.carried.add(conn) {
		return
	}
	defer h.carried.remove(conn)
	if _, err := io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: "+api.Protocol+"\r\n\r\n"); err != nil {
		return
	}
	s := newStream(conn, rw.Reader)
	// The request's own context ends with the handler; the session's must end
	// when the client goes, which only reading finds out.
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	defer cancel()
	carry, err := prepare(ctx, caller, s)
	if err != nil {
		s.end(api.Ended{Code: 2, Problem: &api.Problem{Code: "bad-request", Sentence: "the client's request could not be read", Exit: 2}})
		return
	}
	var reader sync.WaitGroup
	reader.Go(func() {
		defer cancel()
		s.read()
	})
	s.end(carry())
	cancel()
	_ = conn.Close()
	reader.Wait()
}

type stream struct {
	conn    net.Conn
	in      *bufio.Reader
	stdin   *inbox
	resizes chan api.Size
	signals chan int
	left    chan struct{}
	hurried atomic.Bool

	mu   sync.Mutex // guards writes to conn: frames are whole
	torn bool       // a frame was cut off: nothing after it could be read
}

func newStream(conn net.Conn, in *bufio.Reader) *stream {
	s := &stream{conn: conn, in: in, resizes: make(chan api.Size, 1), signals: make(chan int, 16), left: make(chan struct{})}
	s.stdin = newInbox(s.credit)
	return s
}

func firstFrame[R any](s *stream, want api.FrameKind) (R, error) {
	var req R
	var buf []byte
	kind, payload, err := api.ReadFrame(s.in, &buf)
	if err != nil {
		return req, err
	}
	if kind != want {
		return req, errors.New("first frame is not the request")
	}
	return req, json.Unmarshal(payload, &req)
}

// read carries the client's frames until it closes or breaks the protocol.
func (s *stream) read() {
	defer s.stdin.finish()
	leaving := false
	var buf []byte
	for {
		kind, payload, err := api.ReadFrame(s.in, &buf)
		if err != nil {
			return
		}
		switch kind {
		case api.FrameStdin:
			if !s.stdin.put(payload) {
				return // more than its window: not a client of ours
			}
		case api.FrameResize:
			var size api.Size
			if json.Unmarshal(payload, &size) == nil {
				s.resize(size)
			}
		case api.FrameSignal:
			if len(payload) == 1 {
				select {
				case s.signals <- int(payload[0]):
				default: // sixteen unanswered signals: the session is ending anyway
				}
			}
		case api.FrameDetach:
			if !leaving {
				leaving = true
				s.stdin.finish() // what is held is still typed
				close(s.left)
			}
		default:
			return
		}
	}
}

// credit tells the client that n more bytes of stdin may come.
func (s *stream) credit(n int) {
	_ = s.write(api.FrameCredit, binary.BigEndian.AppendUint32(nil, uint32(n)))
}

// resize keeps only the newest size.
func (s *stream) resize(size api.Size) {
	for {
		select {
		case s.resizes <- size:
			return
		default:
		}
		select {
		case <-s.resizes:
		default:
		}
	}
}

func (s *stream) Started(v api.Started) error { return s.writeJSON(api.FrameStarted, v) }
func (s *stream) Notice(line string)          { _ = s.write(api.FrameNotice, []byte(line)) }
func (s *stream) Stdin() io.ReadCloser        { return s.stdin }
func (s *stream) Stdout() io.Writer           { return frameWriter{s, api.FrameStdout} }
func (s *stream) Stderr() io.Writer           { return frameWriter{s, api.FrameStderr} }
func (s *stream) Resizes() <-chan api.Size    { return s.resizes }
func (s *stream) Signals() <-chan int         { return s.signals }
func (s *stream) Detached() <-chan struct{}   { return s.left }

// lastWord is how long the end of a session may wait for a client that had
// been told to hurry.
const lastWord = 2 * time.Second

func (s *stream) Hurry(within time.Duration) {
	s.hurried.Store(true)
	_ = s.conn.SetWriteDeadline(time.Now().Add(within))
}

func (s *stream) end(e api.Ended) {
	if s.hurried.Load() {
		_ = s.conn.SetWriteDeadline(time.Now().Add(lastWord))
	}
	_ = s.writeJSON(api.FrameEnded, e)
}

func (s *stream) writeJSON(kind api.FrameKind, v any) error {
	payload, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.write(kind, payload)
}

func (s *stream) write(kind api.FrameKind, payload []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.torn {
		return net.ErrClosed
	}
	whole := wholeWriter{w: s.conn}
	err := api.WriteFrame(&whole, kind, payload)
	s.torn = err != nil && whole.began
	return err
}

// wholeWriter notes whether any of what was written went out.
type wholeWriter struct {
	w     io.Writer
	began bool
}

func (w *wholeWriter) Write(p []byte) (int, error) {
	n, err := w.w.Write(p)
	w.began = n > 0
	return n, err
}

type frameWriter struct {
	s    *stream
	kind api.FrameKind
}

func (w frameWriter) Write(p []byte) (int, error) {
	for n := 0; n < len(p); {
		end := min(n+api.MaxFrame, len(p))
		if err := w.s.write(w.kind, p[n:end]); err != nil {
			return n, err
		}
		n = end
	}
	return len(p), nil
}
