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

// ErrSystemEnding is the same of the system node, or of its part that serves
// this person: another one is started by asking again.
var ErrSystemEnding = fmt.Errorf("%w, that of the system", ErrEnding)

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
	if errors.Is(e.Err, syscall.ENOTDIR) {
		return "MOJOUP_RUNTIME_DIR says which node is asked"
	}
	return "look at the node's log, node.log beside its socket or the journal of its unit; `mojoup-node serve` in a terminal shows it live"
}

func plain(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return "no permission"
	case errors.Is(err, context.DeadlineExceeded):
		return "nothing came back in time"
	case errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET):
		return "it closed the connection"
	case errors.Is(err, syscall.ENOTDIR):
		return "there is no such directory"
	}
	return err.Error()
}

// Client asks the node behind one socket, or else the system node.
type Client struct {
	socket  string
	dialled func(ctx context.Context) (net.Conn, error)
	http    *http.Client
	system  *Client // asked where no node is behind socket; nil: none is
	most    int64   // bytes of an answer
	values  int     // in an answer; 0: any number
}

// mostAnswered is how much of an answer is read.
const mostAnswered = 64 << 20

// Bounded returns the same client for a node that is not trusted: longer answers
// than so many bytes count as none, nor does it decode ones of more values,
// which would take many times their length.
func (c *Client) Bounded(most int64, values int) *Client {
	with := *c
	with.most, with.values = most, values
	return &with
}

// New returns a client of the node whose socket is at path. It connects only
// when asked something.
func New(socket string) *Client {
	return Over(socket, func(ctx context.Context) (net.Conn, error) {
		return Dial(ctx, socket)
	})
}

// Dial connects to a socket. It waits for a place in the queue of one that many
// connect to: a full one is refused at once (EAGAIN), as if nobody ever answered.
func Dial(ctx context.Context, socket string) (net.Conn, error) {
	until := time.Now().Add(AnswerWithin)
	for {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if !errors.Is(err, syscall.EAGAIN) || time.Now().After(until) {
			return conn, err
		}
		select {
		case <-time.After(5 * time.Millisecond):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Over returns a client whose connections come from dial; name stands for the
// socket in messages.
func Over(name string, dial func(ctx context.Context) (net.Conn, error)) *Client {
	c := &Client{socket: name, dialled: dial, most: mostAnswered}
	c.http = &http.Client{Transport: &http.Transport{
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return c.dial(ctx) },
		DisableKeepAlives: true,
	}}
	return c
}

// OrSystem returns a client that asks the system node at socket where nothing
// listens on c's own. A system node that does not serve this person counts as
// one that does not run, and so does a node that root has for itself or left
// behind, whose socket nobody else may open: [Client.Refused] says so.
func (c *Client) OrSystem(socket string) *Client {
	if socket == "" || socket == c.socket {
		return c
	}
	with := *c
	with.system = New(socket)
	return &with
}

// Refused is why the system node does not serve this person, or "": it is asked
// nothing else.
func (c *Client) Refused(ctx context.Context) string {
	if c.system == nil {
		return ""
	}
	var v api.Status
	err := c.system.ask(ctx, "GET", "status", nil, &v)
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeNotServed {
		return p.Sentence
	}
	if errors.Is(err, fs.ErrPermission) {
		return "the socket " + c.system.socket + " is for root only"
	}
	return ""
}

// notHere says that the system node is to be asked instead.
func (c *Client) notHere(err error) bool { return c.system != nil && errors.Is(err, ErrNotRunning) }

// ofSystem is err of the system node, as the person's own would have given it.
func ofSystem(err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok && p.Code == api.CodeNotServed {
		return ErrNotRunning
	}
	if errors.Is(err, fs.ErrPermission) {
		return ErrNotRunning
	}
	if errors.Is(err, ErrEnding) {
		return ErrSystemEnding
	}
	return err
}

func (c *Client) dial(ctx context.Context) (net.Conn, error) {
	conn, err := c.dialled(ctx)
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
	err := c.askOwn(ctx, method, path, send, v)
	if c.notHere(err) {
		return ofSystem(c.system.askOwn(ctx, method, path, send, v))
	}
	return err
}

func (c *Client) askOwn(ctx context.Context, method, path string, send, v any) error {
	if _, has := ctx.Deadline(); !has {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, AnswerWithin)
		defer cancel()
	}
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
	answer, err := io.ReadAll(io.LimitReader(resp.Body, c.most+1))
	if err == nil && (int64(len(answer)) > c.most || c.values > 0 && bytes.Count(answer, []byte{','}) >= c.values) {
		err = errors.New("its answer is too long")
	}
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
