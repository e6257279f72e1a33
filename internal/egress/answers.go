package egress

import (
	"net/http"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// Answers are requests that the node answers itself, whatever the policy says
// of their host: they are never sent on. TLS is ended for such a host, and what
// else is asked of it is judged as ever. Its methods are asked often and from
// many goroutines.
type Answers interface {
	// Host reports whether some path of a host is answered here.
	Host(host string, port uint16) bool
	// Answer returns who answers a path, in normal form, and what the verdict
	// says of that; nil where the request goes its way.
	Answer(host string, port uint16, path string) (http.Handler, string)
}

// answered reports whether requests to a host must be read because the node
// answers some of them.
func (s *serving) answered(host string, port uint16) bool {
	return s.session.Answers != nil && port == portHTTPS && s.session.Answers.Host(host, port)
}

// answer answers a request that is the node's own to answer.
func (s *serving) answer(w http.ResponseWriter, r *http.Request, x *exchange, v *pending) bool {
	if !x.link.tls || !s.answered(x.to.host, x.to.port) {
		return false
	}
	h, reason := s.session.Answers.Answer(x.to.host, x.to.port, x.path)
	if h == nil {
		return false
	}
	v.decide(policy.Decision{Allowed: true, Layer: policy.LayerNode, Reason: reason})
	v.settle()
	w.Header().Set("Cache-Control", "no-store")
	h.ServeHTTP(w, r)
	return true
}
