package api

import (
	"fmt"
	"log/slog"
	"time"
)

// A Key is a key on its way from a client to its node. It is encoded as it is
// and printed by nobody.
type Key string

const hidden = "[secret]"

// Format implements fmt.Formatter.
func (Key) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte(hidden)) }

// LogValue implements slog.LogValuer.
func (Key) LogValue() slog.Value { return slog.StringValue(hidden) }

// CodeKeys is the Problem code of a session that needs a key from a variable of
// its caller: the request is sent again with [RunRequest.Keys].
const CodeKeys = "keys-needed"

// Secrets answers GET /v1/secrets.
type Secrets struct {
	Secrets []Secret `json:"secrets"` // the caller's, by name; never null
	// Protection says against whom the node's store is encrypted; "" while
	// there is none.
	Protection string `json:"protection,omitempty"`
}

// Secret is what a node knows of one, without its key.
type Secret struct {
	Name    string    `json:"name"`
	Kind    string    `json:"kind"`         // store, env, file, command, keyring
	At      string    `json:"at,omitempty"` // the variable, path, command line or attributes
	Hosts   []string  `json:"hosts"`
	Headers []string  `json:"headers,omitempty"`
	Query   []string  `json:"query,omitempty"`
	Body    []string  `json:"body,omitempty"`
	Paths   []string  `json:"paths,omitempty"`
	Set     time.Time `json:"set"`
}

// SecretRequest is the body of POST /v1/secrets.
type SecretRequest struct {
	Name    string   `json:"name"`
	Kind    string   `json:"kind"`
	At      string   `json:"at,omitempty"`
	Key     Key      `json:"key,omitempty"` // of kind store
	Hosts   []string `json:"hosts"`
	Headers []string `json:"headers,omitempty"`
	Query   []string `json:"query,omitempty"`
	Body    []string `json:"body,omitempty"`
	Paths   []string `json:"paths,omitempty"`
}

// SecretRemoved answers DELETE /v1/secrets/{name}.
type SecretRemoved struct {
	Sessions []string `json:"sessions"` // the ids of those that run and had the key
	SetBy    string   `json:"setBy"`    // the command that sets it as it was
}

// SecretSet answers POST /v1/secrets.
type SecretSet struct {
	Sessions int      `json:"sessions"` // those that run and have the new key already
	Rebound  []string `json:"rebound"`  // the ids of those that had it for elsewhere, or for other places
}
