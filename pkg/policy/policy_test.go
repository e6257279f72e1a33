package policy

import (
	"strings"
	"testing"
)

// parse fails the test on any problem.
func parse(t testing.TB, src string) *Document {
	t.Helper()
	d, err := Parse("policy.json", []byte(src))
	if err != nil {
		t.Fatalf("%v\nin %s", err, src)
	}
	return d
}

// refuse returns the problems of a document that must not load.
func refuse(t testing.TB, src string) []Problem {
	t.Helper()
	d, err := Parse("policy.json", []byte(src))
	if err == nil {
		t.Fatalf("accepted: %s", src)
	}
	if d != nil {
		t.Fatalf("a document came with the error: %s", src)
	}
	return err.(*Errors).Problems
}

func compile(t testing.TB, layers ...Layer) *Effective {
	t.Helper()
	e, err := Compile(layers, nil, BuiltinPresets())
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func layer(t testing.TB, name, src string) Layer {
	t.Helper()
	return Layer{Name: name, Source: strings.ReplaceAll(name, " ", "-") + ".json", Document: parse(t, src)}
}

// rules compiles one repository layer with these rules and denials.
func rules(t testing.TB, rules, deny string) *Effective {
	t.Helper()
	return compile(t, layer(t, LayerRepository, `{"network":{"rules":[`+rules+`],"deny":[`+deny+`]}}`))
}

// connect is what the proxy asks at CONNECT host:443.
func connect(host string) Request { return Request{Host: host, Port: 443, TLS: true} }

func TestB11_SuffixMatchesWholeLabelsOnly(t *testing.T) {
	e := rules(t, `{"hosts":["*.corp.example","pypi.example"],"ports":[443]}, {"hosts":["**.deep.example"]}`, ``)
	for host, want := range map[string]bool{
		"a.corp.example":              true,
		"a.b.corp.example":            false,
		"corp.example":                false,
		"evilcorp.example":            false,
		"a.corp.example.evil.example": false,
		"notpypi.example":             false,
		"pypi.example.evil.example":   false,
		"PyPI.EXAMPLE":                true,
		"a.deep.example":              true,
		"a.b.deep.example":            true,
		"deep.example":                false,
		"adeep.example":               false,
	} {
		normal, err := NormalHost(host)
		if err != nil {
			t.Fatal(err)
		}
		if d := e.Decide(connect(normal)); d.Allowed != want {
			t.Errorf("%s: allowed %v, want %v (%s)", host, d.Allowed, want, d.Reason)
		}
	}
}
