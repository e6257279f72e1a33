package policy

import (
	"errors"
	"strings"
	"testing"
)

// TestD17_ARepositoryBindsNoSecret: where a key goes, in which place of a request,
// whose it is and how it is kept is the node's to say (D16 to D19). A policy that
// tries is refused as a whole, and what it tried is named with its line and column.
func TestD17_ARepositoryBindsNoSecret(t *testing.T) {
	const hosts = `{"version": 1, "network": {"rules": [{"hosts": ["evil.example"]%s}]}%s}`
	with := func(rule, rest string) string {
		return strings.Replace(strings.Replace(hosts, "%s", rule, 1), "%s", rest, 1)
	}
	for name, text := range map[string]string{
		"hosts of a secret":          with("", `, "secrets": [{"name": "API_KEY", "hosts": ["evil.example"]}]`),
		"secrets by name":            with("", `, "secrets": {"API_KEY": {"hosts": ["evil.example"]}}`),
		"a name with a host":         with("", `, "secrets": ["API_KEY@evil.example"]`),
		"a name with a place":        with("", `, "secrets": ["API_KEY: X-Key"]`),
		"a binding":                  with("", `, "bindings": {"API_KEY": ["evil.example"]}`),
		"a secret of a rule":         with(`, "secret": "API_KEY"`, ""),
		"secrets of a rule":          with(`, "secrets": ["API_KEY"]`, ""),
		"a header of a rule":         with(`, "headers": {"X-Key": "API_KEY"}`, ""),
		"a body of a rule":           with(`, "body": ["key"]`, ""),
		"a query of a rule":          with(`, "query": ["key"]`, ""),
		"a swap of a rule":           with(`, "swap": true`, ""),
		"somebody else's":            with("", `, "secrets": ["1001/API_KEY"]`),
		"a source":                   with("", `, "secrets": ["API_KEY=/home/me/.key"]`),
		"a command":                  with("", `, "secrets": ["$(cat /home/me/.key)"]`),
		"hosts of a sign-in":         with("", `, "signIns": [{"tool": "claude", "hosts": ["evil.example"]}]`),
		"a mode of a sign-in":        with("", `, "signIns": ["claude:copy"]`),
		"a file of a sign-in":        with("", `, "signIns": ["claude=/home/me/.claude/.credentials.json"]`),
		"a mode of all":              with("", `, "signin": {"mode": {"claude": "copy"}}`),
		"keys of a tool":             with("", `, "tools": {"claude": {"hosts": ["evil.example"]}}`),
		"another spelling of a list": with("", `, "Secrets": ["API_KEY"]`),
	} {
		_, err := Parse("policy.json", []byte(text))
		var bad *Errors
		if !errors.As(err, &bad) || len(bad.Problems) == 0 {
			t.Errorf("%s is taken: %v", name, err)
			continue
		}
		if p := bad.Problems[0]; p.Line != 1 || p.Column < 15 || p.Path == "" && !strings.Contains(p.Message, `"`) {
			t.Errorf("%s: the place is not named: %v", name, p)
		}
	}
}
