// Package console promises the HTTP face of a node: it knows who is calling,
// refuses what did not come from a client of ours, and carries requests to a
// [Node] and answers back. It decides nothing about sessions.
//
//	srv := console.NewServer(console.Options{Node: node, Logger: log})
//	go srv.Serve(listener)  // until Shutdown
//	srv.Shutdown(ctx)       // once the node has ended its sessions
//
// On the node's socket the caller is the peer of the connection, told by the
// kernel; a request with the marks of a browser, or from a caller whom the
// kernel does not name, never reaches the node. Every answer is JSON; a refusal
// is an [api.Problem]. What carries a session (run, attach, exec) is upgraded
// to frames, see [api.Protocol], and reaches the node as a [Stream].
package console

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Caller is who asks, as the kernel told it.
type Caller struct {
	UID, GID, PID int
}

// Node is what the console needs of the node behind it. Errors that wrap an
// *api.Problem reach the caller as that; any other one is logged and answered
// as an internal error without its text.
type Node interface {
	Status(ctx context.Context, c Caller) (api.Status, error)
	// Sessions lists live ones, oldest first, or with past the ended ones,
	// newest first.
	Sessions(ctx context.Context, c Caller, past bool) ([]api.Session, error)
	// Session shows one session with its verdicts.
	Session(ctx context.Context, c Caller, id string) (api.Session, error)
	// Events gives a session's log to emit, a part at a time, and with follow
	// what is added until the session has ended. It ends with emit's error.
	Events(ctx context.Context, c Caller, id string, follow bool, emit func([]api.Event) error) error
	// Recording is what was recorded of a session's terminal, so far.
	Recording(ctx context.Context, c Caller, id string) (io.ReadCloser, error)
	// Stop asks a session to end and returns at once.
	Stop(ctx context.Context, c Caller, id string) error
	// Approval says what a repository asks for and, where the request holds
	// the digest of exactly that, approves it.
	Approval(ctx context.Context, c Caller, req api.ApprovalRequest) (api.Approval, error)
	// Run carries one session from asked for to gone, or until its client
	// leaves it. The context ends when the client has gone.
	Run(ctx context.Context, c Caller, req api.RunRequest, s Stream) api.Ended
	// Attach shows a live session to one more client until it ends or the
	// client leaves or goes.
	Attach(ctx context.Context, c Caller, id string, req api.AttachRequest, s Stream) api.Ended
	// Exec carries one more command in a live session to its end.
	Exec(ctx context.Context, c Caller, id string, req api.ExecRequest, s Stream) api.Ended
	// Ports lists the ports of a session that may be forwarded, after
	// forwarding those that are asked for.
	Ports(ctx context.Context, c Caller, id string, req api.PortsRequest) ([]api.Port, error)
	// Diff writes what has changed in a session's work tree since it began.
	Diff(ctx context.Context, c Caller, id string, req api.DiffRequest, s Stream) api.Ended
	// Secrets lists the caller's secrets, without their keys.
	Secrets(ctx context.Context, c Caller) (api.Secrets, error)
	// SetSecret sets one of them.
	SetSecret(ctx context.Context, c Caller, req api.SecretRequest) (api.SecretSet, error)
	// RemoveSecret forgets one of them.
	RemoveSecret(ctx context.Context, c Caller, name string) (api.SecretRemoved, error)
	// SignIns says what was found of the sign-ins of the caller's tools.
	SignIns(ctx context.Context, c Caller, req api.SignInsRequest) (api.SignIns, error)
	// Shutdown asks the node to end, its sessions first.
	Shutdown(ctx context.Context, c Caller) error
}

// Options of a Server.
type Options struct {
	Node   Node         // required
	Logger *slog.Logger // nil discards
}

// newHandler answers the API. It must be served with connContext.
func newHandler(o Options, c *carried) http.Handler {
	h := handler{node: o.Node, log: o.Logger, carried: c}
	if h.log == nil {
		h.log = slog.New(slog.DiscardHandler)
	}
	mux := http.NewServeMux()
	h.forTheNode(mux)
	h.forSessions(mux)
	h.forKeys(mux)
	mux.Handle("/", h.answer(func(*http.Request, Caller) (any, error) {
		return nil, &api.Problem{Code: "unknown-request", Sentence: "this node does not know that request", Exit: 2,
			Hint: "client and node may be of different versions: compare `mojoup-node version` with `mojoup-node status`"}
	}))
	return h.guard(mux)
}

// forTheNode are the requests about the node itself.
func (h handler) forTheNode(mux *http.ServeMux) {
	mux.Handle("GET /v1/status", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.Status(r.Context(), c)
	}))
	mux.Handle("POST /v1/shutdown", h.answer(func(r *http.Request, c Caller) (any, error) {
		return struct{}{}, h.node.Shutdown(r.Context(), c)
	}))
	mux.Handle("POST /v1/approvals", asked(h, func(r *http.Request, c Caller, req api.ApprovalRequest) (any, error) {
		return h.node.Approval(r.Context(), c, req)
	}))
}

// forSessions are the requests about sessions.
func (h handler) forSessions(mux *http.ServeMux) {
	mux.Handle("GET /v1/sessions", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.Sessions(r.Context(), c, r.URL.Query().Has("past"))
	}))
	mux.Handle("GET /v1/sessions/{id}", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.Session(r.Context(), c, r.PathValue("id"))
	}))
	mux.Handle("POST /v1/sessions/{id}/stop", h.answer(func(r *http.Request, c Caller) (any, error) {
		return struct{}{}, h.node.Stop(r.Context(), c, r.PathValue("id"))
	}))
	mux.Handle("GET /v1/sessions/{id}/ports", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.Ports(r.Context(), c, r.PathValue("id"), api.PortsRequest{})
	}))
	mux.Handle("POST /v1/sessions/{id}/ports", asked(h, func(r *http.Request, c Caller, req api.PortsRequest) (any, error) {
		return h.node.Ports(r.Context(), c, r.PathValue("id"), req)
	}))
	mux.HandleFunc("GET /v1/sessions/{id}/events", h.events)
	mux.HandleFunc("GET /v1/sessions/{id}/terminal", h.recording)
	mux.HandleFunc("POST /v1/run", upgraded(h, api.FrameRun, func(ctx context.Context, c Caller, _ string, req api.RunRequest, s Stream) api.Ended {
		return h.node.Run(ctx, c, req, s)
	}))
	mux.HandleFunc("POST /v1/sessions/{id}/attach", upgraded(h, api.FrameAttach, h.node.Attach))
	mux.HandleFunc("POST /v1/sessions/{id}/exec", upgraded(h, api.FrameExec, h.node.Exec))
	mux.HandleFunc("POST /v1/sessions/{id}/diff", upgraded(h, api.FrameDiff, h.node.Diff))
}

// forKeys are the requests about the caller's secrets and sign-ins.
func (h handler) forKeys(mux *http.ServeMux) {
	mux.Handle("GET /v1/secrets", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.Secrets(r.Context(), c)
	}))
	mux.Handle("POST /v1/secrets", asked(h, func(r *http.Request, c Caller, req api.SecretRequest) (any, error) {
		return h.node.SetSecret(r.Context(), c, req)
	}))
	mux.Handle("DELETE /v1/secrets/{name}", h.answer(func(r *http.Request, c Caller) (any, error) {
		return h.node.RemoveSecret(r.Context(), c, r.PathValue("name"))
	}))
	mux.Handle("POST /v1/signins", asked(h, func(r *http.Request, c Caller, req api.SignInsRequest) (any, error) {
		return h.node.SignIns(r.Context(), c, req)
	}))
}

// maxRequest bounds what is read of a request, in bytes.
const maxRequest = 1 << 20

// asked is answer for a request that says more than its address does.
func asked[T any](h handler, f func(*http.Request, Caller, T) (any, error)) http.Handler {
	return h.answer(func(r *http.Request, c Caller) (any, error) {
		var req T
		if err := json.NewDecoder(io.LimitReader(r.Body, maxRequest)).Decode(&req); err != nil {
			return nil, &api.Problem{Code: "bad-request", Sentence: "the client's request could not be read", Exit: 2}
		}
		return f(r, c, req)
	})
}

type handler struct {
	node    Node
	log     *slog.Logger
	carried *carried
}

type callerKey struct{}

// connContext is for http.Server: it notes who is at the other end of a
// connection. A connection whose peer the kernel does not name has no caller,
// and each of its requests is refused.
func connContext(ctx context.Context, conn net.Conn) context.Context {
	if c, ok := Peer(conn); ok {
		return context.WithValue(ctx, callerKey{}, c)
	}
	return ctx
}

// guard refuses what a browser could have been made to send: our own clients
// send neither Origin nor Referer, and one Host only.
func (h handler) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		if r.Header.Get("Origin") != "" || r.Header.Get("Referer") != "" || r.Host != Host {
			h.refuse(w, &api.Problem{Code: "not-a-client", Sentence: "this socket answers mojoup-node clients only", Exit: 2})
			return
		}
		if _, ok := r.Context().Value(callerKey{}).(Caller); !ok {
			h.refuse(w, &api.Problem{Code: "caller-unknown", Sentence: "the node cannot tell who is calling", Exit: 3})
			return
		}
		next.ServeHTTP(w, r)
	})
}

// Host is the Host header that clients send on the socket.
const Host = "mojoup-node"

func (h handler) answer(f func(*http.Request, Caller) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		v, err := f(r, r.Context().Value(callerKey{}).(Caller))
		if err != nil {
			h.refuse(w, err)
			return
		}
		body, err := encode(v)
		if err != nil {
			h.refuse(w, err)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// encode is v as one line of JSON. It leaves <, > and & as they are: no answer
// ever stands in a page, and what a session has asked for may be full of them,
// each six bytes long otherwise.
func encode(v any) ([]byte, error) {
	var line bytes.Buffer
	enc := json.NewEncoder(&line)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return line.Bytes(), nil
}

func (h handler) refuse(w http.ResponseWriter, err error) {
	p := h.problem(err)
	body, _ := encode(p) // three strings and a number: cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status(p))
	_, _ = w.Write(body)
}

// problem keeps foreign text away from the caller: it goes to the log.
func (h handler) problem(err error) *api.Problem {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	h.log.Error("request failed", "err", err)
	return &api.Problem{Code: "internal", Sentence: "the node met an error of its own", Exit: 3,
		Hint: "the node's log has the details"}
}

func status(p *api.Problem) int {
	switch {
	case p.Code == "not-a-client" || p.Code == "caller-unknown" || p.Code == "not-allowed" || p.Code == api.CodeNotServed:
		return http.StatusForbidden
	case p.Code == "unknown-request" || p.Code == api.CodeUnknownSession:
		return http.StatusNotFound
	case p.Exit == 2:
		return http.StatusBadRequest
	default:
		return http.StatusInternalServerError
	}
}

// A Server serves a node's socket.
type Server struct {
	http    http.Server
	carried *carried
}

// NewServer makes one. Heads are bounded in time and size, bodies and streams
// are not.
func NewServer(o Options) *Server {
	c := &carried{conns: map[net.Conn]bool{}}
	return &Server{carried: c, http: http.Server{
		Handler:           newHandler(o, c),
		ConnContext:       connContext,
		ReadHeaderTimeout: 10 * time.Second,
		MaxHeaderBytes:    16 << 10,
		// What a client does wrong with HTTP is nothing that an operator
		// could act on.
		ErrorLog: log.New(io.Discard, "", 0),
	}}
}

// Serve answers until Shutdown; then it returns nil.
func (s *Server) Serve(ln net.Listener) error {
	err := s.http.Serve(ln)
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// Shutdown takes no new request, waits until those under way have been
// answered and every session's client has been told its end, and closes what
// is left when ctx ends. The node must have ended its sessions before.
func (s *Server) Shutdown(ctx context.Context) {
	if s.http.Shutdown(ctx) != nil {
		_ = s.http.Close()
	}
	stop := context.AfterFunc(ctx, s.carried.closeAll)
	defer stop()
	s.carried.wait()
}

// carried are the connections that carry sessions. The HTTP server forgets
// them when they stop to speak HTTP.
type carried struct {
	mu     sync.Mutex // guards what follows
	conns  map[net.Conn]bool
	closed bool
	ended  sync.WaitGroup // one for each of conns
}

// add reports whether another connection is still taken.
func (c *carried) add(conn net.Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.ended.Add(1)
	c.conns[conn] = true
	return true
}

func (c *carried) remove(conn net.Conn) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.conns, conn)
	c.ended.Done()
}

func (c *carried) closeAll() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for conn := range c.conns {
		_ = conn.Close()
	}
}

func (c *carried) wait() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.ended.Wait()
}
