package client

import (
	"context"
	"net/url"

	"github.com/mojoup/mojoup-node/pkg/console/api"
)

// Secrets lists the caller's secrets.
func (c *Client) Secrets(ctx context.Context) (api.Secrets, error) {
	var v api.Secrets
	return v, c.ask(ctx, "GET", "secrets", nil, &v)
}

// SetSecret sets one. The node may have to run a command for it.
func (c *Client) SetSecret(ctx context.Context, req api.SecretRequest) (api.SecretSet, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*AnswerWithin)
	defer cancel()
	var v api.SecretSet
	return v, c.ask(ctx, "POST", "secrets", req, &v)
}

// RemoveSecret forgets one.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.ask(ctx, "DELETE", "secrets/"+url.PathEscape(name), nil, nil)
}
