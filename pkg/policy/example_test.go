package policy_test

import (
	"fmt"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

func Example() {
	doc, err := policy.Parse(".mojoup/policy.json", []byte(`{
		"network": {
			"rules": [
				{ "name": "read docs", "hosts": ["docs.x.example"], "methods": ["GET"], "paths": ["/v1/**"] },
			],
		},
	}`))
	if err != nil {
		fmt.Println(err)
		return
	}
	effective, err := policy.Compile([]policy.Layer{{Name: policy.LayerRepository, Document: doc}}, nil, policy.BuiltinPresets())
	if err != nil {
		fmt.Println(err)
		return
	}
	host, err := policy.NormalHost("DOCS.x.example.")
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, req := range []policy.Request{
		{Host: host, Port: 443, TLS: true},
		{Host: host, Port: 443, TLS: true, Method: "GET", Path: "/v1/a"},
		{Host: host, Port: 443, TLS: true, Method: "POST", Path: "/v1/a"},
		{Host: "other.example", Port: 443, TLS: true},
	} {
		d := effective.Decide(req)
		fmt.Println(d.Allowed, d.Inspect, d.Reason)
	}
	// Output:
	// true true rule "read docs" of the repository allows it by method or path
	// true false rule "read docs" of the repository allows it
	// false false rule "read docs" of the repository allows other methods only: GET
	// false false no rule of the repository names this host
}

func ExampleParse() {
	_, err := policy.Parse("policy.json", []byte(`{ "agents": { "sanbox": "required" } }`))
	fmt.Println(err)
	// Output:
	// policy.json:1:15: agents: unknown key "sanbox", valid are sandbox (did you mean "sandbox"?)
}
