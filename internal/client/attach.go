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

// Events gives the log of a session to each, an event at a time, and with
// follow what is added until the session has ended. It takes as long as that.
func (c *Client) Events(ctx context.Context, id string, follow bool, each func(api.Event) error) error {
	path := "sessions/" + url.PathEscape(id) + "/events"
	if follow {
		path += "?follow"
	}
	req, err := http.NewRequestWithContext(ctx, "GET", "http://"+console.Host+"/"+api.Version+"/"+path, nil)
	if err != nil {
		return fmt.Errorf("asking for %s: %w", path, err)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return c.unanswered(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
		return c.read(resp.StatusCode, body, nil)
	}
	for dec := json.NewDecoder(resp.Body); ; {
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
