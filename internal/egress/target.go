package egress

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

const (
	portHTTP  = 80
	portHTTPS = 443
	// ownHost is the proxy itself, as seen from inside.
	ownHost    = "node.mojoup.internal"
	healthPath = "/healthz"
)

// A target is where a request wants to go. Host is in the one normal form in
// which it is judged, resolved, dialled, verified and recorded.
type target struct {
	host string
	port uint16
}

func (t target) String() string { return joinHostPort(t.host, t.port) }

// joinHostPort writes a target as it stands in a request.
func joinHostPort(host string, port uint16) string {
	return bracket(host) + ":" + strconv.Itoa(int(port))
}

func bracket(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}

// parseAuthority reads host:port. A missing port means the given one, or is
// refused if that is 0.
func parseAuthority(s string, defaultPort uint16) (target, *refusal) {
	host, port, hasPort := s, "", false
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port, hasPort = s[:i], s[i+1:], true
	}
	t := target{port: defaultPort}
	if hasPort {
		n, ok := parsePort(port)
		if !ok {
			return target{}, malformed("the port is not a plain number from 1 to 65535")
		}
		t.port = n
	}
	if t.port == 0 {
		return target{}, malformed("the target has no port")
	}
	var why *refusal
	t.host, why = parseHost(host)
	return t, why
}

func parsePort(s string) (uint16, bool) {
	if s == "" || s[0] == '0' || len(s) > 5 {
		return 0, false
	}
	n, ok := decimal(s)
	return uint16(n), ok && n <= 65535
}

// parseHost brings a name or literal address into normal form. An IPv6 address
// needs its brackets here, and nothing else may have them.
func parseHost(s string) (string, *refusal) {
	bracketed := strings.HasPrefix(s, "[") && strings.HasSuffix(s, "]")
	if strings.Contains(s, ":") != bracketed {
		return "", malformed("the host is neither a name nor an address in its usual form")
	}
	host, err := policy.NormalHost(s)
	if err != nil {
		return "", malformed("the host is not one: " + err.Error())
	}
	return host, nil
}

// agrees reports whether a Host field means t. Without a port it means any:
// some clients leave it out towards a proxy.
func agrees(field string, t target) bool {
	got, why := parseAuthority(field, t.port)
	return why == nil && got == t
}

// path is what a target inside a tunnel asks for, and all of it that is judged
// and sent on. It may name the host as well: a server must take such a one (RFC
// 9112, 3.2.2), and there are clients that send it where they go by a proxy.
func (l *link) path(target string) (string, *refusal) {
	path := target
	if after, ok := strings.CutPrefix(target, "https://"); ok && l.tls {
		authority := authorityOf(after)
		if path = after[len(authority):]; !agrees(authority, l.inner) {
			return path, misdirected(authority)
		}
	}
	if !strings.HasPrefix(path, "/") && path != "*" {
		return path, malformed("the target inside a tunnel is not a path")
	}
	return path, nil
}

func misdirected(name string) *refusal {
	return &refusal{status: http.StatusMisdirectedRequest, reason: "the request names " + printable(name, 300) + ", not the host of its tunnel"}
}

// target takes the host off the request's target and returns the rest.
func (x *exchange) target(r *http.Request, l *link) (rest string, why *refusal) {
	if l.inner.host != "" {
		x.to = l.inner
		if r.Method == http.MethodConnect {
			return "", malformed("CONNECT inside a tunnel")
		}
		if rest, why = l.path(r.RequestURI); why == nil && !agrees(r.Host, l.inner) {
			why = misdirected(r.Host)
		}
		return rest, why
	}
	after, ok := cutScheme(r.RequestURI)
	if !ok {
		return "", malformed("this is a proxy: the target must be http://HOST/PATH, or CONNECT HOST:PORT")
	}
	authority := authorityOf(after)
	x.to, why = parseAuthority(authority, portHTTP)
	return after[len(authority):], why
}
