package policy

import "net/netip"

// A Request is what somebody inside wants to reach. The zero value is denied.
type Request struct {
	// Host is a name in normal form (see [NormalHost]) or a literal address.
	Host string
	Port uint16
	// TLS reports whether the bytes are, or are to be, TLS towards Host. A
	// rule with methods or paths then needs the proxy to end it.
	TLS bool
	// Method and Path are of the HTTP request, Path in the one normal form
	// that is also sent on (see [NormalPath]), without query. Both are empty
	// where only host and port are known: at CONNECT.
	Method, Path string
	// Ref is the full name of a reference that a push to Path changes, and
	// Change what it does to it. Both are empty where that is not known yet,
	// and for what is no push: see [Decision.Push].
	Ref    string
	Change Change
}

// A Decision answers a Request. The zero value is a denial.
type Decision struct {
	Allowed bool `json:"allowed"`
	// Inspect says that the proxy must end TLS and ask again with method and
	// path: some layer's matching rule limits them.
	Inspect bool `json:"inspect,omitempty"`
	// Push says that the request is a push by git which some layer limits by
	// reference: it may pass where the same request is allowed with each
	// reference that it changes.
	Push bool `json:"push,omitempty"`
	// Raw says that the rule has "protocol": "tcp": any bytes may pass. Where
	// it is false a tunnel must open with a ClientHello for Host.
	Raw bool `json:"raw,omitempty"`
	// Addresses are ranges that the rules open beyond public addresses. The
	// node's own setting must open them too.
	Addresses []netip.Prefix `json:"addresses,omitempty"`
	// Rule is the name of the rule that decided ("read github", "preset npm",
	// "rule 3", "deny 1"), empty where none matched.
	Rule string `json:"rule,omitempty"`
	// Layer is the layer that refused, or the one whose rule allowed.
	Layer string `json:"layer,omitempty"`
	// Reason is one sentence for people, lower case, without a full stop.
	Reason string `json:"reason"`
}
