package effective

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mojoup/mojoup-node/internal/registries"
	"github.com/mojoup/mojoup-node/pkg/policy"
	"github.com/mojoup/mojoup-node/pkg/secrets/signin/profile"
)

func repository(t *testing.T, document string) string {
	t.Helper()
	dir := t.TempDir()
	if document == "" {
		return dir
	}
	if err := os.Mkdir(filepath.Join(dir, ".mojoup"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ".mojoup", "policy.json"), []byte(document), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// nobody fails the test where a registry's client is asked.
func nobody(t *testing.T) func(context.Context, string) (registries.Found, error) {
	return func(_ context.Context, name string) (registries.Found, error) {
		t.Errorf("%s was asked", name)
		return registries.Found{}, errors.New("nobody")
	}
}

// compose does all that a session has done for its policy.
func compose(ctx context.Context, in Input) (*policy.Effective, error) {
	layers, err := Layers(ctx, in)
	if err != nil {
		return nil, err
	}
	return Compile(ctx, layers, in)
}

func ask(host, method string) policy.Request {
	return policy.Request{Host: host, Port: 443, TLS: true, Method: method, Path: "/"}
}

// B94: without a document, and with an empty one, nothing is reachable; what
// cannot be read is an error and never no policy.
func TestB94WhatIsNotThere(t *testing.T) {
	for name, document := range map[string]string{"absent": "", "empty object": "{}"} {
		e, err := compose(t.Context(), Input{Top: repository(t, document), Find: nobody(t)})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := e.Decide(ask("a.x.example", "GET")); d.Allowed {
			t.Errorf("%s: allowed by %+v", name, d)
		}
	}
	for name, document := range map[string]string{"empty": " ", "broken": "{", "a list": "[]", "misspelt": `{"version": 1, "netwrok": {}}`} {
		if e, err := compose(t.Context(), Input{Top: repository(t, document), Find: nobody(t)}); err == nil || e != nil {
			t.Errorf("%s: %v, %v", name, e, err)
		}
	}
}

// The person's own document is one more layer: it can narrow what the
// repository allows and cannot widen it.
func TestGivenPolicyNarrows(t *testing.T) {
	top := repository(t, `{"version": 1, "network": {"rules": [{"hosts": ["a.x.example", "b.x.example"]}]}}`)
	given := &Text{Name: "own.json", Source: []byte(`{"version": 1, "network": {"rules": [{"hosts": ["b.x.example", "c.x.example"]}]}}`)}
	e, err := compose(t.Context(), Input{Top: top, Given: given, Find: nobody(t)})
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{"a.x.example": false, "b.x.example": true, "c.x.example": false} {
		if d := e.Decide(ask(host, "GET")); d.Allowed != want {
			t.Errorf("%s: %+v", host, d)
		}
	}
	given.Source = []byte("{")
	if _, err := compose(t.Context(), Input{Top: top, Given: given, Find: nobody(t)}); err == nil || !strings.Contains(err.Error(), "own.json") {
		t.Errorf("a broken own policy: %v", err)
	}
}

// Only registries that a layer names are asked, and one that cannot be is an
// error: guessing hosts would open others.
func TestRegistriesAreAskedByName(t *testing.T) {
	top := repository(t, `{"version": 1, "network": {"rules": [{"preset": "npm"}]}}`)
	var asked []string
	find := func(_ context.Context, name string) (registries.Found, error) {
		asked = append(asked, name)
		return registries.Found{Hosts: []registries.Host{{Name: "mirror.x.example", Port: 443}}}, nil
	}
	e, err := compose(t.Context(), Input{Top: top, Find: find})
	if err != nil {
		t.Fatal(err)
	}
	if len(asked) != 1 || asked[0] != "npm" {
		t.Errorf("asked %q", asked)
	}
	if d := e.Decide(ask("mirror.x.example", "GET")); !d.Allowed {
		t.Errorf("the machine's mirror: %+v", d)
	}
	if d := e.Decide(ask("mirror.x.example", "PUT")); d.Allowed {
		t.Errorf("publishing: %+v", d)
	}
	wrong := errors.New("no client")
	_, err = compose(t.Context(), Input{Top: top, Find: func(context.Context, string) (registries.Found, error) { return registries.Found{}, wrong }})
	if !errors.Is(err, wrong) || !strings.Contains(err.Error(), `preset "npm"`) {
		t.Errorf("a client that cannot be asked: %v", err)
	}
}

// A tool's hosts are subject to the policy.
func TestTools(t *testing.T) {
	e, err := compose(t.Context(), Input{Top: repository(t, ""), Tool: profile.Find("claude").Rules(nil), Find: nobody(t)})
	if err != nil {
		t.Fatal(err)
	}
	if d := e.Decide(ask("api.anthropic.com", "POST")); !d.Allowed {
		t.Errorf("the tool's own host: %+v", d)
	}
	if len(e.Asks()) != 0 {
		t.Errorf("a tool's own hosts need no approval: %v", e.Asks())
	}
	denied := repository(t, `{"version": 1, "network": {"deny": [{"hosts": ["api.anthropic.com"]}]}}`)
	if e, err = compose(t.Context(), Input{Top: denied, Tool: profile.Find("claude").Rules(nil), Find: nobody(t)}); err != nil {
		t.Fatal(err)
	}
	if d := e.Decide(ask("api.anthropic.com", "POST")); d.Allowed {
		t.Errorf("a deny beats a tool: %+v", d)
	}
}
