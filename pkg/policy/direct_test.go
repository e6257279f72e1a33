package policy

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestD29d_DirectIsWhatEveryLayerLetsAnyBytesPassTo: a name that a program may
// use without the proxy is one that the proxy would let it use.
func TestD29d_DirectIsWhatEveryLayerLetsAnyBytesPassTo(t *testing.T) {
	document := func(network string) *Document {
		doc, err := Parse("policy.json", []byte(`{"version": 1, "network": `+network+`}`))
		if err != nil {
			t.Fatal(err)
		}
		return doc
	}
	const all = `{"rules": [
		{"hosts": ["db.example", "DB.example", "*.wild.example", "192.0.2.7"], "ports": [5433, 5432], "protocol": "tcp", "addresses": ["10.2.0.0/16"]},
		{"hosts": ["a.example"], "ports": [6379], "protocol": "tcp"},
		{"hosts": ["web.example"], "ports": [443]},
		{"hosts": ["limited.example"], "ports": [443], "protocol": "tcp", "methods": ["GET"]},
		{"hosts": ["both.example"], "ports": [9000], "protocol": "tcp"},
		{"hosts": ["both.example"], "ports": [9000], "methods": ["GET"]},
		{"hosts": ["denied.example"], "ports": [1, 2], "protocol": "tcp"},
		{"hosts": ["plain.example"], "protocol": "tcp"}
	], "deny": [{"hosts": ["denied.example"]}]}`
	for name, c := range map[string]struct {
		layers []Layer
		want   []HostPort
	}{
		"one layer": {[]Layer{{Name: LayerRepository, Document: document(all)}},
			[]HostPort{{"a.example", 6379}, {"both.example", 9000}, {"db.example", 5432}, {"db.example", 5433}, {"plain.example", 80}, {"plain.example", 443}}},
		"a hub allows less": {[]Layer{
			{Name: LayerOrganisation, Document: document(`{"rules": [{"hosts": ["*.example"], "ports": [5432, 6379], "protocol": "tcp"}]}`)},
			{Name: LayerRepository, Document: document(all)},
		}, []HostPort{{"a.example", 6379}, {"db.example", 5432}}},
		"a hub allows TLS only": {[]Layer{
			{Name: LayerOrganisation, Document: document(`{"rules": [{"hosts": ["*.example"], "ports": [5432]}]}`)},
			{Name: LayerRepository, Document: document(all)},
		}, nil},
		"nothing of the network": {[]Layer{{Name: LayerRepository, Document: document(`{}`)}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			e, err := Compile(c.layers, nil, Presets{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, e.Direct()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
	if got := (*Effective)(nil).Direct(); got != nil {
		t.Errorf("without a policy: %v", got)
	}
}
