package policy

import "testing"

// TestPatternsAreThoseOfPolicies: whoever binds something to hosts and paths
// outside of a policy gets exactly its meaning.
func TestPatternsAreThoseOfPolicies(t *testing.T) {
	for _, tt := range []struct {
		pattern, host string
		want          bool
	}{
		{"api.x.example", "api.x.example", true},
		{"API.X.example.", "api.x.example", true},
		{"api.x.example", "x.api.x.example", false},
		{"*.x.example", "a.x.example", true},
		{"*.x.example", "a.b.x.example", false},
		{"*.x.example", "x.example", false},
		{"**.x.example", "a.b.x.example", true},
		{"203.0.113.7", "203.0.113.7", true},
		{"*.x.example", "A.x.example", false}, // not in normal form
	} {
		p, err := ParseHostPattern(tt.pattern)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Match(tt.host); got != tt.want {
			t.Errorf("%s and %s: %t", tt.pattern, tt.host, got)
		}
	}
	if (HostPattern{}).Match("") || (HostPattern{}).Match("x") || (PathPattern{}).Match("/") || (PathPattern{}).Match("") {
		t.Error("a zero pattern matches")
	}
	for _, s := range []string{"", "*", "https://x.example", "x.example:443", "a.*.example"} {
		if _, err := ParseHostPattern(s); err == nil {
			t.Errorf("%q is a pattern", s)
		}
	}
	p, err := ParsePathPattern("/v1/**")
	if err != nil || !p.Match("/v1/a/b") || p.Match("/v2/a") || p.String() != "/v1/**" {
		t.Errorf("%v %v", p, err)
	}
	if _, err := ParsePathPattern("v1"); err == nil {
		t.Error("a path without a slash is a pattern")
	}
	if CheckSecretName("A_1") != nil || CheckSecretName("1A") == nil {
		t.Error("names of secrets")
	}
}
