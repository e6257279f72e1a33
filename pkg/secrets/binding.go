package secrets

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/mojoup/mojoup-node/pkg/policy"
)

// A Binding says where a key may go. It is the node's to say and never a
// repository's. The texts are as a person writes them; [Binding.Check] refuses
// what cannot be one.
type Binding struct {
	// Hosts are patterns as in a policy, each with a port where that is not
	// 443: "api.x.example", "*.x.example:8443".
	Hosts []string `json:"hosts"`
	// Headers are names, each with a form where only one is meant:
	// "X-Api-Key", "Authorization: bearer". The forms are bare, bearer, token
	// and basic (the password, or the user where there is no password).
	// A WebSocket upgrade is a request like any other.
	Headers []string `json:"headers,omitempty"`
	// Query are names of parameters.
	Query []string `json:"query,omitempty"`
	// Body are names of fields in a form or in the outermost object of JSON.
	Body []string `json:"body,omitempty"`
	// Paths are patterns as in a policy; none means every path. Query and Body
	// need some: what is posted anywhere may be read by anybody.
	Paths []string `json:"paths,omitempty"`
}

// usualHeaders are where a key goes if its binding names no place.
var usualHeaders = []string{"Authorization", "X-Api-Key", "X-Goog-Api-Key"}

// WithDefaults names the usual headers where no place is named.
func (b Binding) WithDefaults() Binding {
	if len(b.Headers)+len(b.Query)+len(b.Body) == 0 {
		b.Headers = slices.Clone(usualHeaders)
	}
	return b
}

// A BindingError says what of a binding cannot be.
type BindingError struct{ reason, hint string }

func (e *BindingError) Error() string { return e.reason }

// Hint is the next step for people.
func (e *BindingError) Hint() string { return e.hint }

// Check refuses a binding that could not be obeyed.
func (b Binding) Check() error {
	_, err := b.compile()
	return err
}

// Passwords are the hosts, as patterns with a port where that is not 443, to
// which a key may go as the password of basic authentication, as git sends it.
func (b Binding) Passwords() (hosts []string) {
	c, err := b.compile()
	if err != nil || !slices.Contains(c.headers["Authorization"], formBasic) {
		return nil
	}
	for _, h := range c.hosts {
		hosts = append(hosts, h.String())
	}
	return hosts
}

// bound is a binding, ready to be asked.
type bound struct {
	text    Binding
	hosts   []hostPort
	headers map[string][]form // by canonical name
	query   []string
	body    []string
	paths   []policy.PathPattern
}

type hostPort struct {
	pattern policy.HostPattern
	port    uint16
}

func (h hostPort) String() string {
	s := h.pattern.String()
	if strings.Contains(s, ":") {
		s = "[" + s + "]"
	}
	if h.port != defaultPort {
		s += ":" + strconv.Itoa(int(h.port))
	}
	return s
}

const defaultPort = 443

// form is how a key stands in a header.
type form string

const (
	formBare   form = "bare"
	formBearer form = "bearer"
	formToken  form = "token"
	formBasic  form = "basic"
)

func (b Binding) compile() (*bound, error) {
	b = b.WithDefaults()
	out := &bound{text: b, headers: map[string][]form{}, query: b.Query, body: b.Body}
	if len(b.Hosts) == 0 {
		return nil, &BindingError{"the secret is bound to no host", "name where its key may go: --host api.example.com"}
	}
	for _, s := range b.Hosts {
		h, err := parseHostPort(s)
		if err != nil {
			return nil, err
		}
		out.hosts = append(out.hosts, h)
	}
	for _, s := range b.Headers {
		name, forms, err := parseHeader(s)
		if err != nil {
			return nil, err
		}
		out.headers[name] = append(out.headers[name], forms...)
	}
	for _, s := range slices.Concat(b.Query, b.Body) {
		if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f || r == '&' || r == '=' }) {
			return nil, &BindingError{fmt.Sprintf("%q is no name of a parameter or field", s), "its name alone, without blanks, & and ="}
		}
	}
	for _, s := range b.Paths {
		p, err := policy.ParsePathPattern(s)
		if err != nil {
			return nil, &BindingError{err.Error(), HintOf(err)}
		}
		out.paths = append(out.paths, p)
	}
	if len(b.Query)+len(b.Body) > 0 && len(b.Paths) == 0 {
		return nil, &BindingError{"a key in a query or body needs the paths where it belongs", "name them: --path /v1/token"}
	}
	return out, nil
}

// HintOf is the next step that err, or what it wraps, has for people; "" where
// it has none.
func HintOf(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func parseHostPort(s string) (hostPort, error) {
	host, port := s, uint16(defaultPort)
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") && strings.Count(s[i+1:], ":") == 0 &&
		(strings.Count(s, ":") == 1 || strings.HasSuffix(s[:i], "]")) && !strings.Contains(s, "//") {
		n, err := strconv.ParseUint(s[i+1:], 10, 16)
		if err != nil || n == 0 || s[i+1] == '0' || s[i+1] == '+' {
			return hostPort{}, &BindingError{fmt.Sprintf("%q has no number from 1 to 65535 behind its colon", s), "write the port as digits, or leave it out where it is 443"}
		}
		host, port = s[:i], uint16(n)
	}
	p, err := policy.ParseHostPattern(host)
	switch {
	case err != nil:
		return hostPort{}, &BindingError{err.Error(), "a host alone, as api.x.example or *.x.example, with :PORT behind it where that is not 443"}
	case port == 80:
		return hostPort{}, &BindingError{fmt.Sprintf("%q: a key never goes over plain HTTP, which port 80 is for", s), "leave the port out where it is 443"}
	}
	return hostPort{p, port}, nil
}

// refusedHeaders are fields that say how a message is framed, routed or masked.
var refusedHeaders = []string{"Host", "Content-Length", "Transfer-Encoding", "Connection", "Upgrade", "Te", "Trailer", "Accept-Encoding", "Proxy-Authorization", "Cookie"}

func parseHeader(s string) (name string, forms []form, err error) {
	name, how, given := strings.Cut(s, ":")
	name = http.CanonicalHeaderKey(strings.TrimSpace(name))
	how = strings.ToLower(strings.TrimSpace(how))
	if name == "" || strings.Trim(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_") != "" || slices.Contains(refusedHeaders, name) {
		return "", nil, &BindingError{fmt.Sprintf("a key cannot stand in the header %q", name), "a header's name, as X-Api-Key or Authorization, and none that says how a request is sent or who is signed in"}
	}
	switch {
	case given && slices.Contains([]form{formBare, formBearer, formToken, formBasic}, form(how)):
		return name, []form{form(how)}, nil
	case given:
		return "", nil, &BindingError{fmt.Sprintf("%q is no form of a key in a header", how), "forms: bare, bearer, token, basic; as --header 'Authorization: bearer'"}
	case name == "Authorization":
		return name, []form{formBearer, formToken, formBasic}, nil
	}
	return name, []form{formBare}, nil
}

// host reports whether the key may go to a host at all.
func (b *bound) host(host string, port uint16) bool {
	return slices.ContainsFunc(b.hosts, func(h hostPort) bool { return h.port == port && h.pattern.Match(host) })
}

func (b *bound) path(path string) bool {
	return len(b.paths) == 0 || slices.ContainsFunc(b.paths, func(p policy.PathPattern) bool { return p.Match(path) })
}

// whereHosts says where the key may go, for people.
func (b *bound) whereHosts() string {
	words := make([]string, len(b.hosts))
	for i, h := range b.hosts {
		words[i] = h.String()
	}
	return strings.Join(words, ", ")
}

// wherePlaces says in which places.
func (b *bound) wherePlaces() string {
	var words []string
	for _, h := range b.text.Headers {
		words = append(words, "header "+h)
	}
	for _, q := range b.query {
		words = append(words, "parameter "+q)
	}
	for _, f := range b.body {
		words = append(words, "field "+f)
	}
	return strings.Join(words, ", ")
}

// swapHeader returns the header's value with the key in place of its
// stand-in, where that is all that stands there in one of the forms.
func swapHeader(forms []form, value, standIn, key string) (string, bool) {
	scheme, rest, ok := strings.Cut(value, " ")
	for _, f := range forms {
		switch {
		case f == formBare && value == standIn:
			return key, true
		case f == formBasic:
			if s, ok := swapBasic(value, standIn, key); ok {
				return scheme + " " + s, true
			}
		case (f == formBearer || f == formToken) && ok && strings.EqualFold(scheme, string(f)) && rest == standIn:
			return scheme + " " + key, true
		}
	}
	return "", false
}
