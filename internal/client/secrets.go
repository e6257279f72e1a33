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

// SignIns says what the node finds of the sign-ins of the caller's tools. It may
// have to ask a keyring.
func (c *Client) SignIns(ctx context.Context, req api.SignInsRequest) (api.SignIns, error) {
	ctx, cancel := context.WithTimeout(ctx, 4*AnswerWithin)
	defer cancel()
	var v api.SignIns
	return v, c.ask(ctx, "POST", "signins", req, &v)
}

// RemoveSecret forgets one.
func (c *Client) RemoveSecret(ctx context.Context, name string) (api.SecretRemoved, error) {
	var v api.SecretRemoved
	return v, c.ask(ctx, "DELETE", "secrets/"+url.PathEscape(name), nil, &v)
}
