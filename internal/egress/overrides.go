package egress

import (
	"cmp"
	"net/http"
	"slices"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// overrides are fields by which some servers take a request for one of another
// method, or for another path. Many take an underscore in a name for a hyphen.
var overrides = map[string]struct{ path bool }{
	"X-Http-Method-Override": {}, "X-Http-Method": {}, "X-Method-Override": {},
	"X-Original-Url": {path: true}, "X-Rewrite-Url": {path: true},
}

// mostOverrides is how many of each kind are looked at: no client sends two.
const mostOverrides = 4

// taken is a method or a path that a server may take a request for.
type taken struct{ as, by string }

// overridden judges a request as such a server would take it, by any of its
// fields and by any two together, and returns the denial where that is not
// allowed.
func (s *serving) overridden(x *exchange, r *http.Request) (policy.Decision, bool) {
	methods, paths := []taken{{as: r.Method}}, []taken{{as: x.path}}
	for name, values := range r.Header {
		o, ok := overrides[http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))]
		for _, value := range values {
			switch value = strings.TrimSpace(value); {
			case !ok || value == "":
			case o.path:
				paths = append(paths, taken{value, name})
			default:
				methods = append(methods, taken{strings.ToUpper(value), name})
			}
		}
	}
	if len(methods) > mostOverrides || len(paths) > mostOverrides {
		return policy.Decision{Layer: policy.LayerNode, Reason: "too many fields ask for another request in its place"}, false
	}
	// In one order, so that the same request is denied for the same reason.
	for _, found := range [][]taken{methods[1:], paths[1:]} {
		slices.SortFunc(found, func(a, b taken) int { return cmp.Or(cmp.Compare(a.by, b.by), cmp.Compare(a.as, b.as)) })
	}
	for i, method := range methods {
		for k, path := range paths {
			if i == 0 && k == 0 {
				continue // judged already
			}
			if d, ok := s.takenFor(x, method, path); !ok {
				return d, false
			}
		}
	}
	return policy.Decision{}, true
}

func (s *serving) takenFor(x *exchange, method, path taken) (policy.Decision, bool) {
	asked := policy.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: method.as, Path: path.as}
	var err error
	if path.by != "" {
		way, _, _ := strings.Cut(path.as, "?")
		asked.Path, err = policy.NormalPath(way)
	}
	d, _ := s.judge(asked)
	if d.Push && path.by != "" {
		d.Allowed, d.Reason = false, "a push is judged at its own path only"
	}
	if d.Allowed && err == nil {
		return d, true
	}
	var asks []string
	for _, t := range []taken{method, path} {
		if t.by != "" {
			asks = append(asks, t.by+" asks for "+printable(t.as, 100))
		}
	}
	d.Allowed, d.Reason = false, strings.Join(asks, " and ")+" in its place, and "+cmp.Or(d.Reason, "that is not allowed")
	return d, false
}
