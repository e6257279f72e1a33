package client

import (
	"context"
	"net/url"

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
