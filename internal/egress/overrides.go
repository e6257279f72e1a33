package egress

import (
	"cmp"
	"net/http"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// overrides are fields by which some servers take a request for one of another
// method, or for another path.
var overrides = []struct {
	name string
	path bool
}{
	{"X-Http-Method-Override", false}, {"X-Http-Method", false}, {"X-Method-Override", false},
	{"X-Original-Url", true}, {"X-Rewrite-Url", true},
}

// overridden judges a request as such a server would take it, and returns the
// denial where that is not allowed.
func (s *serving) overridden(x *exchange, r *http.Request) (policy.Decision, bool) {
	for _, o := range overrides {
		for _, value := range r.Header[o.name] {
			asked := policy.Request{Host: x.to.host, Port: x.to.port, TLS: x.link.tls, Method: r.Method, Path: x.path}
			value = strings.TrimSpace(value)
			var err error
			if o.path {
				value, _, _ = strings.Cut(value, "?")
				asked.Path, err = policy.NormalPath(value)
			} else {
				asked.Method = strings.ToUpper(value)
			}
			if value == "" {
				continue
			}
			d, _ := s.judge(asked)
			if d.Allowed && err == nil {
				continue
			}
			d.Allowed, d.Reason = false, o.name+" asks for "+printable(value, 100)+" in its place, and "+cmp.Or(d.Reason, "that is not allowed")
			return d, false
		}
	}
	return policy.Decision{}, true
}
