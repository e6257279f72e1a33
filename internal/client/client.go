// Package client promises answers of a running node over its socket, and
// tells apart a node that is absent, silent, and not ours to ask.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// AnswerWithin is how long a node may take to answer a question about itself.
const AnswerWithin = 5 * time.Second

// ErrNotRunning says that nothing listens on the socket.
var ErrNotRunning = errors.New("no node is running")

// ErrEnding says that a node let go of the connection before it took the
// request, as one does that is just ending: nothing was begun.
var ErrEnding = errors.New("the node is ending")

// A NoAnswerError says that something holds the socket but gave no usable
// answer.
type NoAnswerError struct {
	Socket string
	Err    error
}

func (e *NoAnswerError) Error() string {
	return "the node at " + e.Socket + " does not answer: " + plain(e.Err)
}
func (e *NoAnswerError) Unwrap() error { return e.Err }

// Hint names the next step.
func (e *NoAnswerError) Hint() string {
	if errors.Is(e.Err, fs.ErrPermission) {
		return "the socket belongs to another user: MOJOUP_RUNTIME_DIR says which node is asked"
	}
	return "look at the node's log; `mojoup-node serve` in a terminal shows it live"
}

func plain(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "no permission"
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing came back in time"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "it closed the connection"
	}
	return err.Error()
}

// Client asks the node behind one socket.
type Client struct {
	socket string
	http   *http.Client
}

// New returns a client of the node whose socket is at path. It connects only
// when asked something.
func New(socket string) *Client {
	c := &Client{socket: socket}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableKeepAlives: true,
	}}
	return c
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", c.socket)
	switch {
	case err == nil:
		return conn, nil
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		return nil, ErrNotRunning
	}
	return nil, &NoAnswerError{Socket: c.socket, Err: err}
}

// Status asks for the node's status.
func (c *Client) Status(ctx context.Context) (api.Status, error) {
	var v api.Status
	return v, c.ask(ctx, "GET", "status", nil, &v)
}

// Sessions lists live sessions, or past ones.
func (c *Client) Sessions(ctx context.Context, past bool) ([]api.Session, error) {
	path := "sessions"
	if past {
		path += "?past"
	}
	var v []api.Session
	return v, c.ask(ctx, "GET", path, nil, &v)
}

// Session shows one.
func (c *Client) Session(ctx context.Context, id string) (api.Session, error) {
	var v api.Session
	return v, c.ask(ctx, "GET", "sessions/"+url.PathEscape(id), nil, &v)
}

// Stop asks a session to end.
func (c *Client) Stop(ctx context.Context, id string) error {
	return c.ask(ctx, "POST", "sessions/"+url.PathEscape(id)+"/stop", nil, nil)
}

// Shutdown asks the node to end.
func (c *Client) Shutdown(ctx context.Context) error {
	return c.ask(ctx, "POST", "shutdown", nil, nil)
}

// Approval asks what a repository's policy asks for, or approves it.
func (c *Client) Approval(ctx context.Context, req api.ApprovalRequest) (api.Approval, error) {
	var v api.Approval
	return v, c.ask(ctx, "POST", "approvals", req, &v)
}

func (c *Client) ask(ctx context.Context, method, path string, send, v any) error {
	ctx, cancel := context.WithTimeout(ctx, AnswerWithin)
	defer cancel()
	var body io.Reader
	if send != nil {
		b, err := json.Marshal(send)
		if err != nil {
			return fmt.Errorf("asking for %s: %w", path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://"+console.Host+"/"+api.Version+"/"+path, body)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unanswered(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<20))
	if err != nil {
		return &NoAnswerError{Socket: c.socket, Err: err}
	}
	return c.read(resp.StatusCode, answer, v)
}

func (c *Client) read(status int, body []byte, v any) error {
	if status != http.StatusOK {
		var p api.Problem
		if json.Unmarshal(body, &p) != nil || p.Sentence == "" {
			return &NoAnswerError{Socket: c.socket, Err: fmt.Errorf("it answered %d %s", status, http.StatusText(status))}
		}
		return &p
	}
	if v == nil {
		return nil
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(v); err != nil {
		return &NoAnswerError{Socket: c.socket, Err: errors.New("what it said is not an answer")}
	}
	return nil
}

// unanswered strips what net/http puts round the error of a dial.
func (c *Client) unanswered(err error) error {
	if errors.Is(err, ErrNotRunning) {
		return ErrNotRunning
	}
	if e, ok := errors.AsType[*NoAnswerError](err); ok {
		return e
	}
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	return &NoAnswerError{Socket: c.socket, Err: err}
}
