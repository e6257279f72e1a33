package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"

	"github.com/mojoup/mojoup-node/pkg/console"
	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Attach shows a live session until it ends or Leave of the streams is closed.
func (c *Client) Attach(ctx context.Context, id string, req api.AttachRequest, s Streams) (api.Ended, error) {
	return c.session(ctx, "sessions/"+url.PathEscape(id)+"/attach", api.FrameAttach, req, s)
}

// Exec runs one more command in a live session and carries its streams until
// it has ended.
func (c *Client) Exec(ctx context.Context, id string, req api.ExecRequest, s Streams) (api.Ended, error) {
	return c.session(ctx, "sessions/"+url.PathEscape(id)+"/exec", api.FrameExec, req, s)
}

// Ports lists a session's ports that may be forwarded, after forwarding open.
func (c *Client) Ports(ctx context.Context, id string, open []uint16) ([]api.Port, error) {
	var v []api.Port
	path := "sessions/" + url.PathEscape(id) + "/ports"
	if len(open) == 0 {
		return v, c.ask(ctx, "GET", path, nil, &v)
	}
	return v, c.ask(ctx, "POST", path, api.PortsRequest{Open: open}, &v)
}

// Diff writes what has changed in a session's work tree since it began.
func (c *Client) Diff(ctx context.Context, id string, req api.DiffRequest, s Streams) (api.Ended, error) {
	return c.session(ctx, "sessions/"+url.PathEscape(id)+"/diff", api.FrameDiff, req, s)
}

// Recording is what was recorded of a session's terminal.
func (c *Client) Recording(ctx context.Context, id string) (io.ReadCloser, error) {
	body, err := c.open(ctx, "sessions/"+url.PathEscape(id)+"/terminal")
	if err != nil {
		return nil, err
	}
	return answer{body, c.socket}, nil
}

// answer is a body whose errors say that the node is at fault.
type answer struct {
	io.ReadCloser
	socket string
}

func (a answer) Read(p []byte) (int, error) {
	n, err := a.ReadCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = &NoAnswerError{Socket: a.socket, Err: err}
	}
	return n, err
}

// open asks for what is answered bit by bit.
func (c *Client) open(ctx context.Context, path string) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+console.Host+"/"+api.Version+"/"+path, nil)
	if err != nil {
		return nil, fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, c.unanswered(err)
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return nil, c.read(resp.StatusCode, body, nil)
	}
	return resp.Body, nil
}

// Events gives the log of a session to each, an event at a time, and with
// follow what is added until the session has ended. It takes as long as that.
func (c *Client) Events(ctx context.Context, id string, follow bool, each func(api.Event) error) error {
	err := c.ownEvents(ctx, id, follow, each)
	if c.notHere(err) {
		return ofSystem(c.system.ownEvents(ctx, id, follow, each))
	}
	return err
}

func (c *Client) ownEvents(ctx context.Context, id string, follow bool, each func(api.Event) error) error {
	path := "sessions/" + url.PathEscape(id) + "/events"
	if follow {
		path += "?follow"
	}
	body, err := c.open(ctx, path)
	if err != nil {
		return err
	}
	defer body.Close()
	for dec := json.NewDecoder(body); ; {
		var e api.Event
		err := dec.Decode(&e)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return &NoAnswerError{Socket: c.socket, Err: io.EOF}
		}
		if err := each(e); err != nil {
			return err
		}
	}
}
